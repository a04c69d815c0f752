/* Streams, kernels and graphs on the driver of our own. */
#include "driver.h"

#define MIB (1ull << 20)
struct config { unsigned gx, gy, gz, bx, by, bz, shared; Stream s; void *attributes; unsigned n; };
static Stream a, b;
static Ptr dev, pinned;

static void prepare(char **args)
{
    driver(args);
    context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(64 * MIB));
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)(64 * MIB));
    OKAY(cuStreamCreate, &a, 1);
    OKAY(cuStreamCreateWithPriority, &b, 1, 0);
}

/* 10 MB down on one stream takes 402 µs, 10 MB up on another 502: together for 402. Then 5 MB alone: 202. */
static int overlap(char **args)
{
    prepare(args);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)10000000, a);
    OKAY(cuMemcpyDtoHAsync_v2, pinned + 16 * MIB, dev + 16 * MIB, (size_t)10000000, b);
    OKAY(cuStreamSynchronize, a);
    OKAY(cuStreamSynchronize, b);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)5000000, a);
    OKAY(cuCtxSynchronize);
    OKAY(cuStreamDestroy_v2, b);
    return 0;
}

/* The kernel runs for 50 ms that the host spends on a nap. */
static int kernels(char **args)
{
    prepare(args);
    uint64_t extra = 0x5eed;
    struct config c = {.s = b};
    for (int i = 0; i < 5; i++)
        OKAY(cuLaunchKernel, (int64_t)1000000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, &extra);
    OKAY(cuLaunchKernelEx, &c, (int64_t)1000, (void *)0, (void *)0);
    OKAY(cuLaunchCooperativeKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, b, (void *)0);
    OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, (Stream)0, (void *)0, &extra);
    OKAY(cuLaunchKernel_ptsz, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, (Stream)0, (void *)0, &extra);
    extra = 1;
    need(CU(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, &extra) == 1, "an argument on the stack");
    rest_ms(50);
    OKAY(cuCtxSynchronize);
    rest_ms(10);
    return 0;
}

static Graph captured(int copies)
{
    Graph g;
    OKAY(cuStreamBeginCapture_v2, a, 0);
    for (int i = 0; i < copies; i++)
        OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
    OKAY(cuMemcpyDtoHAsync_v2, pinned, dev, (size_t)(MIB / 2), a);
    OKAY(cuMemsetD32Async, dev, 0, (size_t)1024, a);
    OKAY(cuLaunchKernel, (int64_t)5000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, (void *)0);
    OKAY(cuStreamEndCapture, a, &g);
    return g;
}

/* Three captures, two executable graphs, one update; 20 and 4 launches. */
static int graphs(char **args)
{
    prepare(args);
    Graph g = captured(2), h = captured(3), unused = captured(1), clone, made;
    Exec e, f;
    OKAY(cuGraphInstantiateWithFlags, &e, g, (uint64_t)0);
    OKAY(cuGraphUpload, e, a);
    for (int i = 0; i < 16; i++)
        OKAY(cuGraphLaunch, e, a);
    OKAY(cuGraphExecUpdate_v2, e, h, (void *)0);
    for (int i = 0; i < 4; i++)
        OKAY(cuGraphLaunch, e, a);
    OKAY(cuGraphExecKernelNodeSetParams_v2, e, (void *)1, (void *)1);
    OKAY(cuGraphClone, &clone, g);
    OKAY(cuGraphCreate, &made, 0);
    uint64_t copy[25] = {0};
    copy[22] = 1000, copy[23] = 10, copy[24] = 2;
    struct { Ptr at; size_t pitch; unsigned value, element; size_t w, h; } set = {dev, 0, 0, 4, 256, 1};
    void *node;
    OKAY(cuGraphAddMemcpyNode, &node, made, (void *)0, (size_t)0, copy, (Context)0);
    OKAY(cuGraphAddMemsetNode, &node, made, (void *)0, (size_t)0, &set, (Context)0);
    OKAY(cuGraphAddChildGraphNode, &node, made, (void *)0, (size_t)0, clone);
    struct { int type, reserved[3]; union { struct { int flags, reserved; Context c; uint64_t p[25]; } copy; Graph child; } of; } any = {1};
    any.of.copy.p[4] = 1, any.of.copy.p[5] = pinned, any.of.copy.p[15] = 2, any.of.copy.p[17] = dev;
    any.of.copy.p[22] = 3000, any.of.copy.p[23] = any.of.copy.p[24] = 1;
    OKAY(cuGraphAddNode, &node, made, (void *)0, (size_t)0, &any);
    OKAY(cuGraphAddNode_v2, &node, made, (void *)0, (void *)0, (size_t)0, &any);
    OKAY(cuGraphAddNode_v3, &node, made, (void *)0, (void *)0, (size_t)0, &any);
    OKAY(cuGraphInstantiate_v2, &f, made, (void *)0, (char *)0, (size_t)0);
    for (int i = 0; i < 4; i++)
        OKAY(cuGraphLaunch, f, b);
    OKAY(cuCtxSynchronize);
    OKAY(cuGraphExecDestroy, f);
    OKAY(cuGraphDestroy, unused);
    OKAY(cuGraphDestroy, g);
    return 0;
}

