/* See minirt.h. What it asks its driver for, and in which order, is what NVIDIA's runtimes of CUDA 12 and 13 were seen to do: one library by
   name, one or two functions by dlsym, then everything by cuGetProcAddress_v2: a nameless probe, itself in both ABIs, and each function at
   the version that it is built for, those with streams once for each kind of default stream. All of it at the first call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include "minirt.h"

#define LEGACY 1
#define PER_THREAD 2
typedef unsigned long long Ptr;

/* Name, version. */
#define PLAIN(X) \
    X(cuInit, 2000) X(cuDeviceGet, 2000) X(cuDeviceGetCount, 2000) X(cuDeviceTotalMem, 3020) X(cuDevicePrimaryCtxRetain, 7000) X(cuCtxSetCurrent, 4000) \
    X(cuCtxGetCurrent, 4000) X(cuMemAlloc, 3020) X(cuMemAllocManaged, 6000) X(cuMemAllocPitch, 3020) X(cuMemFree, 3020) X(cuMemHostAlloc, 2020) \
    X(cuMemFreeHost, 2000) X(cuStreamCreate, 2000) X(cuStreamDestroy, 4000) X(cuCtxSynchronize, 2000) X(cuGraphInstantiateWithFlags, 11040) \
    X(cuEventCreate, 2000) X(cuEventSynchronize, 2000) X(cuEventElapsedTime, 2000) X(cuEventDestroy, 4000)
#define WITH_STREAM(X) \
    X(cuMemAllocAsync, 11020) X(cuMemFreeAsync, 11020) X(cuMemcpy, 7000) X(cuMemcpyAsync, 7000) X(cuMemcpyHtoD, 7000) X(cuMemcpyHtoDAsync, 7000) \
    X(cuMemcpyDtoH, 7000) X(cuMemcpyDtoHAsync, 7000) X(cuMemcpyDtoD, 7000) X(cuMemcpyDtoDAsync, 7000) X(cuMemsetD8Async, 7000) X(cuLaunchKernel, 7000) \
    X(cuStreamSynchronize, 7000) X(cuStreamBeginCapture, 10010) X(cuStreamEndCapture, 10000) X(cuGraphLaunch, 10000) X(cuMemcpyBatchAsync, 13000) \
    X(cuEventRecord, 7000)

typedef int (*Call)();
#define X(name, version) static Call name##_;
PLAIN(X)
#undef X
/* By whose default stream: the context's, the thread's. */
#define X(name, version) static Call name##_[2];
WITH_STREAM(X)
#undef X

static int lookups, broken;
static int (*find)(const char *, void *, int, uint64_t, int *);

static void look(const char *name, int version, uint64_t flags, Call *at)
{
    int status = 0;
    void *p = 0;
    lookups++;
    if (find(name, &p, version, flags, &status) || status)
        p = 0;
    *at = (Call)p;
    broken |= !p && *name;
}
static void start(void)
{
    Call ignored, old, young;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*version)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDriverGetVersion") : 0;
    find = driver ? (int (*)(const char *, void *, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2") : 0;
    int installed = 0;
    if (!version || !find || version(&installed)) {
        broken = 1;
        return;
    }
    look("", 0, 0, &ignored);
    look("cuGetProcAddress", 11030, 0, &old);
    look("cuGetProcAddress", 12000, 0, &young);
    broken |= old == young;
    look("cuGetExportTable", 3000, 0, &ignored);
    broken = 0; /* our driver has none to be found */
#define X(name, version) look(#name, version, LEGACY, &name##_);
    PLAIN(X)
#undef X
#define X(name, version) look(#name, version, LEGACY, &name##_[0]), look(#name, version, PER_THREAD, &name##_[1]);
    WITH_STREAM(X)
#undef X
    broken |= cuMemcpyAsync_[0] == cuMemcpyAsync_[1] || cuInit_(0);
}
static int ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static __thread int has_context;
    static void *primary;
    pthread_once(&once, start);
    if (broken)
        return 3;
    if (!primary && cuDevicePrimaryCtxRetain_(&primary, 0))
        return 3;
    if (!has_context)
        has_context = !cuCtxSetCurrent_(primary);
    return has_context ? 0 : 3;
}
#define CALL(...) (ready() ?: (__VA_ARGS__))

