/* Copies on the driver of our own: see copies.h. */
#include "copies.h"

static int all(char **args)
{
    prepare(args);
    wide_forms();
    OKAY(cuCtxSynchronize);
    say_sums();
    return 0;
}

static int narrow(char **args)
{
    prepare(args);
    narrow_forms();
    OKAY(cuCtxSynchronize);
    say_sums();
    return 0;
}

/* A batch of both directions: bytes are known, the time of each is not. */
static int mixed(char **args)
{
    prepare(args);
    Ptr to[2] = {dev, pinned}, from[2] = {pinned, dev2};
    size_t n[2] = {100000, 200000};
    OKAY(cuMemcpyBatchAsync_v2, to, from, n, (size_t)2, (void *)0, (void *)0, (size_t)0, stream);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Copies that the driver refuses move nothing; what it says comes through, errno too. */
static int refused(char **args)
{
    prepare(args);
    CU(fake_fail, "cuMemcpyHtoDAsync", 719, 1);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)100000, stream);
    errno = 5;
    R r = CU(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)100000, stream);
    need(r == 719 && errno == 77, "%d, errno %d", r, errno);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)100000, stream);
    CU(fake_fail, "cuMemAlloc", 2, 0);
    Ptr p = 1;
    r = CU(cuMemAlloc_v2, &p, (size_t)4096);
    need(r == 2 && p == 1, "%d", r);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Copies of 64, 128 … 1344 KiB: each has a rate of its own, since each takes its latency. */
static int rates(char **args)
{
    prepare(args);
    for (size_t i = 1; i <= 21; i++) {
        OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, i * 65536, stream);
        OKAY(cuMemcpyDtoHAsync_v2, heap, dev, i * 65536, stream);
    }
    OKAY(cuCtxSynchronize);
    return 0;
}

/* What could be quicker: the same bytes from pageable memory and from pinned, and 2,500 small copies back. */
static int advice(char **args)
{
    prepare(args);
    for (int i = 0; i < 10; i++) {
        OKAY(cuMemcpyHtoDAsync_v2, dev, heap, (size_t)3000000, stream);
        OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)3000000, stream);
    }
    for (int i = 0; i < 2500; i++) {
        OKAY(cuMemcpyDtoHAsync_v2, pinned, dev, (size_t)60000, stream);
        if (i % 500 == 499)
            OKAY(cuStreamSynchronize, stream);
    }
    OKAY(cuMemcpyDtoHAsync_v2, pinned, dev, (size_t)65536, stream);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Thirty copies from pageable memory, and none from pinned. */
static int pageable(char **args)
{
    prepare(args);
    for (int i = 0; i < 30; i++)
        OKAY(cuMemcpyHtoDAsync_v2, dev, heap, (size_t)3000000, stream);
    OKAY(cuCtxSynchronize);
    return 0;
}

MODES({"pageable", pageable}, {"rates", rates}, {"advice", advice}, {"all", all}, {"narrow", narrow}, {"mixed", mixed}, {"refused", refused})
