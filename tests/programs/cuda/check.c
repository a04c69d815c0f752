/* For `scripts/gpu-check`: work on a real GPU whose memory, bytes, counts and times the program knows by itself. It prints them as lines
   `EXPECT what value…`; times are taken by events of its own. Data is checked. Runs on the driver of our own as well. */
#include "driver.h"
#include "../../../include/memshim.h"

#define MIB (1ull << 20)
static Event from, to;
static double ms_between(void)
{
    float ms;
    OKAY(cuEventSynchronize, to);
    OKAY(cuEventElapsedTime, &ms, from, to);
    return ms;
}
static Stream stream(void)
{
    Stream s;
    OKAY(cuStreamCreate, &s, 1);
    return s;
}
static void prepare(char **args)
{
    driver(args);
    context(0);
    /* What is to be there before the work begins is given time to come: it begins to with the first call in a context. */
    const char *wait = getenv("CHECK_WAIT_MS");
    size_t free, total;
    if (wait) {
        OKAY(cuMemGetInfo_v2, &free, &total);
        rest_ms(atoi(wait));
    }
    OKAY(cuEventCreate, &from, 0);
    OKAY(cuEventCreate, &to, 0);
}

/* Copies of 64 MiB in each direction, of pinned and of pageable memory. */
#define TIMED(direction, memory, times, bytes, call)                                                                                                  \
    do {                                                                                                                                              \
        double ms_ = 0;                                                                                                                               \
        for (int i_ = 0; i_ < (times); i_++) {                                                                                                        \
            OKAY(cuEventRecord, from, s);                                                                                                             \
            call;                                                                                                                                     \
            OKAY(cuEventRecord, to, s);                                                                                                               \
            ms_ += ms_between();                                                                                                                      \
        }                                                                                                                                             \
        line("EXPECT copy %s %s %d %llu %.6f", direction, memory, times, (unsigned long long)(bytes) * (times), ms_);                                 \
    } while (0)
static int transfers(char **args)
{
    prepare(args);
    size_t n = 64 * MIB;
    Ptr a, b, pinned;
    Stream s = stream();
    OKAY(cuMemAlloc_v2, &a, n);
    OKAY(cuMemAlloc_v2, &b, n);
    OKAY(cuMemAllocHost_v2, &pinned, n);
    char *heap = map_anon(n), *host = (char *)pinned;
    for (size_t i = 0; i < n; i += 4096)
        host[i] = (char)(i >> 12), heap[i] = 0;
    TIMED("H2D", "pinned", 20, n, OKAY(cuMemcpyHtoDAsync_v2, a, host, n, s));
    TIMED("D2D", "device", 20, n, OKAY(cuMemcpyDtoDAsync_v2, b, a, n, s));
    TIMED("D2H", "pageable", 5, n, OKAY(cuMemcpyDtoHAsync_v2, heap, b, n, s));
    for (size_t i = 0; i < n; i += 4096)
        need(heap[i] == (char)(i >> 12), "data at %zu", i);
    TIMED("H2D", "pageable", 5, n, OKAY(cuMemcpyHtoDAsync_v2, a, heap, n, s));
    TIMED("memset", "device", 20, n, OKAY(cuMemsetD32Async, a, 0x01010101, n / 4, s));
    TIMED("D2H", "pinned", 20, n, OKAY(cuMemcpyDtoHAsync_v2, host, a, n, s));
    need(host[n - 1] == 1 && host[12345] == 1, "data");
    return 0;
}

