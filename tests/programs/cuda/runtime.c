/* A program on a runtime (minirt.h), shared or linked in: each of its calls is one of the driver's, and counts once. */
#include "../facts.h"
#include "minirt.h"

#define MIB (1ull << 20)
#define GOOD(call) do { int r_ = (call); if (r_) { line("line %d: " #call ": %d", __LINE__, r_); _exit(99); } } while (0)

static void *dev, *pinned, *shared_, *pitched, *pooled;
static char *heap;
static cudaStream_t s;

static void *another_thread(void *unused)
{
    for (int i = 0; i < 4; i++)
        GOOD(cudaMemcpyAsync_ptsz(dev, pinned, 3000, cudaMemcpyHostToDevice, 0));
    GOOD(cudaDeviceSynchronize());
    return 0;
}

static int all(char **args)
{
    size_t pitch;
    cudaGraph_t g;
    cudaGraphExec_t e;
    pthread_t t;
    heap = map_anon(4 * MIB);
    GOOD(cudaSetDevice(0));
    GOOD(cudaMalloc(&dev, 8 * MIB));
    GOOD(cudaMallocManaged(&shared_, 2 * MIB, 1));
    GOOD(cudaMallocPitch(&pitched, &pitch, 1000, 1024)); /* 1 MiB */
    GOOD(cudaHostAlloc(&pinned, 4 * MIB, 0));
    GOOD(cudaStreamCreateWithFlags(&s, 1));
    GOOD(cudaMallocAsync(&pooled, 3 * MIB, s));
    for (int i = 0; i < 10; i++) {
        GOOD(cudaMemcpy(dev, heap, 100000, cudaMemcpyHostToDevice));
        GOOD(cudaMemcpyAsync(dev, pinned, 200000, cudaMemcpyHostToDevice, s));
        GOOD(cudaMemcpyAsync(pinned, dev, 50000, cudaMemcpyDeviceToHost, s));
    }
    for (int i = 0; i < 5; i++) {
        GOOD(cudaMemcpy(heap, dev, 70000, 4)); /* the addresses tell */
        GOOD(cudaMemcpyAsync(pooled, dev, 90000, cudaMemcpyDeviceToDevice, s));
        GOOD(cudaMemsetAsync(dev, 1, 40000, s));
        GOOD(cudaLaunchKernel(1000, s));
    }
    pthread_create(&t, 0, another_thread, 0);
    pthread_join(t, 0);
    GOOD(cudaStreamBeginCapture(s, 0));
    GOOD(cudaMemcpyAsync(dev, pinned, 1000, cudaMemcpyHostToDevice, s));
    GOOD(cudaStreamEndCapture(s, &g));
    GOOD(cudaGraphInstantiate(&e, g, 0));
    for (int i = 0; i < 6; i++)
        GOOD(cudaGraphLaunch(e, s));
    GOOD(cudaStreamSynchronize(s));
    GOOD(cudaFreeAsync(pooled, s));
    GOOD(cudaFree(pitched));
    GOOD(cudaFree(shared_));
    GOOD(cudaStreamDestroy(s));
    GOOD(cudaDeviceSynchronize());
    line("LOOKUPS %d", minirt_lookups());
    return 0;
}

MODES({"all", all})
