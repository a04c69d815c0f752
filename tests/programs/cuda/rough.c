/* What programs do to a driver in bad moments. */
#include "driver.h"
#include <link.h>

#define MIB (1ull << 20)
static Stream a;
static Ptr dev, pinned;

static void prepare(char **args)
{
    driver(args);
    context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(16 * MIB));
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)(16 * MIB));
    OKAY(cuStreamCreate, &a, 1);
}
static void copies(int n)
{
    for (int i = 0; i < n; i++)
        OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
}

static int forks(char **args)
{
    prepare(args);
    copies(10);
    pid_t child = fork();
    if (!child) {
        blocks(100, 1000);
        CU(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
        exit(7);
    }
    need(ended(child) == 7, "the child");
    copies(10);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Forks while work is under way: whoever else asks the driver about it must leave no lock of the driver's held in the child. */
static int forks_again(char **args)
{
    prepare(args);
    CU(fake_slow, 3000);
    for (int i = 0; i < 20; i++) {
        copies(2);
        OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, (void *)0);
        pid_t child = fork();
        if (!child) {
            CU(fake_slow, 0);
            CU(cuStreamQuery, a);
            _exit(7);
        }
        need(ended(child) == 7, "the child");
    }
    OKAY(cuCtxSynchronize);
    return 0;
}

/* The same beside a thread that the shim looks for new libraries in: who forks must not take the loader's lock along. */
static _Atomic int over;
static void *allocates(void *context)
{
    OKAY(cuCtxSetCurrent, context);
    while (!over) {
        Ptr block;
        OKAY(cuMemAlloc_v2, &block, (size_t)MIB);
        OKAY(cuMemFree_v2, block);
    }
    return 0;
}
static int counts(struct dl_phdr_info *info, size_t size, void *n)
{
    (void)info, (void)size;
    ++*(int *)n;
    return 0;
}
static int forks_beside(char **args)
{
    prepare(args);
    Context c;
    OKAY(cuCtxGetCurrent, &c);
    pthread_t t;
    pthread_create(&t, 0, allocates, c);
    for (int i = 0; i < 1500; i++) {
        pid_t child = fork();
        if (!child) {
            int n = 0;
            alarm(10);
            dl_iterate_phdr(counts, &n);
            _exit(n > 1 ? 7 : 8);
        }
        need(ended(child) == 7, "the child");
    }
    over = 1;
    pthread_join(t, 0);
    return 0;
}

/* The work of a context that is reset has not been waited for. */
static int reset_in_flight(char **args)
{
    prepare(args);
    copies(50);
    OKAY(cuDevicePrimaryCtxReset_v2, 0);
    context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)MIB);
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)MIB);
    OKAY(cuStreamCreate, &a, 0);
    copies(5);
    OKAY(cuStreamSynchronize, a);
    return 0;
}

/* The same of a context that the program made, and destroys. */
static int destroyed_in_flight(char **args)
{
    prepare(args);
    Context c;
    OKAY(cuCtxCreate_v2, &c, 0, 0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)MIB);
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)MIB);
    OKAY(cuStreamCreate, &a, 1);
    copies(30);
    OKAY(cuCtxDestroy_v2, c);
    context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)MIB);
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)MIB);
    OKAY(cuStreamCreate, &a, 1);
    copies(5);
    OKAY(cuStreamSynchronize, a);
    return 0;
}

/* The same of a green context, whose memory goes on, and of one that is used by two; twice the work of what ends. */
static int green_in_flight(char **args)
{
    prepare(args);
    Context c;
    void *green;
    OKAY(cuGreenCtxCreate, &green, (void *)0, 0, 0);
    OKAY(cuCtxFromGreenCtx, &c, green);
    OKAY(cuCtxSetCurrent, c);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(4 * MIB));
    OKAY(cuStreamCreate, &a, 1);
    copies(10);
    OKAY(cuLaunchKernel, (int64_t)1000000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, (void *)0);
    OKAY(cuGreenCtxDestroy, green);
    rest_ms(30);
    OKAY(cuCtxCreate_v2, &c, 0, 0);
    OKAY(cuCtxAttach, &c, 0);
    OKAY(cuStreamCreate, &a, 1);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(2 * MIB));
    copies(10);
    OKAY(cuCtxDetach, c);
    copies(10);
    OKAY(cuCtxDetach, c);
    rest_ms(30);
    context(0);
    OKAY(cuStreamCreate, &a, 1);
    OKAY(cuMemAlloc_v2, &dev, (size_t)MIB);
    copies(5);
    OKAY(cuStreamSynchronize, a);
    line("%d times in a context that was gone", CU(fake_entered_dead));
    return 0;
}