/* What the driver is asked for, in every way; the sums are the program's own. */
static int memory(char **args)
{
    prepare(args);
    int where[] = {1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    size_t step, vram;
    Ptr a, b, c, d, space;
    Handle h;
    Stream s = stream();
    OKAY(cuMemAlloc_v2, &a, (size_t)(300 * MIB));
    OKAY(cuMemAllocManaged, &b, (size_t)(50 * MIB), 1);
    OKAY(cuMemFree_v2, a);
    OKAY(cuMemAllocAsync, &c, (size_t)(100 * MIB), s);
    OKAY(cuStreamSynchronize, s);
    OKAY(cuMemGetAllocationGranularity, &step, where, 0);
    size_t physical = (64 * MIB + step - 1) / step * step;
    OKAY(cuMemCreate, &h, physical, where, (uint64_t)0);
    OKAY(cuMemAddressReserve, &space, physical, (size_t)0, (Ptr)0, (uint64_t)0);
    OKAY(cuMemMap, space, physical, (size_t)0, h, (uint64_t)0);
    OKAY(cuMemRelease, h);
    OKAY(cuMemAllocHost_v2, &d, (size_t)(40 * MIB));
    need(CU(cuMemAlloc_v2, &a, (size_t)1 << 50) == 2, "more than there is");
    OKAY(cuMemUnmap, space, physical);
    OKAY(cuMemAddressFree, space, physical);
    OKAY(cuMemFreeAsync, c, s);
    OKAY(cuStreamSynchronize, s);
    OKAY(cuMemFreeHost, d);
    OKAY(cuDeviceTotalMem_v2, &vram, 0);
    line("EXPECT peak %llu", 350 * MIB);
    line("EXPECT live %llu", 50 * MIB);
    line("EXPECT pinned %llu", 40 * MIB);
    line("EXPECT total %zu", vram);
    line("EXPECT failed cuMemAlloc 2 1");
    int version = 0;
    OKAY(cuDriverGetVersion, &version);
    line("EXPECT version %d", version);
    return 0;
}

/* A kernel that counts cycles. */
static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry spin(.param .u64 n)\n{\n.reg .u64 %rd<5>;\n.reg .pred %p<2>;\n"
                          "ld.param.u64 %rd1, [n];\nmov.u64 %rd2, %clock64;\nagain:\nmov.u64 %rd3, %clock64;\nsub.u64 %rd4, %rd3, %rd2;\n"
                          "setp.lt.u64 %p1, %rd4, %rd1;\n@%p1 bra again;\nret;\n}\n";
static int64_t spin(void)
{
    void *module;
    int64_t f;
    OKAY(cuModuleLoadData, &module, ptx);
    OKAY(cuModuleGetFunction, &f, module, "spin");
    return f;
}

/* A graph of two copies and a kernel, launched 50 times; its data comes back. */
static int graphs(char **args)
{
    prepare(args);
    int64_t f = spin();
    uint64_t cycles = 100000;
    void *parameters[] = {&cycles};
    size_t n = 8 * MIB;
    Ptr a, in, out;
    Graph g;
    Exec e;
    Stream s = stream();
    OKAY(cuMemAlloc_v2, &a, n);
    OKAY(cuMemAllocHost_v2, &in, n);
    OKAY(cuMemAllocHost_v2, &out, n);
    memset((void *)in, 3, n);
    OKAY(cuStreamBeginCapture_v2, s, 0);
    OKAY(cuMemcpyHtoDAsync_v2, a, (void *)in, n, s);
    OKAY(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, parameters, (void *)0);
    OKAY(cuMemcpyDtoHAsync_v2, (void *)out, a, n, s);
    OKAY(cuStreamEndCapture, s, &g);
    OKAY(cuGraphInstantiateWithFlags, &e, g, (uint64_t)0);
    double ms = 0;
    for (int i = 0; i < 50; i++) {
        OKAY(cuEventRecord, from, s);
        OKAY(cuGraphLaunch, e, s);
        OKAY(cuEventRecord, to, s);
        ms += ms_between();
    }
    line("EXPECT graph 1 1 50 %zu %zu %.6f", n, n, ms);
    return 0;
}

/* Kernels that keep a stream busy for as long as the program's own events say. */
static int kernels(char **args)
{
    prepare(args);
    int64_t f = spin();
    uint64_t cycles = 20000000;
    void *parameters[] = {&cycles};
    Stream s = stream();
    OKAY(cuEventRecord, from, s);
    for (int i = 0; i < 20; i++)
        OKAY(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, parameters, (void *)0);
    OKAY(cuEventRecord, to, s);
    double ms = ms_between();
    rest_ms(20);
    line("EXPECT kernels 20 %.6f", ms);
    return 0;
}

/* The same as a phase, with a copy on another stream meanwhile; then one in which nothing runs. */
static int phases(char **args)
{
    prepare(args);
    int64_t f = spin();
    uint64_t cycles = 20000000;
    void *parameters[] = {&cycles};
    size_t n = 64 * MIB;
    Ptr a, pinned;
    Stream s = stream(), other = stream();
    OKAY(cuMemAlloc_v2, &a, n);
    OKAY(cuMemAllocHost_v2, &pinned, n);
    memset((void *)pinned, 1, n);
    OKAY(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, parameters, (void *)0);
    OKAY(cuCtxSynchronize);
    rest_ms(50);
    memshim_begin("work");
    OKAY(cuEventRecord, from, s);
    for (int i = 0; i < 20; i++)
        OKAY(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, s, parameters, (void *)0);
    OKAY(cuEventRecord, to, s);
    OKAY(cuMemcpyHtoDAsync_v2, a, (void *)pinned, n, other);
    double ms = ms_between();
    OKAY(cuStreamSynchronize, other);
    memshim_end();
    rest_ms(50);
    memshim_begin("rest");
    rest_ms(100);
    memshim_end();
    line("EXPECT phases 20 %.6f", ms);
    return 0;
}

/* Nanoseconds of the host for a small asynchronous copy. */
static int cost(char **args)
{
    prepare(args);
    Ptr a, pinned;
    Stream s = stream();
    OKAY(cuMemAlloc_v2, &a, (size_t)MIB);
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)MIB);
    R (*copy)(Ptr, const void *, size_t, Stream) = address("cuMemcpyHtoDAsync_v2");
    int64_t spent = 0;
    for (int i = 0; i < 100; i++) {
        struct timespec t0, t1;
        clock_gettime(CLOCK_MONOTONIC, &t0);
        for (int k = 0; k < 100; k++)
            copy(a, (void *)pinned, 64, s);
        clock_gettime(CLOCK_MONOTONIC, &t1);
        OKAY(cuStreamSynchronize, s);
        spent += (t1.tv_sec - t0.tv_sec) * 1000000000l + t1.tv_nsec - t0.tv_nsec;
    }
    line("EXPECT cost %ld", spent / 10000);
    return 0;
}

MODES({"transfers", transfers}, {"memory", memory}, {"graphs", graphs}, {"kernels", kernels}, {"phases", phases}, {"cost", cost})