int minirt_lookups(void) { return lookups; }
int cudaSetDevice(int device) { return CALL(device ? 101 : 0); }
int cudaMalloc(void **p, size_t n) { return CALL(cuMemAlloc_(p, n)); }
int cudaMallocManaged(void **p, size_t n, unsigned flags) { return CALL(cuMemAllocManaged_(p, n, flags)); }
int cudaMallocPitch(void **p, size_t *pitch, size_t w, size_t h) { return CALL(cuMemAllocPitch_(p, pitch, w, h, 4)); }
int cudaMallocAsync(void **p, size_t n, cudaStream_t s) { return CALL(cuMemAllocAsync_[0](p, n, s)); }
int cudaFree(void *p) { return CALL(cuMemFree_((Ptr)p)); }
int cudaFreeAsync(void *p, cudaStream_t s) { return CALL(cuMemFreeAsync_[0]((Ptr)p, s)); }
int cudaHostAlloc(void **p, size_t n, unsigned flags) { return CALL(cuMemHostAlloc_(p, n, flags)); }
int cudaFreeHost(void *p) { return CALL(cuMemFreeHost_(p)); }
static int copy(void *to, const void *from, size_t n, int kind, int own)
{
    return kind == cudaMemcpyHostToDevice ? cuMemcpyHtoD_[own]((Ptr)to, from, n) : kind == cudaMemcpyDeviceToHost ? cuMemcpyDtoH_[own](to, (Ptr)from, n)
        : kind == cudaMemcpyDeviceToDevice ? cuMemcpyDtoD_[own]((Ptr)to, (Ptr)from, n) : cuMemcpy_[own]((Ptr)to, (Ptr)from, n);
}
static int copy_async(void *to, const void *from, size_t n, int kind, cudaStream_t s, int own)
{
    return kind == cudaMemcpyHostToDevice ? cuMemcpyHtoDAsync_[own]((Ptr)to, from, n, s) : kind == cudaMemcpyDeviceToHost ? cuMemcpyDtoHAsync_[own](to, (Ptr)from, n, s)
        : kind == cudaMemcpyDeviceToDevice ? cuMemcpyDtoDAsync_[own]((Ptr)to, (Ptr)from, n, s) : cuMemcpyAsync_[own]((Ptr)to, (Ptr)from, n, s);
}
int cudaMemcpy(void *to, const void *from, size_t n, int kind) { return CALL(copy(to, from, n, kind, 0)); }
int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t s) { return CALL(copy_async(to, from, n, kind, s, 0)); }
int cudaMemcpyAsync_ptsz(void *to, const void *from, size_t n, int kind, cudaStream_t s) { return CALL(copy_async(to, from, n, kind, s, 1)); }
int cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) { return CALL(cuMemsetD8Async_[0]((Ptr)p, value, n, s)); }
int cudaLaunchKernel(long ns, cudaStream_t s) { return CALL(cuLaunchKernel_[0](ns, 1, 1, 1, 1, 1, 1, 0, s, (void *)0, (void *)0)); }
int cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return CALL(cuStreamCreate_(s, flags)); }
int cudaStreamDestroy(cudaStream_t s) { return CALL(cuStreamDestroy_(s)); }
int cudaStreamSynchronize(cudaStream_t s) { return CALL(cuStreamSynchronize_[0](s)); }
int cudaDeviceSynchronize(void) { return CALL(cuCtxSynchronize_()); }
int cudaEventCreate(cudaEvent_t *e) { return CALL(cuEventCreate_(e, 0)); }
int cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return CALL(cuEventRecord_[0](e, s)); }
int cudaEventSynchronize(cudaEvent_t e) { return CALL(cuEventSynchronize_(e)); }
int cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { return CALL(cuEventElapsedTime_(ms, from, to)); }
int cudaEventDestroy(cudaEvent_t e) { return CALL(cuEventDestroy_(e)); }
int cudaStreamBeginCapture(cudaStream_t s, int mode) { return CALL(cuStreamBeginCapture_[0](s, mode)); }
int cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { return CALL(cuStreamEndCapture_[0](s, g)); }
int cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long flags) { return CALL(cuGraphInstantiateWithFlags_(e, g, flags)); }
int cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) { return CALL(cuGraphLaunch_[0](e, s)); }
