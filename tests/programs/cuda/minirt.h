/* A runtime of our own, as far as the tests need one: the names and shapes of NVIDIA's, on the driver that it finds as theirs does. */
#pragma once
#include <stddef.h>
typedef struct stream *cudaStream_t;
typedef struct event *cudaEvent_t;
typedef struct graph *cudaGraph_t;
typedef struct exec *cudaGraphExec_t;
enum { cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };

#ifdef __cplusplus
extern "C" {
#endif
int cudaSetDevice(int device);
int cudaMalloc(void **p, size_t n);
int cudaMallocManaged(void **p, size_t n, unsigned flags);
int cudaMallocPitch(void **p, size_t *pitch, size_t w, size_t h);
int cudaMallocAsync(void **p, size_t n, cudaStream_t s);
int cudaFree(void *p);
int cudaFreeAsync(void *p, cudaStream_t s);
int cudaHostAlloc(void **p, size_t n, unsigned flags);
int cudaFreeHost(void *p);
int cudaMemcpy(void *to, const void *from, size_t n, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t s);
/* The same for programs whose default stream is the thread's own. */
int cudaMemcpyAsync_ptsz(void *to, const void *from, size_t n, int kind, cudaStream_t s);
int cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s);
int cudaLaunchKernel(long ns, cudaStream_t s);
int cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
int cudaStreamDestroy(cudaStream_t s);
int cudaStreamSynchronize(cudaStream_t s);
int cudaDeviceSynchronize(void);
int cudaEventCreate(cudaEvent_t *e);
int cudaEventRecord(cudaEvent_t e, cudaStream_t s);
int cudaEventSynchronize(cudaEvent_t e);
int cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
int cudaEventDestroy(cudaEvent_t e);
int cudaStreamBeginCapture(cudaStream_t s, int mode);
int cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
int cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long flags);
int cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s);
/* For the test: how often it has asked the driver for a function. */
int minirt_lookups(void);
#ifdef __cplusplus
}
#endif