/* A node whose body may copy: in a graph that does so itself, in one that does nothing else, and in a child of a third. */
static int conditional(char **args)
{
    prepare(args);
    Graph g = captured(1), only, outer;
    Exec e;
    OKAY(cuGraphCreate, &only, 0);
    OKAY(cuGraphCreate, &outer, 0);
    void *node;
    struct { int type, reserved[3]; union { Graph child; char room[232]; } of; } body = {13}, child = {4, .of.child = only};
    const Graph all[] = {g, only, outer, captured(1)};
    OKAY(cuGraphAddNode, &node, g, (void *)0, (size_t)0, &body);
    OKAY(cuGraphAddNode_v2, &node, only, (void *)0, (void *)0, (size_t)0, &body);
    OKAY(cuGraphAddNode_v3, &node, outer, (void *)0, (void *)0, (size_t)0, &child);
    for (int i = 0; i < 4; i++) {
        OKAY(cuGraphInstantiateWithFlags, &e, all[i], (uint64_t)0);
        OKAY(cuGraphLaunch, e, a);
    }
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Graphs whose nodes are changed: which launch copied what, the driver alone knows. A node's handle is its type. */
static int changed_nodes(char **args)
{
    prepare(args);
    void *const copies = (void *)1, *const sets = (void *)2, *const runs = (void *)0, *const child = (void *)4;
    struct { int type, reserved[3]; char of[232]; } kernel = {0}, copy = {1};
    uint64_t larger[25] = {0};
    larger[22] = 1000000, larger[23] = larger[24] = 1;
    /* Each of the first six is changed in a way that can change what is copied, each of the others in one that cannot. */
    Exec e[10];
    for (int i = 0; i < 10; i++) {
        Graph g = captured(1);
        OKAY(cuGraphInstantiateWithFlags, &e[i], g, (uint64_t)0);
        OKAY(cuGraphDestroy, g);
    }
    OKAY(cuGraphLaunch, e[8], a);
    OKAY(cuGraphExecMemcpyNodeSetParams, e[0], copies, larger, (Context)0);
    OKAY(cuGraphExecMemsetNodeSetParams, e[1], sets, larger, (Context)0);
    OKAY(cuGraphExecChildGraphNodeSetParams, e[2], child, (Graph)0);
    OKAY(cuGraphExecNodeSetParams, e[3], copies, &copy);
    OKAY(cuGraphNodeSetEnabled, e[4], copies, 0);
    OKAY(cuGraphNodeSetEnabled, e[5], child, 0);
    OKAY(cuGraphExecKernelNodeSetParams_v2, e[6], runs, (void *)1);
    OKAY(cuGraphExecNodeSetParams, e[7], runs, &kernel);
    OKAY(cuGraphNodeSetEnabled, e[8], runs, 0);
    Graph new = captured(2);
    OKAY(cuGraphExecMemcpyNodeSetParams, e[9], copies, larger, (Context)0);
    OKAY(cuGraphExecUpdate_v2, e[9], new, (void *)0);
    if (args[1] && !strcmp(args[1], "launched"))
        OKAY(cuGraphLaunch, e[0], a);
    OKAY(cuCtxSynchronize);
    return 0;
}
static int changed_and_launched(char **args)
{
    char *both[] = {args[0], "launched", 0};
    return changed_nodes(both);
}

/* The same of graphs before they are instantiated: way by way, then a kernel's. */
static int changed_templates(char **args)
{
    prepare(args);
    void *const copies = (void *)1, *const sets = (void *)2, *const runs = (void *)0;
    struct { int type, reserved[3]; char of[232]; } kernel = {0}, copy = {1};
    uint64_t larger[25] = {0};
    for (int way = 0; way < 8; way++) {
        Graph g = captured(1), clone, parent;
        Exec e;
        switch (way) {
        case 0: OKAY(cuGraphMemcpyNodeSetParams, copies, larger); break;
        case 1: OKAY(cuGraphMemsetNodeSetParams, sets, larger); break;
        case 2: OKAY(cuGraphNodeSetParams, copies, &copy); break;
        case 3: OKAY(cuGraphNodeSetParams_v2, copies, &copy); break;
        case 4: OKAY(cuGraphDestroyNode, copies); break;
        case 5: OKAY(cuGraphNodeSetParams, runs, &kernel); break;
        case 6: OKAY(cuGraphDestroyNode, runs); break;
        case 7: /* the clone of one that was changed, as a child */
            OKAY(cuGraphDestroyNode, copies);
            OKAY(cuGraphClone, &clone, g);
            OKAY(cuGraphCreate, &parent, 0);
            void *node;
            OKAY(cuGraphAddChildGraphNode, &node, parent, (void *)0, (size_t)0, clone);
            OKAY(cuGraphDestroy, g);
            OKAY(cuGraphDestroy, clone);
            g = parent;
        }
        OKAY(cuGraphInstantiateWithFlags, &e, g, (uint64_t)0);
        OKAY(cuGraphDestroy, g);
    }
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Memory of graphs: 8 MiB by a capture, which frees it again, 4 + 2 MiB by nodes of which the 2 are freed by the program. It is no memory while
   the graph is none but a plan. */
struct alloc_node { int type, handles; Location at; void *security; size_t most; char reserved[56]; const void *access; size_t accesses, bytes; Ptr address; };
static int graph_memory(char **args)
{
    prepare(args);
    Graph g, m;
    Exec e, f;
    Ptr p;
    void *node;
    OKAY(cuStreamBeginCapture_v2, a, 0);
    OKAY(cuMemAllocAsync, &p, (size_t)(8 * MIB), a);
    OKAY(cuMemsetD32Async, p, 0, (size_t)1024, a);
    OKAY(cuMemFreeAsync, p, a);
    OKAY(cuStreamEndCapture, a, &g);
    OKAY(cuGraphCreate, &m, 0);
    struct alloc_node alloc = {.type = 1, .at = {1, 0}, .bytes = 4 * MIB};
    OKAY(cuGraphAddMemAllocNode, &node, m, (void *)0, (size_t)0, &alloc);
    OKAY(cuGraphAddMemFreeNode, &node, m, (void *)0, (size_t)0, alloc.address);
    struct { int type, reserved[3]; union { struct alloc_node alloc; char room[232]; } of; } any = {.type = 10, .of.alloc = {.type = 1, .at = {1, 0}, .bytes = 2 * MIB}};
    OKAY(cuGraphAddNode_v3, &node, m, (void *)0, (void *)0, (size_t)0, &any);
    need(any.of.alloc.address != 0, "an address");
    OKAY(cuGraphInstantiateWithFlags, &e, g, (uint64_t)0);
    for (int i = 0; i < 3; i++)
        OKAY(cuGraphLaunch, e, a);
    OKAY(cuGraphInstantiateWithFlags, &f, m, (uint64_t)0);
    OKAY(cuGraphLaunch, f, a);
    OKAY(cuCtxSynchronize);
    OKAY(cuGraphExecDestroy, e);
    OKAY(cuMemFreeAsync, any.of.alloc.address, a);
    OKAY(cuMemAllocAsync, &p, (size_t)MIB, a);
    OKAY(cuMemFreeAsync, p, a);
    OKAY(cuCtxSynchronize);
    OKAY(cuGraphExecDestroy, f);
    OKAY(cuGraphInstantiateWithFlags, &e, g, (uint64_t)0);
    return 0;
}

/* Nobody's questions spoil a capture: copies of another thread are in flight all the while. */
static volatile int stop;
static void *copying(void *c)
{
    OKAY(cuCtxSetCurrent, c);
    while (!stop) {
        for (int i = 0; i < 20; i++)
            OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, b);
        OKAY(cuLaunchKernel, (int64_t)100000, 1, 1, 1, 1, 1, 1, 0, b, (void *)0, (void *)0);
        OKAY(cuStreamSynchronize, b);
        rest_ms(1);
    }
    return 0;
}
static int captures(char **args)
{
    prepare(args);
    Context c;
    OKAY(cuCtxGetCurrent, &c);
    pthread_t t;
    pthread_create(&t, 0, copying, c);
    for (int i = 0; i < 40; i++) {
        Graph g;
        OKAY(cuStreamBeginCapture_v2, a, 0);
        OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
        rest_ms(3);
        OKAY(cuStreamEndCapture, a, &g);
        OKAY(cuGraphDestroy, g);
    }
    stop = 1;
    pthread_join(t, 0);
    Graph g;
    OKAY(cuStreamBeginCapture_v2, a, 0);
    need(CU(cuMemcpyHtoD_v2, dev, pinned, (size_t)MIB) == 900 || 1, "a synchronous copy is not for a capture");
    need(CU(cuStreamSynchronize, a) == 900, "to wait for a capturing stream");
    need(CU(cuStreamEndCapture, a, &g) == 901, "then it is spoiled");
    need(CU(cuStreamEndCapture, a, &g) == 903, "and over");
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Captures that begin in rarer ways, one of them past every hook, on a stream that is busy all the while. */
static int rare_captures(char **args)
{
    prepare(args);
    Graph g, h;
    OKAY(cuLaunchKernel, (int64_t)1000000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, (void *)0);
    rest_ms(20);
    OKAY(fake_begin_capture, a, 2);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
    rest_ms(20);
    OKAY(cuStreamEndCapture, a, &g);
    OKAY(cuStreamBeginRecaptureToGraph, a, 2, g, (void *)0, (void *)0);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
    rest_ms(20);
    OKAY(cuStreamEndCapture, a, &h);
    need(g == h, "the same graph");
    OKAY(cuStreamBeginCaptureToCig, a, (void *)0);
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)MIB, a);
    rest_ms(20);
    OKAY(cuStreamEndCaptureToCig, a);
    Exec e;
    OKAY(cuGraphInstantiateWithFlags, &e, g, (uint64_t)0);
    OKAY(cuGraphLaunch, e, a);
    OKAY(cuStreamSynchronize, a);
    return 0;
}