static int exit_with_work(char **args)
{
    prepare(args);
    copies(50);
    return 0;
}

static void *capturing(void *c)
{
    Stream s;
    OKAY(cuCtxSetCurrent, c);
    OKAY(cuStreamCreate, &s, 1);
    OKAY(cuStreamBeginCapture_v2, s, 2);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, s);
    return 0;
}
static int threads_leave_captures(char **args)
{
    prepare(args);
    Context c;
    OKAY(cuCtxGetCurrent, &c);
    copies(1);
    OKAY(cuStreamSynchronize, a);
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        pthread_create(&t, 0, capturing, c);
        pthread_join(t, 0);
    }
    copies(9);
    OKAY(cuStreamSynchronize, a);
    return 0;
}

static void kernels(Stream s, int n)
{
    for (int i = 0; i < n; i++)
        OKAY(cuLaunchKernel, (int64_t)1000000, 1, 1, 1, 1, 1, 1, 0, s, (void *)0, (void *)0);
}
static void small_copies(int n)
{
    R (*copy)(Ptr, const void *, size_t, Stream) = address("cuMemcpyHtoDAsync_v2");
    R (*wait)(Stream) = address("cuStreamSynchronize");
    for (int i = 0; i < n; i++) {
        need(!copy(dev, (void *)pinned, 16, a), "copy");
        if (i % 500 == 499)
            need(!wait(a), "wait");
    }
}
static int many(char **args)
{
    prepare(args);
    small_copies(100000);
    return 0;
}

/* A million copies: private memory does not grow with them. (The trace does; pages of files are none of it.) */
static int million(char **args)
{
    prepare(args);
    small_copies(100000);
    long before = status_value("RssAnon:");
    small_copies(900000);
    long grown = status_value("RssAnon:") - before;
    need(grown < 4096, "%ld KiB more after 900,000 copies", grown);
    return 0;
}

/* Streams that come and go, each with a kernel; contexts, each with copies in flight: nothing runs out. */
static int comings_and_goings(char **args)
{
    prepare(args);
    for (int i = 0; i < 3000; i++) {
        Stream s;
        OKAY(cuStreamCreate, &s, 1);
        kernels(s, 1);
        OKAY(cuStreamSynchronize, s);
        OKAY(cuStreamDestroy_v2, s);
    }
    for (int i = 0; i < 300; i++) {
        OKAY(cuDevicePrimaryCtxReset_v2, 0);
        context(0);
        OKAY(cuMemAlloc_v2, &dev, (size_t)MIB);
        OKAY(cuMemAllocHost_v2, &pinned, (size_t)MIB);
        OKAY(cuStreamCreate, &a, 1);
        copies(50);
        OKAY(cuStreamSynchronize, a);
    }
    return 0;
}

/* The process ends while kernels run and a graph is being captured. */
static int exit_with_kernels(char **args)
{
    prepare(args);
    Stream s;
    OKAY(cuStreamCreate, &s, 1);
    kernels(a, 20);
    copies(10);
    rest_ms(20);
    OKAY(cuStreamBeginCapture_v2, s, 2);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, s);
    return 0;
}

/* A context goes while kernels run in it and a thread that has ended left a capture open. In the next one streams are looked at as ever. */
static void *capturing(void *c);
static int reset_in_capture(char **args)
{
    prepare(args);
    Context c;
    OKAY(cuCtxGetCurrent, &c);
    pthread_t t;
    pthread_create(&t, 0, capturing, c);
    pthread_join(t, 0);
    kernels(a, 5);
    OKAY(cuDevicePrimaryCtxReset_v2, 0);
    context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)MIB);
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)MIB);
    OKAY(cuStreamCreate, &a, 1);
    kernels(a, 3);
    rest_ms(40);
    OKAY(cuStreamSynchronize, a);
    copies(5);
    OKAY(cuStreamSynchronize, a);
    return 0;
}

