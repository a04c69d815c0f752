/* One schedule that calls every hooked symbol of the driver, by its name at least once. Each call is made twice: first it is told to fail, and
   must give back the code and the errno that the driver left; then it must succeed. What a driver is too old for is left out, and must not be
   there. What there is of memory at most and at the end, the sums of copies, and how often each symbol was called are said at the end. */
#include "../facts.h"

#define MIB (1ull << 20)
#define OKAY(symbol, ...)                                                                                                                            \
    ({                                                                                                                                               \
        R (*f_)() = FUNCTION(symbol);                                                                                                                \
        int code_ = f_ ? begin_rehearsal(#symbol) : 0;                                                                                               \
        if (code_) {                                                                                                                                 \
            errno = 5;                                                                                                                               \
            R r_ = f_(__VA_ARGS__);                                                                                                                  \
            int left_ = errno;                                                                                                                       \
            need(r_ == code_ && left_ == 77, "line %d: " #symbol " was to fail with %d: %d, errno %d", __LINE__, code_, r_, left_);                  \
        }                                                                                                                                            \
        rehearsing = 0;                                                                                                                              \
        R r_ = f_ ? f_(__VA_ARGS__) : 0;                                                                                                             \
        need(r_ == 0, "line %d: " #symbol ": %d", __LINE__, r_);                                                                                     \
    })
static int begin_rehearsal(const char *symbol);
static int rehearsing;
#include "copies.h"

/* How often each hooked symbol was called, as often to succeed as to fail. */
static const struct { const char *symbol, *name; } hooked[] = {
#define X(symbol, name, version, per_thread) {#symbol, name},
#include "abi.inc"
#undef X
    {"cuInit", "cuInit"}, {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"},
};
#define HOOKED (sizeof hooked / sizeof *hooked)
static int calls[HOOKED];

static int begin_rehearsal(const char *symbol)
{
    for (unsigned i = 0; i < HOOKED; i++)
        if (!strcmp(hooked[i].symbol, symbol)) {
            calls[i]++;
            rehearsing = 1;
            CU(fake_fail, hooked[i].name, 700 + i % 90, 0);
            return 700 + i % 90;
        }
    return 0;
}

/* What is held: on device 0, on device 1, page-locked. */
enum { PINNED_MEMORY = 2 };
static int64_t held[3], most[3];
static int allocs[2], frees[2];
static void gain(int where, int64_t bytes)
{
    held[where] += bytes;
    if (held[where] > most[where])
        most[where] = held[where];
    if (where < 2)
        allocs[where]++;
}
static void lose(int where, int64_t bytes)
{
    held[where] -= bytes;
    if (where < 2)
        frees[where]++;
}

static void blocks_and_frees(void)
{
    Ptr32 low, low_pitched;
    Ptr a, pitched, shared, p[4];
    size_t pitch, free_, total_;
    unsigned low_pitch, low_free, low_total;
    OKAY(cuMemAlloc, &low, (unsigned)MIB), gain(0, MIB);
    OKAY(cuMemAlloc_v2, &a, (size_t)(2 * MIB)), gain(0, 2 * MIB);
    OKAY(cuMemAllocPitch, &low_pitched, &low_pitch, 1000, 100, 4), gain(0, 102400);
    OKAY(cuMemAllocPitch_v2, &pitched, &pitch, (size_t)1000, (size_t)200, 4), gain(0, 204800);
    OKAY(cuMemAllocManaged, &shared, (size_t)(3 * MIB), 1), gain(0, 3 * MIB);
    OKAY(cuMemGetInfo, &low_free, &low_total);
    OKAY(cuMemGetInfo_v2, &free_, &total_);
    OKAY(cuMemFree, low), lose(0, MIB);
    OKAY(cuMemFree, low_pitched), lose(0, 102400);
    OKAY(cuMemFree_v2, a), lose(0, 2 * MIB);
    OKAY(cuMemFree_v2, pitched), lose(0, 204800);
    OKAY(cuMemFree_v2, shared), lose(0, 3 * MIB);
    OKAY(cuMemAllocHost, &p[0], (unsigned)MIB), gain(2, MIB);
    OKAY(cuMemAllocHost_v2, &p[1], (size_t)(2 * MIB)), gain(2, 2 * MIB);
    OKAY(cuMemHostAlloc, &p[2], (size_t)(4 * MIB), 0), gain(2, 4 * MIB);
    char *own = map_anon(2 * MIB);
    OKAY(cuMemHostRegister, (Ptr)own, (unsigned)MIB, 0), gain(2, MIB);
    OKAY(cuMemHostRegister_v2, (Ptr)own + MIB, (size_t)MIB, 0), gain(2, MIB);
    OKAY(cuMemHostUnregister, (Ptr)own), lose(2, MIB);
    OKAY(cuMemHostUnregister, (Ptr)own + MIB), lose(2, MIB);
    OKAY(cuMemFreeHost, p[0]), lose(2, MIB);
    OKAY(cuMemFreeHost, p[1]), lose(2, 2 * MIB);
    OKAY(cuMemFreeHost, p[2]), lose(2, 4 * MIB);
}

/* Blocks of pools are freed by every kind of free, as the driver allows. */
static void pools(void)
{
    const int on_device[8] = {1, 0, 1, 0};
    Pool pool;
    Ptr p[4], plain;
    uint64_t none = 0;
    OKAY(cuMemPoolCreate, &pool, on_device);
    OKAY(cuMemAllocAsync, &p[0], (size_t)MIB, stream), gain(0, MIB);
    OKAY(cuMemAllocAsync_ptsz, &p[1], (size_t)(2 * MIB), (Stream)0), gain(0, 2 * MIB);
    OKAY(cuMemAllocFromPoolAsync, &p[2], (size_t)(3 * MIB), pool, stream), gain(0, 3 * MIB);
    OKAY(cuMemAllocFromPoolAsync_ptsz, &p[3], (size_t)(4 * MIB), pool, (Stream)0), gain(0, 4 * MIB);
    OKAY(cuMemAlloc_v2, &plain, (size_t)MIB), gain(0, MIB);
    OKAY(cuMemPoolSetAttribute, pool, 8, &none);
    OKAY(cuMemFreeAsync, p[0], stream), lose(0, MIB);
    OKAY(cuMemFreeAsync_ptsz, p[1], (Stream)0), lose(0, 2 * MIB);
    OKAY(cuMemFreeAsync, p[2], stream), lose(0, 3 * MIB);
    OKAY(cuMemFree_v2, p[3]), lose(0, 4 * MIB);
    OKAY(cuMemFreeAsync, plain, stream), lose(0, MIB);
    const uint64_t of_others[8] = {MIB};
    OKAY(cuMemPoolImportPointer, &plain, pool, of_others);
    OKAY(cuMemFree_v2, plain);
    OKAY(cuMemPoolTrimTo, pool, (size_t)0);
    OKAY(cuMemPoolDestroy, pool);
}

static void handles_and_arrays(void)
{
    const int on_second[8] = {1, 0, 1, 1};
    Ptr space, imported, part;
    Handle h, again, theirs;
    Array a[5];
    void *external;
    CU(cuMemAddressReserve, &space, (size_t)MIB, (size_t)0, (Ptr)0, (uint64_t)0);
    OKAY(cuMemCreate, &h, (size_t)(6 * MIB), on_second, (uint64_t)0), gain(1, 6 * MIB);
    OKAY(cuMemMap, space, (size_t)MIB, (size_t)0, h, (uint64_t)0);
    OKAY(cuMemRetainAllocationHandle, &again, (void *)space);
    OKAY(cuMemRelease, h);
    OKAY(cuMemRelease, again);
    OKAY(cuMemUnmap, space, (size_t)MIB), lose(1, 6 * MIB);
    OKAY(cuMemImportFromShareableHandle, &theirs, (void *)3, 1);
    OKAY(cuMemRelease, theirs);
    if (FUNCTION(cuMulticastCreate)) {
        OKAY(cuMulticastCreate, &theirs, (void *)0), gain(0, 0);
        OKAY(cuMemRelease, theirs), lose(0, 0);
    }
    struct { unsigned w, h; int format; unsigned channels; } low = {256, 256, 0x20, 4};
    struct { size_t w, h; int format; unsigned channels; } two = {256, 256, 0x20, 2};
    struct { unsigned w, h, d; int format; unsigned channels, flags; } low_three = {64, 64, 16, 0x10, 2, 0};
    struct { size_t w, h, d; int format; unsigned channels, flags; } three = {64, 64, 8, 0x10, 2, 0}, flat = {128, 64, 0, 0x10, 2, 0};
    OKAY(cuArrayCreate, &a[0], &low), gain(0, MIB);
    OKAY(cuArrayCreate_v2, &a[1], &two), gain(0, MIB / 2);
    OKAY(cuArray3DCreate, &a[2], &low_three), gain(0, MIB / 4);
    OKAY(cuArray3DCreate_v2, &a[3], &three), gain(0, MIB / 8);
    OKAY(cuMipmappedArrayCreate, &a[4], &flat, 2), gain(0, 40960);
    OKAY(cuArrayDestroy, a[0]), lose(0, MIB);
    OKAY(cuArrayDestroy, a[1]), lose(0, MIB / 2);
    OKAY(cuArrayDestroy, a[2]), lose(0, MIB / 4);
    OKAY(cuArrayDestroy, a[3]), lose(0, MIB / 8);
    OKAY(cuMipmappedArrayDestroy, a[4]), lose(0, 40960);
    struct { char bytes[64]; } of_others = {"shared"};
    uint64_t memory[16] = {1, 3, 0, 16 * MIB}, at[4] = {0, MIB};
    OKAY(cuIpcOpenMemHandle, &imported, of_others, 1);
    OKAY(cuIpcCloseMemHandle, imported);
    OKAY(cuIpcOpenMemHandle_v2, &imported, of_others, 1);
    OKAY(cuIpcCloseMemHandle, imported);
    OKAY(cuImportExternalMemory, &external, memory);
    OKAY(cuExternalMemoryGetMappedBuffer, &part, external, at), gain(0, 0);
    OKAY(cuMemFree_v2, part), lose(0, 0);
    OKAY(cuExternalMemoryGetMappedMipmappedArray, &a[0], external, (void *)0), gain(0, 0);
    OKAY(cuMipmappedArrayDestroy, a[0]), lose(0, 0);
    OKAY(cuDestroyExternalMemory, external);
}

/* Each with a block of its own, with which it ends. */
static void contexts_come_and_go(void)
{
    Context c;
    Ptr p;
    for (int form = 0; form < (HAS(cuCtxCreate_v4) ? 4 : 3); form++) {
        switch (form) {
        case 0: OKAY(cuCtxCreate, &c, 0, 1); break;
        case 1: OKAY(cuCtxCreate_v2, &c, 0, 1); break;
        case 2: OKAY(cuCtxCreate_v3, &c, (void *)0, 0, 0, 1); break;
        case 3: OKAY(cuCtxCreate_v4, &c, (void *)0, 0, 1); break;
        }
        OKAY(cuMemAlloc_v2, &p, (size_t)MIB), gain(1, MIB);
        if (form % 2)
            OKAY(cuCtxDestroy, c);
        else
            OKAY(cuCtxDestroy_v2, c);
        held[1] -= MIB;
    }
    OKAY(cuCtxCreate_v2, &c, 0, 1);
    OKAY(cuCtxAttach, &c, 0);
    OKAY(cuMemAlloc_v2, &p, (size_t)MIB), gain(1, MIB);
    OKAY(cuCtxDetach, c);
    OKAY(cuMemAlloc_v2, &p, (size_t)MIB), gain(1, MIB);
    OKAY(cuCtxDetach, c);
    held[1] -= 2 * MIB;
    if (HAS(cuGreenCtxDestroy)) {
        void *green;
        OKAY(cuGreenCtxCreate, &green, (void *)0, 1, 0);
        OKAY(cuCtxFromGreenCtx, &c, green);
        OKAY(cuCtxSetCurrent, c);
        OKAY(cuMemAlloc_v2, &p, (size_t)MIB), gain(1, MIB);
        OKAY(cuGreenCtxDestroy, green);
    }
    /* The primary one of device 1, with all that was in it before. */
    for (int form = 0; form < 4; form++) {
        c = context(1);
        if (form == 0)
            OKAY(cuDevicePrimaryCtxRelease, 1); /* it is held still */
        OKAY(cuMemAlloc_v2, &p, (size_t)(2 * MIB)), gain(1, 2 * MIB);
        switch (form) {
        case 0: OKAY(cuDevicePrimaryCtxReset, 1); break;
        case 1: OKAY(cuDevicePrimaryCtxReset_v2, 1); break;
        case 2: OKAY(cuDevicePrimaryCtxRelease, 1); break;
        case 3: OKAY(cuDevicePrimaryCtxRelease_v2, 1); break;
        }
        held[1] = 0;
    }
    OKAY(cuCtxSetCurrent, first);
}

static void streams_and_waits(void)
{
    Stream s;
    Event e;
    OKAY(cuStreamCreate, &s, 1);
    OKAY(cuStreamSynchronize, s);
    OKAY(cuStreamDestroy, s);
    OKAY(cuStreamCreateWithPriority, &s, 1, 0);
    OKAY(cuStreamDestroy_v2, s);
    if (HAS(cuGreenCtxStreamCreate)) {
        OKAY(cuGreenCtxStreamCreate, &s, (void *)0, 1, 0);
        OKAY(cuStreamDestroy_v2, s);
    }
    OKAY(cuStreamSynchronize_ptsz, (Stream)0);
    OKAY(cuCtxSynchronize);
    OKAY(cuCtxSynchronize_v2, first);
    OKAY(cuEventCreate, &e, 0);
    OKAY(cuEventRecord, e, stream);
    OKAY(cuEventSynchronize, e);
}

static Graph graph_of(int form)
{
    Graph g = 0, made = 0;
    switch (form) {
    case 0: OKAY(cuStreamBeginCapture, stream); break;
    case 1: OKAY(cuStreamBeginCapture_ptsz, stream); break;
    case 2: OKAY(cuStreamBeginCapture_v2, stream, 2); break;
    case 3: OKAY(cuStreamBeginCapture_v2_ptsz, stream, 2); break;
    case 4: case 5:
        OKAY(cuGraphCreate, &made, 0);
        if (form == 4)
            OKAY(cuStreamBeginCaptureToGraph, stream, made, (void *)0, (void *)0, (size_t)0, 2);
        else
            OKAY(cuStreamBeginCaptureToGraph_ptsz, stream, made, (void *)0, (void *)0, (size_t)0, 2);
        break;
    case 6: OKAY(cuStreamBeginCaptureToCig, stream, (void *)0); break;
    case 7: OKAY(cuStreamBeginCaptureToCig_ptsz, stream, (void *)0); break;
    }
    OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)1000, stream);
    switch (form) {
    case 6: OKAY(cuStreamEndCaptureToCig, stream); break;
    case 7: OKAY(cuStreamEndCaptureToCig_ptsz, stream); break;
    case 1: OKAY(cuStreamEndCapture_ptsz, stream, &g); break;
    default: OKAY(cuStreamEndCapture, stream, &g);
    }
    return g;
}

/* Eight captures and two that replace one, fewer where the driver is older; five instantiations (or four), two launches of the first one; 4 MiB of
   memory in the last one. */
struct alloc_node { int type, handles; Location at; void *security; size_t most; char reserved[56]; const void *access; size_t accesses, bytes; Ptr address; };
static void graphs(void)
{
    Graph g[8], made, clone, again;
    Exec e[5];
    void *node;
    int forms = HAS(cuStreamBeginCaptureToCig) ? 8 : HAS(cuStreamBeginCaptureToGraph) ? 6 : 4;
    for (int form = 0; form < forms; form++)
        g[form] = graph_of(form);
    for (int form = 0; form < 2 && HAS(cuStreamBeginRecaptureToGraph); form++) {
        if (form)
            OKAY(cuStreamBeginRecaptureToGraph_ptsz, stream, 2, g[0], (void *)0, (void *)0);
        else
            OKAY(cuStreamBeginRecaptureToGraph, stream, 2, g[0], (void *)0, (void *)0);
        OKAY(cuMemcpyHtoDAsync_v2, dev, pinned, (size_t)1000, stream);
        OKAY(cuStreamEndCapture, stream, &again);
    }
    OKAY(cuGraphCreate, &made, 0);
    OKAY(cuGraphClone, &clone, g[1]);
    struct volume copy = {.from_type = 1, .from_host = pinned, .to_type = 2, .to_device = dev, .w = 1000, .h = 10, .d = 2};
    struct { Ptr at; size_t pitch; unsigned value, element; size_t w, h; } set = {dev, 0, 0, 4, 256, 1};
    struct alloc_node alloc = {.type = 1, .at = {1, 0}, .bytes = 4 * MIB};
    struct { int type, reserved[3]; union { struct { int flags, reserved; Context c; struct volume v; } copy; char room[232]; } of; } any = {.type = 1, .of.copy.v = copy};
    OKAY(cuGraphAddMemcpyNode, &node, made, (void *)0, (size_t)0, &copy, (Context)0);
    OKAY(cuGraphAddMemsetNode, &node, made, (void *)0, (size_t)0, &set, (Context)0);
    OKAY(cuGraphAddChildGraphNode, &node, made, (void *)0, (size_t)0, clone);
    OKAY(cuGraphAddMemAllocNode, &node, made, (void *)0, (size_t)0, &alloc);
    OKAY(cuGraphAddMemFreeNode, &node, made, (void *)0, (size_t)0, alloc.address);
    OKAY(cuGraphAddNode, &node, made, (void *)0, (size_t)0, &any);
    OKAY(cuGraphAddNode_v2, &node, made, (void *)0, (void *)0, (size_t)0, &any);
    OKAY(cuGraphAddNode_v3, &node, made, (void *)0, (void *)0, (size_t)0, &any);
    OKAY(cuGraphInstantiate, &e[0], g[0], (void *)0, (char *)0, (size_t)0);
    OKAY(cuGraphInstantiate_v2, &e[1], g[1], (void *)0, (char *)0, (size_t)0);
    OKAY(cuGraphInstantiateWithFlags, &e[2], g[2], (uint64_t)0);
    OKAY(cuGraphInstantiateWithParams, &e[3], g[3], (void *)0);
    if (HAS(cuGraphInstantiateWithParams_ptsz))
        OKAY(cuGraphInstantiateWithParams_ptsz, &e[4], made, (void *)0);
    else
        OKAY(cuGraphInstantiateWithFlags, &e[4], made, (uint64_t)0);
    gain(0, 4 * MIB), allocs[0]--;
    OKAY(cuGraphUpload, e[0], stream);
    OKAY(cuGraphUpload_ptsz, e[0], stream);
    OKAY(cuGraphLaunch, e[0], stream);
    OKAY(cuGraphLaunch_ptsz, e[0], stream);
    OKAY(cuGraphLaunch, e[4], stream);
    OKAY(cuGraphExecUpdate, e[1], g[2], (void *)0, (void *)0);
    OKAY(cuGraphExecUpdate_v2, e[1], g[3], (void *)0);
    OKAY(cuGraphExecChildGraphNodeSetParams, e[0], node, clone);
    OKAY(cuGraphExecKernelNodeSetParams, e[0], node, (void *)1);
    OKAY(cuGraphExecKernelNodeSetParams_v2, e[0], node, (void *)1);
    OKAY(cuGraphExecMemcpyNodeSetParams, e[0], node, &copy, (Context)0);
    OKAY(cuGraphExecMemsetNodeSetParams, e[0], node, &set, (Context)0);
    OKAY(cuGraphExecNodeSetParams, e[0], node, &any);
    OKAY(cuGraphNodeSetEnabled, e[0], (void *)1, 1);
    OKAY(cuGraphMemcpyNodeSetParams, (void *)1, &copy);
    OKAY(cuGraphMemsetNodeSetParams, (void *)2, &set);
    OKAY(cuGraphNodeSetParams, (void *)1, &any);
    OKAY(cuGraphNodeSetParams_v2, (void *)1, &any);
    OKAY(cuGraphDestroyNode, (void *)1);
    OKAY(cuStreamSynchronize, stream);
    OKAY(cuGraphExecDestroy, e[4]), held[0] -= 4 * MIB;
    OKAY(cuGraphDestroy, clone);
}

static void kernels(void)
{
    struct { unsigned gx, gy, gz, bx, by, bz, shared; Stream s; void *attributes; unsigned n; } with = {.s = stream};
    struct { int64_t function; unsigned dimensions[6], shared; Stream s; void **parameters; } two[2] = {{1000, .s = stream}, {2000, .s = stream}};
    OKAY(cuLaunch, (int64_t)1000);
    OKAY(cuLaunchGrid, (int64_t)1000, 1, 1);
    OKAY(cuLaunchGridAsync, (int64_t)1000, 1, 1, stream);
    OKAY(cuLaunchCooperativeKernelMultiDevice, two, 2u, 0u);
    OKAY(cuLaunchKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, stream, (void *)0, (void *)0);
    OKAY(cuLaunchKernel_ptsz, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, stream, (void *)0, (void *)0);
    OKAY(cuLaunchCooperativeKernel, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, stream, (void *)0);
    OKAY(cuLaunchCooperativeKernel_ptsz, (int64_t)1000, 1, 1, 1, 1, 1, 1, 0, stream, (void *)0);
    OKAY(cuLaunchKernelEx, &with, (int64_t)1000, (void *)0, (void *)0);
    OKAY(cuLaunchKernelEx_ptsz, &with, (int64_t)1000, (void *)0, (void *)0);
    OKAY(cuStreamSynchronize, stream);
}

static int all(char **args)
{
    prepare(args);
    gain(1, 4 * MIB), gain(0, 4 * MIB), gain(0, 4 * MIB), gain(PINNED_MEMORY, 4 * MIB), gain(0, 4 * MIB), gain(0, 4 * MIB); /* as copies.h has it */
    wide_forms();
    narrow_forms();
    gain(0, MIB), gain(0, MIB);
    blocks_and_frees();
    pools();
    handles_and_arrays();
    streams_and_waits();
    graphs();
    kernels();
    contexts_come_and_go();
    void *f;
    OKAY(cuGetProcAddress, "cuMemAlloc", &f, 12000, (uint64_t)0);
    OKAY(cuGetProcAddress_v2, "cuMemAlloc", &f, 12000, (uint64_t)0, (int *)0);
    OKAY(cuCtxSynchronize);
    say_sums();
    for (int i = 0; i < 3; i++)
        line("HELD %ld %ld %d %d", (long)most[i], (long)held[i], i < 2 ? allocs[i] : 0, i < 2 ? frees[i] : 0);
    for (unsigned i = 0; i < HOOKED; i++)
        if (has(hooked[i].symbol))
            line("CALLED %s %s %d %d", hooked[i].symbol, hooked[i].name, calls[i], 700 + i % 90);
    return 0;
}

/* The calls that take CUPTI, in a library that refuses each with a code of its own. */
static int cupti(char **args)
{
    static const char *names[] = {"cuptiSubscribe", "cuptiSubscribe_v2", "cuptiActivityRegisterCallbacks", "cuptiActivityRegisterCallbacks_v2"};
    void *library = dlopen(beside("libcupti_every.so"), RTLD_NOW);
    need(library, "%s", dlerror());
    for (int i = 0; i < 4; i++) {
        int (*call)(void *, void *, void *, void *) = dlsym(library, names[i]);
        need(call != 0, "%s", dlerror());
        errno = 5;
        int r = call(0, 0, 0, 0);
        need(r == 39 + i && errno == 77, "%s: %d, errno %d", names[i], r, errno);
        line("CALLED %s", names[i]);
    }
    return 0;
}

MODES({"all", all}, {"cupti", cupti})