/* The default stream of each thread is its own. */
static void *own(void *c)
{
    OKAY(cuCtxSetCurrent, c);
    for (int i = 0; i < 3; i++)
        OKAY(cuMemcpyHtoDAsync_v2_ptsz, dev, pinned, (size_t)1000000, (Stream)0);
    OKAY(cuStreamSynchronize_ptsz, (Stream)0);
    return 0;
}
static int per_thread(char **args)
{
    prepare(args);
    Context c;
    OKAY(cuCtxGetCurrent, &c);
    own(c);
    pthread_t t[2];
    for (int i = 0; i < 2; i++) {
        pthread_create(&t[i], 0, own, c);
        pthread_join(t[i], 0);
    }
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)1000000, (Stream)0);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* Each of more streams than one look asks has a kernel that runs until the host, after a nap, waits for them. */
static int many_busy(char **args)
{
    prepare(args);
    Stream s[100];
    for (int i = 0; i < 100; i++) {
        OKAY(cuStreamCreate, &s[i], 1);
        OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, s[i], (void *)0, (void *)0);
    }
    rest_ms(200);
    OKAY(cuCtxSynchronize);
    return 0;
}

/* While a graph is captured, for longer than looks can be apart, a kernel runs on another stream. */
static int long_capture(char **args)
{
    prepare(args);
    Graph g;
    OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, (void *)0);
    rest_ms(50);
    OKAY(cuStreamBeginCapture_v2, b, 2);
    rest_ms(400);
    OKAY(cuStreamEndCapture, b, &g);
    rest_ms(50);
    OKAY(cuStreamSynchronize, a);
    rest_ms(10);
    return 0;
}

