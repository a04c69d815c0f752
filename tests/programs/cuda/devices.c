/* Three devices in one process: what is asked of one while another one's context is current, and what passes between them. */
#include "copies.h"

#define MIB (1ull << 20)
static Context on[3];
static Ptr mem[3], more;
static Stream streams[3];

/* A context on each device, with a block of 1 MiB and a stream; of the second device one block more. The first device's is current. */
static void prepare_all(char **args)
{
    driver(args);
    for (int d = 0; d < 3; d++) {
        OKAY(cuCtxCreate_v2, &on[d], 0, d);
        OKAY(cuMemAlloc_v2, &mem[d], (size_t)MIB);
        OKAY(cuStreamCreate, &streams[d], 1);
        if (d == 1)
            OKAY(cuMemAlloc_v2, &more, (size_t)(300 * MIB));
    }
    OKAY(cuCtxSetCurrent, on[0]);
}

/* Copies of the second device's memory, at each of which it is time for a look: the driver speaks of the first one's. */
static int looks(char **args)
{
    prepare_all(args);
    for (int i = 0; i < 10; i++) {
        rest_ms(30);
        OKAY(cuMemsetD8_v2, mem[1], 1, (size_t)1000);
        OKAY(cuMemcpyDtoD_v2, more, mem[1], (size_t)2000);
    }
    return 0;
}

/* The first context's own stream moves memory of two devices, and the second one's stream is used from there too. */
static int of_streams(char **args)
{
    prepare_all(args);
    OKAY(cuMemsetD8_v2, mem[1], 1, (size_t)3000);
    OKAY(cuMemsetD8_v2, mem[0], 1, (size_t)1500);
    OKAY(cuMemsetD8Async, mem[0], 1, (size_t)6000, streams[1]); /* an event of ours is the current context's, and not its */
    OKAY(cuCtxSetCurrent, on[1]);
    OKAY(cuMemsetD8Async, mem[1], 1, (size_t)9000, streams[1]);
    OKAY(cuMemsetD8_v2, mem[1], 1, (size_t)4500);
    OKAY(cuCtxSynchronize);
    return 0;
}

struct launch { int64_t function; unsigned dimensions[6], shared; Stream s; void **parameters; };

/* Launches on three devices at once: on streams of which one has worked before, in its own context, and one will. */
static int kernels(char **args)
{
    prepare_all(args);
    struct launch all[3] = {{1000, .s = streams[0]}, {2000, .s = streams[1]}, {3000, .s = streams[2]}};
    OKAY(cuCtxSetCurrent, on[1]);
    OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, streams[1], (void *)0, (void *)0);
    OKAY(cuCtxSetCurrent, on[0]);
    OKAY(cuLaunchCooperativeKernelMultiDevice, all, 3u, 0u);
    OKAY(cuLaunchCooperativeKernelMultiDevice, all + 1, 2u, 0u);
    OKAY(cuCtxSetCurrent, on[2]);
    OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, streams[2], (void *)0, (void *)0);
    for (int d = 0; d < 3; d++) {
        OKAY(cuCtxSetCurrent, on[d]);
        OKAY(cuCtxSynchronize);
    }
    return 0;
}

/* Copies between contexts, in which the current one's device has a part or none. */
static int peers(char **args)
{
    prepare_all(args);
    struct volume v = {.from_type = 2, .from_device = mem[1], .from_context = on[1], .to_type = 2, .to_device = more, .to_context = on[1], .w = 400, .h = 10, .d = 1};
    OKAY(cuMemcpyPeer, more, on[1], mem[1], on[1], (size_t)1000);
    OKAY(cuMemcpyPeerAsync, more, on[1], mem[1], on[1], (size_t)2000, (Stream)0);
    OKAY(cuMemcpy3DPeer, &v);
    OKAY(cuMemcpyPeer, mem[2], on[2], mem[1], on[1], (size_t)8000);
    OKAY(cuMemcpyPeer, mem[1], on[1], mem[2], on[2], (size_t)16000);
    OKAY(cuMemcpyPeer, mem[1], on[1], mem[0], on[0], (size_t)32000);
    OKAY(cuMemcpyDtoD_v2, mem[2], mem[1], (size_t)64000);
    return 0;
}

/* Batches whose copies are of several devices. */
static int batches_of_all(char **args)
{
    static char heap_of_program[8000];
    prepare_all(args);
    Ptr host = (Ptr)heap_of_program;
    Ptr to[] = {mem[0], mem[1], more, host, mem[2]}, from[] = {host, host, mem[1], mem[1], mem[1]};
    size_t n[] = {1000, 2000, 4000, 8000, 16000};
    OKAY(cuMemcpyBatchAsync_v2, to, from, n, (size_t)5, (void *)0, (void *)0, (size_t)0, streams[0]);
    OKAY(cuMemcpyBatchAsync_v2, to + 2, from + 2, n + 2, (size_t)1, (void *)0, (void *)0, (size_t)0, streams[0]);
    struct operation o[2] = {{.from = {1, {.pointer = {mem[1]}}}, .to = {1, {.pointer = {more}}}, .w = 50, .h = 100, .d = 1}};
    o[1] = o[0], o[1].from.of.pointer.at = o[1].to.of.pointer.at = mem[0];
    OKAY(cuMemcpy3DBatchAsync_v2, (size_t)2, o, (uint64_t)0, streams[0]);
    OKAY(cuMemcpyBatchAsync_v2, (void *)0, (void *)0, (void *)0, (size_t)0, (void *)0, (void *)0, (size_t)0, streams[0]);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Managed memory of the second device goes to the third, and back to the host. */
static int prefetches_of_all(char **args)
{
    prepare_all(args);
    Ptr pages[4];
    OKAY(cuCtxSetCurrent, on[1]);
    OKAY(cuMemAllocManaged, &pages[0], (size_t)MIB, 1);
    OKAY(cuCtxSetCurrent, on[0]);
    for (int i = 1; i < 4; i++)
        pages[i] = pages[0] + i * 65536;
    Location to[] = {{1, 2}, {1, 1}, {2, 0}};
    size_t n[] = {100, 200, 400, 800}, first[] = {0, 1, 3};
    OKAY(cuMemPrefetchAsync, pages[0], (size_t)1000, 2, streams[0]);
    OKAY(cuMemPrefetchAsync, pages[0], (size_t)2000, -1, streams[0]);
    OKAY(cuMemPrefetchAsync_v2, pages[0], (size_t)4000, to[1], 0, streams[0]);
    OKAY(cuMemPrefetchAsync_v2, pages[0], (size_t)8000, to[2], 0, streams[0]);
    OKAY(cuMemPrefetchBatchAsync, pages, n, (size_t)4, to, first, (size_t)3, (uint64_t)0, streams[0]);
    OKAY(cuCtxSynchronize);
    return 0;
}

MODES({"looks", looks}, {"of_streams", of_streams}, {"kernels", kernels}, {"peers", peers}, {"batches", batches_of_all}, {"prefetches", prefetches_of_all})
