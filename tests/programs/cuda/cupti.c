/* Kernels, copies and CUPTI itself, on the driver and the CUPTI of our own. */
#include "driver.h"

#define MIB (1ull << 20)
static Stream a, b, c;
static Ptr dev, pinned;

static void prepare(char **args)
{
    driver(args);
    context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(64 * MIB));
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)(64 * MIB));
    OKAY(cuStreamCreate, &a, 1);
    OKAY(cuStreamCreate, &b, 1);
    OKAY(cuStreamCreate, &c, 1);
}
static void kernels(Stream s, int count, int64_t ns)
{
    for (int i = 0; i < count; i++)
        OKAY(cuLaunchKernel, ns, 1, 1, 1, 1, 1, 1, 0, s, (void *)0, (void *)0);
}
static void *own(void *context)
{
    OKAY(cuCtxSetCurrent, context);
    for (int i = 0; i < 2; i++)
        OKAY(cuLaunchKernel_ptsz, (int64_t)250000, 1, 1, 1, 1, 1, 1, 0, (Stream)0, (void *)0, (void *)0);
    OKAY(cuStreamSynchronize_ptsz, (Stream)0);
    return 0;
}

/* From 0: 3 ms of kernels on one stream, 1 ms on another, 402 µs of a copy on a third. Then 202 µs of a copy on the first, alone. Then 1 ms of
   kernels on the default streams of two threads, one after the other, and 100 µs on the context's own. */
static int work(char **args)
{
    need(dlsym(RTLD_DEFAULT, "cuptiSubscribe") == 0 || getenv("PROGRAM_OPENS"), "a CUPTI that is none of the program's");
    prepare(args);
    kernels(a, 3, 1000000);
    kernels(b, 2, 500000);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)10000000, c);
    OKAY(cuCtxSynchronize);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)5000000, a);
    OKAY(cuCtxSynchronize);
    Context here;
    OKAY(cuCtxGetCurrent, &here);
    pthread_t t;
    for (int i = 0; i < 2; i++) {
        pthread_create(&t, 0, own, here);
        pthread_join(t, 0);
    }
    kernels(0, 1, 100000);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Streams come and go faster than anybody asks what they did; a handle can come back. */
static int short_streams(char **args)
{
    prepare(args);
    for (int i = 0; i < 20; i++) {
        Stream s;
        OKAY(cuStreamCreate, &s, 1);
        kernels(s, 1, 10000 * (i + 1));
        OKAY(cuStreamSynchronize, s);
        OKAY(cuStreamDestroy_v2, s);
    }
    return 0;
}

/* The program takes CUPTI for itself, in the middle or at the start, by name or by its linker. */
typedef int (*Subscribe)(void **, void *, void *);
static void heard(void *data, int domain, uint32_t id, const void *call) {}
static void take(int linked)
{
    void *library = dlopen(beside(linked ? "libcupti_user.so" : "libcupti.so.13"), RTLD_NOW), *subscriber = 0;
    need(library != 0, "%s", dlerror());
    Subscribe subscribe = (Subscribe)dlsym(library, linked ? "user_subscribe" : "cuptiSubscribe");
    need(subscribe != 0, "%s", dlerror());
    line("it answers %d", subscribe(&subscriber, (void *)heard, 0));
}
static int taking(char **args, int linked)
{
    prepare(args);
    kernels(a, 4, 1000000);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)5000000, a);
    OKAY(cuCtxSynchronize);
    take(linked);
    kernels(a, 2, 1000000);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)10000000, a);
    OKAY(cuCtxSynchronize);
    rest_ms(20);
    return 0;
}
static int takes(char **args) { return taking(args, 0); }
static int takes_linked(char **args) { return taking(args, 1); }
static int took(char **args)
{
    driver(args);
    take(0);
    prepare(args);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)10000000, a);
    OKAY(cuCtxSynchronize);
    rest_ms(20);
    return 0;
}

/* Opens a library first, named by a variable: where it lies says where CUPTI may lie. */
static int opens(char **args)
{
    const char *path = getenv("PROGRAM_OPENS");
    if (path)
        need(dlopen(path, RTLD_NOW) != 0, "%s", dlerror());
    return work(args);
}

MODES({"work", work}, {"short_streams", short_streams}, {"takes", takes}, {"takes_linked", takes_linked}, {"took", took}, {"opens", opens})