/* A stream goes while its kernel runs, another one when its kernel is done. */
static int destroyed_at_work(char **args)
{
    prepare(args);
    OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, (void *)0);
    OKAY(cuLaunchKernel, (int64_t)2000, 1, 1, 1, 1, 1, 1, 0, b, (void *)0, (void *)0);
    OKAY(cuLaunchKernel, (int64_t)2000, 1, 1, 1, 1, 1, 1, 0, b, (void *)0, (void *)0);
    rest_ms(50);
    OKAY(cuStreamSynchronize, a);
    rest_ms(10);
    OKAY(cuStreamDestroy_v2, a);
    OKAY(cuStreamDestroy_v2, b);
    return 0;
}

/* Nothing but launches and waits, while somebody else takes memory of the device. */
static int launches_alone(char **args)
{
    prepare(args);
    for (int i = 0; i < 40; i++) {
        OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, a, (void *)0, (void *)0);
        if (i % 2)
            OKAY(cuStreamSynchronize, a);
        rest_ms(10);
    }
    return 0;
}

MODES({"overlap", overlap}, {"many_busy", many_busy}, {"long_capture", long_capture}, {"destroyed_at_work", destroyed_at_work}, {"launches_alone", launches_alone}, {"kernels", kernels}, {"graphs", graphs}, {"conditional", conditional}, {"changed_nodes", changed_nodes}, {"changed_and_launched", changed_and_launched}, {"changed_templates", changed_templates}, {"captures", captures}, {"rare_captures", rare_captures}, {"graph_memory", graph_memory}, {"per_thread", per_thread})