/* A primary context that somebody else holds: letting it go waits for nothing, though its work never ends meanwhile. */
static int64_t ms_of_releases(int n)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < n; i++) {
        Context c;
        OKAY(cuDevicePrimaryCtxRetain, &c, 0);
        copies(3);
        OKAY(cuDevicePrimaryCtxRelease_v2, 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
}
static int shared_primary(char **args)
{
    prepare(args);
    int64_t ms = ms_of_releases(5);
    need(ms < 4000, "%ld ms for five of two releases", (long)ms);
    OKAY(cuStreamSynchronize, a);
    /* The same where who holds it was never seen to take it. */
    OKAY(cuDevicePrimaryCtxRelease_v2, 0);
    OKAY(fake_hold_primary, 0);
    Context c;
    OKAY(cuDevicePrimaryCtxRetain, &c, 0);
    OKAY(cuCtxSetCurrent, c);
    OKAY(cuDevicePrimaryCtxRelease_v2, 0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)MIB);
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)MIB);
    OKAY(cuStreamCreate, &a, 1);
    ms = ms_of_releases(5);
    need(ms < 4000, "%ld ms for five of releases beside one", (long)ms);
    OKAY(cuStreamSynchronize, a);
    return 0;
}

/* Killed in the middle of its work: what was done is known. */
static int killed(char **args)
{
    prepare(args);
    copies(30);
    OKAY(cuStreamSynchronize, a);
    OKAY(cuMemFree_v2, dev);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(2 * MIB));
    copies(5);
    kill(getpid(), SIGKILL);
    return 0;
}

/* For measuring by hand: nanoseconds of the thread's CPU for a copy that the driver does in no time. */
static int cost(char **args)
{
    prepare(args);
    R (*copy)(Ptr, const void *, size_t, Stream) = address("cuMemcpyHtoDAsync_v2");
    R (*wait)(Stream) = address("cuStreamSynchronize");
    struct timespec from, to;
    int64_t spent = 0;
    for (int i = 0; i < 400; i++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        for (int k = 0; k < 500; k++)
            copy(dev, (void *)pinned, 16, a);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        spent += (to.tv_sec - from.tv_sec) * 1000000000l + to.tv_nsec - from.tv_nsec;
        wait(a);
        rest_ms(2);
    }
    line("%ld ns a copy", spent / 200000);
    return 0;
}

/* For counting instructions: twenty times so many copies, each time when what they need has been made and is free again. */
typedef R (*Copy)(Ptr, const void *, size_t, Stream);
__attribute__((noinline)) static void counted(Copy copy, int n)
{
    for (int i = 0; i < n; i++)
        copy(dev, (void *)pinned, 16, a);
}
static int turns(char **args)
{
    prepare(args);
    Copy copy = (Copy)address("cuMemcpyHtoDAsync_v2");
    R (*wait)(Stream) = address("cuStreamSynchronize");
    for (int i = -1; i < 20; i++) {
        if (i < 0)
            for (int k = 0; k < 1000; k++)
                copy(dev, (void *)pinned, 16, a);
        else
            counted(copy, atoi(args[1]));
        wait(a);
        rest_ms(30);
    }
    return 0;
}

/* The main thread leaves by pthread_exit: the process ends with the last thread of its own. */
static void *last(void *c)
{
    OKAY(cuCtxSetCurrent, c);
    rest_ms(20);
    copies(1);
    OKAY(cuStreamSynchronize, a);
    return 0;
}
static int main_leaves(char **args)
{
    prepare(args);
    copies(1);
    Context c;
    OKAY(cuCtxGetCurrent, &c);
    pthread_t t;
    pthread_create(&t, 0, last, c);
    pthread_exit(0);
}

MODES({"forks", forks}, {"forks_again", forks_again}, {"forks_beside", forks_beside}, {"reset_in_flight", reset_in_flight}, {"destroyed_in_flight", destroyed_in_flight}, {"green_in_flight", green_in_flight}, {"exit_with_work", exit_with_work}, {"threads_leave_captures", threads_leave_captures},
      {"many", many}, {"million", million}, {"comings_and_goings", comings_and_goings}, {"exit_with_kernels", exit_with_kernels}, {"reset_in_capture", reset_in_capture}, {"shared_primary", shared_primary}, {"killed", killed}, {"cost", cost}, {"turns", turns}, {"main_leaves", main_leaves})
