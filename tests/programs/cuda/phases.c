/* Two stages of a GPU program, each told of as a phase. */
#include "driver.h"
#include "../../../include/memshim.h"

#define MIB (1ull << 20)

static int stages(char **args)
{
    driver(args);
    context(0);
    Ptr kept, scratch, pinned;
    char *h = map_anon(4 * MIB);
    memshim_begin("load");
    OKAY(cuMemAlloc_v2, &kept, (size_t)(4 * MIB));
    OKAY(cuMemcpyHtoD_v2, kept, h, (size_t)(3 * MIB));
    memshim_end();
    memshim_begin("compute");
    for (int i = 0; i < 2; i++) {
        OKAY(cuMemAlloc_v2, &scratch, (size_t)((10 + i) * MIB));
        OKAY(cuMemAllocHost_v2, &pinned, (size_t)(2 * MIB));
        OKAY(cuMemcpyHtoD_v2, scratch, pinned, (size_t)(MIB));
        OKAY(cuMemcpyDtoH_v2, h, kept, (size_t)(2 * MIB));
        OKAY(cuMemFreeHost, pinned);
        OKAY(cuMemFree_v2, scratch);
    }
    memshim_end();
    memshim_begin("store");
    OKAY(cuMemcpyDtoH_v2, h, kept, (size_t)(4 * MIB));
    OKAY(cuMemFree_v2, kept);
    memshim_end();
    return 0;
}

/* A rank's part of a job on two devices, as many times as much as ranks are below it and itself: on each in a phase, then on both. */
static int devices(char **args)
{
    const char *rank = getenv("SLURM_PROCID");
    size_t part = (1 + atoi(rank ? rank : "0")) * MIB;
    Ptr kept[2], scratch, pinned;
    char *h = map_anon(16 * MIB);
    driver(args);
    context(0);
    OKAY(cuMemAllocHost_v2, &pinned, 5 * part);
    memshim_begin("first");
    OKAY(cuMemAlloc_v2, &kept[0], 4 * part);
    OKAY(cuMemAlloc_v2, &scratch, 2 * part);
    OKAY(cuMemcpyHtoD_v2, kept[0], h, 3 * part);
    OKAY(cuMemFree_v2, scratch);
    memshim_end();
    context(1);
    memshim_begin("second");
    OKAY(cuMemAlloc_v2, &kept[1], 8 * part);
    OKAY(cuMemcpyHtoD_v2, kept[1], pinned, 5 * part);
    OKAY(cuMemcpyDtoH_v2, h, kept[1], 2 * part);
    memshim_end();
    memshim_begin("both");
    OKAY(cuMemAlloc_v2, &scratch, part);
    OKAY(cuMemFree_v2, scratch);
    context(0);
    OKAY(cuMemAlloc_v2, &scratch, 3 * part);
    OKAY(cuMemcpyDtoH_v2, h, kept[0], part);
    OKAY(cuMemFree_v2, scratch);
    memshim_end();
    return 0;
}

/* Steps that keep device memory and page-locked memory, and steps that give it back. */
static int leaky(char **args)
{
    driver(args);
    context(0);
    Ptr dev, host;
    for (int i = 0; i < 20; i++) {
        memshim_begin("keeps");
        OKAY(cuMemAlloc_v2, &dev, (size_t)(2 * MIB));
        OKAY(cuMemAllocHost_v2, &host, (size_t)(64 << 10));
        memshim_end();
        memshim_begin("frees");
        OKAY(cuMemAlloc_v2, &dev, (size_t)(2 * MIB));
        OKAY(cuMemFree_v2, dev);
        memshim_end();
    }
    return 0;
}

static Stream a, b, c;
static Ptr dev, pinned;
static void make(void)
{
    context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(64 * MIB));
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)(64 * MIB));
    OKAY(cuStreamCreate, &a, 1);
    OKAY(cuStreamCreate, &b, 1);
    OKAY(cuStreamCreate, &c, 1);
}
static void prepare(char **args)
{
    driver(args);
    CU(fake_follow, 1);
    make();
}
static void down(Stream s, size_t bytes) { OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, bytes, s); }
static void up(Stream s, size_t bytes) { OKAY(cuMemcpyDtoHAsync_v2, pinned + 16 * MIB, dev + 16 * MIB, bytes, s); }
static void kernels(Stream s, int count, int64_t ns)
{
    for (int i = 0; i < count; i++)
        OKAY(cuLaunchKernel, ns, 1, 1, 1, 1, 1, 1, 0, s, (void *)0, (void *)0);
}
/* A phase, with time to spare before and after its work. */
#define PHASE(name, work)                                                                                                                             \
    memshim_begin(name);                                                                                                                              \
    rest_ms(40);                                                                                                                                      \
    CU(fake_follow, 0);                                                                                                                               \
    { work }                                                                                                                                          \
    rest_ms(40);                                                                                                                                      \
    memshim_end()

/* 10 MB down beside 10 MB up: 402 and 502 µs, together for 402. Then 5 MB, 202 µs, twice. Then nothing. */
static int copies(char **args)
{
    prepare(args);
    memshim_begin("all");
    PHASE("both", down(a, 10000000); up(b, 10000000); OKAY(cuStreamSynchronize, a); OKAY(cuStreamSynchronize, b););
    for (int i = 0; i < 2; i++) {
        PHASE("one", down(a, 5000000); OKAY(cuCtxSynchronize););
    }
    memshim_end();
    PHASE("none", );
    return 0;
}

/* Where CUPTI tells: 3 ms of kernels on one stream, 1 ms on another, a copy of 402 µs on a third; then the copy alone. */
static int work(char **args)
{
    prepare(args);
    PHASE("mixed", kernels(a, 3, 1000000); kernels(b, 2, 500000); down(c, 10000000); OKAY(cuCtxSynchronize););
    PHASE("copy", down(a, 10000000); OKAY(cuCtxSynchronize););
    return 0;
}

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}
/* For how long a stream was busy by the machine's clock: in a file, since it is another time each time. */
static void note(int64_t ns)
{
    FILE *f = fopen("busy_ns", "w");
    fprintf(f, "%ld", (long)ns);
    fclose(f);
}

/* Five spells of work, each as long as the host naps. */
static int spells(char **args)
{
    int64_t sum = 0;
    prepare(args);
    memshim_begin("spells");
    for (int i = 0; i < 5; i++) {
        int64_t from = clock_ns();
        kernels(a, 1, 1000000);
        rest_ms(12);
        OKAY(cuStreamSynchronize, a);
        sum += clock_ns() - from;
        rest_ms(8);
    }
    memshim_end();
    rest_ms(40);
    memshim_begin("idle");
    rest_ms(40);
    memshim_end();
    note(sum);
    return 0;
}

/* Kernels before CUPTI is there: two on a stream, which end after it has come; one on another, done before; three on the thread's own, at which
   nobody can look. The one after it has come is CUPTI's. */
static int early(char **args)
{
    Context here;
    driver(args);
    CU(fake_follow, 1);
    OKAY(cuDevicePrimaryCtxRetain, &here, 0);
    OKAY(cuCtxSetCurrent, here);
    OKAY(cuStreamCreate, &a, 1);
    OKAY(cuStreamCreate, &b, 1);
    memshim_begin("before");
    int64_t from = clock_ns();
    kernels(a, 2, 100000000);
    kernels(b, 1, 100);
    for (int i = 0; i < 3; i++)
        OKAY(cuLaunchKernel_ptsz, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, (Stream)0, (void *)0, (void *)0);
    rest_ms(20);
    CU(fake_sleep, (int64_t)1000);
    wait_for_cupti();
    rest_ms(20);
    OKAY(cuStreamSynchronize, a);
    note(clock_ns() - from);
    rest_ms(20);
    memshim_end();
    /* The driver's clock is at 200 ms now, the machine's is not. */
    rest_ms(250);
    PHASE("after", kernels(b, 1, 250000); OKAY(cuCtxSynchronize););
    return 0;
}

/* Two copies after a day of the driver's without any, of which an event's float has no nanoseconds. By the machine's clock it is some seconds; the phase
   waits until somebody has come to ask. */
static int days(char **args)
{
    driver(args);
    make();
    down(a, 5000000);
    OKAY(cuCtxSynchronize);
    CU(fake_sleep, (int64_t)86400000000000);
    rest_ms(4100);
    memshim_begin("late");
    rest_ms(40);
    for (int i = 0; i < 2; i++) {
        down(a, 5000000);
        OKAY(cuCtxSynchronize);
    }
    rest_ms(500);
    return 0;
}

MODES({"days", days}, {"stages", stages}, {"devices", devices}, {"leaky", leaky}, {"copies", copies}, {"work", work}, {"spells", spells}, {"early", early})
