/* Every way to get and give back GPU memory, each with sizes of its own, so that a sum tells what is missing. */
#include "driver.h"

#define MIB (1ull << 20)
static const int on_device[8] = {1, 0, 1, 0}, on_second[8] = {1, 0, 1, 1}; /* CUmemAllocationProp: kind, handles, location (kind, number) */

/* Live at most: 7 MiB, with 1 MiB at the end. */
static int plain(char **args)
{
    driver(args);
    context(0);
    Ptr a, b, c;
    size_t pitch;
    OKAY(cuMemAlloc_v2, &a, (size_t)(4 * MIB));
    OKAY(cuMemAllocPitch_v2, &b, &pitch, (size_t)1000, (size_t)1024, 4); /* 1024 × 1024 */
    OKAY(cuMemAllocManaged, &c, (size_t)(2 * MIB), 1);
    need(pitch == 1024, "pitch %zu", pitch);
    OKAY(cuMemFree_v2, a);
    OKAY(cuMemFree_v2, c);
    OKAY(cuMemFree_v2, (Ptr)0);
    need(CU(cuMemFree_v2, (Ptr)12345) == 1, "a free of nothing");
    need(CU(cuMemAlloc_v2, &a, (size_t)(200ull << 30)) == 2, "more than there is");
    return 0;
}

/* The first ABI: addresses and sizes of 32 bits, with rubbish above them in the registers. */
static int narrow(char **args)
{
    driver(args);
    context(0);
    Ptr32 a;
    OKAY(cuMemAlloc, &a, 0xdead000000000000ull | 3 * MIB);
    OKAY(cuMemsetD8, 0xdead000000000000ull | a, 7, 0xbeef000000000000ull | MIB);
    char *h = malloc(MIB);
    OKAY(cuMemcpyDtoH, h, 0xdead000000000000ull | a, 0xbeef000000000000ull | MIB);
    need(h[MIB - 1] == 7, "data");
    OKAY(cuMemFree, 0xdead000000000000ull | a);
    return 0;
}

static int host(char **args)
{
    driver(args);
    context(0);
    Ptr a, b;
    OKAY(cuMemAllocHost_v2, &a, (size_t)(3 * MIB));
    OKAY(cuMemHostAlloc, &b, (size_t)(5 * MIB), 0);
    OKAY(cuMemFreeHost, a);
    char *p = map_anon(8 * MIB);
    OKAY(cuMemHostRegister_v2, (Ptr)p, (size_t)(8 * MIB), 0); /* 13 MiB pinned at most */
    OKAY(cuMemHostUnregister, (Ptr)p);
    return 0;
}

/* Two pools: 40 MiB of blocks of 64 MiB reserved, and 10 of 32. */
static int pools(char **args)
{
    driver(args);
    context(0);
    Stream s;
    Pool pool;
    Ptr a, b, c;
    OKAY(cuStreamCreate, &s, 1);
    OKAY(cuMemAllocAsync, &a, (size_t)(16 * MIB), s);
    OKAY(cuMemAllocAsync, &b, (size_t)(24 * MIB), s);
    OKAY(cuMemPoolCreate, &pool, on_device);
    OKAY(cuMemAllocFromPoolAsync, &c, (size_t)(10 * MIB), pool, s);
    OKAY(cuMemFreeAsync, a, s);
    OKAY(cuMemFreeAsync, b, s);
    OKAY(cuMemFreeAsync, c, s);
    Pool own;
    OKAY(cuDeviceGetMemPool, &own, 0);
    OKAY(cuMemPoolTrimTo, own, (size_t)0);
    OKAY(cuMemPoolDestroy, pool);
    return 0;
}

/* Physical memory: leaves when it is neither held nor mapped. Address space is not memory. */
static int physical(char **args)
{
    driver(args);
    context(0);
    Ptr space;
    Handle a, b, again, other;
    OKAY(cuMemAddressReserve, &space, (size_t)(1 << 30), (size_t)0, (Ptr)0, (uint64_t)0);
    OKAY(cuMemCreate, &a, (size_t)(4 * MIB), on_device, (uint64_t)0);
    OKAY(cuMemCreate, &b, (size_t)(2 * MIB), on_second, (uint64_t)0);
    OKAY(cuMemMap, space, (size_t)(4 * MIB), (size_t)0, a, (uint64_t)0);
    OKAY(cuMemMap, space + 4 * MIB, (size_t)(2 * MIB), (size_t)0, b, (uint64_t)0);
    OKAY(cuMemRetainAllocationHandle, &again, (void *)space);
    need(again == a, "the same handle");
    OKAY(cuMemRelease, a);
    OKAY(cuMemRelease, a); /* the retained one; still mapped */
    OKAY(cuMemCreate, &other, (size_t)MIB, on_device, (uint64_t)0); /* 5 MiB on device 0 */
    OKAY(cuMemUnmap, space, (size_t)(6 * MIB));
    OKAY(cuMemRelease, b);
    OKAY(cuMemRelease, other);
    need(CU(cuMemRelease, other) == 1, "released twice");
    void *imported;
    OKAY(cuMemImportFromShareableHandle, &imported, (void *)3, 1);
    OKAY(cuMemRelease, imported);
    return 0;
}

/* On device 0, of device 1: blocks of a pool that was made and of one that was found, and physical memory. A copy of each to device 0 passes
   between two devices. */
static int elsewhere(char **args)
{
    driver(args);
    context(1); /* seen once, to have a name */
    context(0);
    Stream s;
    Pool made, found;
    Ptr here, a, b, space;
    Handle h;
    OKAY(cuStreamCreate, &s, 1);
    OKAY(cuMemAlloc_v2, &here, (size_t)MIB);
    OKAY(cuMemPoolCreate, &made, on_second);
    OKAY(cuDeviceGetMemPool, &found, 1);
    OKAY(cuMemAllocFromPoolAsync, &a, (size_t)(3 * MIB), made, s);
    OKAY(cuMemAllocFromPoolAsync, &b, (size_t)(5 * MIB), found, s);
    OKAY(cuMemAddressReserve, &space, (size_t)(2 * MIB), (size_t)0, (Ptr)0, (uint64_t)0);
    OKAY(cuMemCreate, &h, (size_t)(2 * MIB), on_second, (uint64_t)0);
    OKAY(cuMemMap, space, (size_t)(2 * MIB), (size_t)0, h, (uint64_t)0);
    OKAY(cuMemcpyAsync, here, a, (size_t)1000, s);
    OKAY(cuMemcpyAsync, here, b, (size_t)20000, s);
    OKAY(cuMemcpyAsync, here, space, (size_t)300000, s);
    OKAY(cuMemFreeAsync, a, s);
    OKAY(cuMemFreeAsync, b, s);
    OKAY(cuStreamSynchronize, s);
    return 0;
}

/* On device 0 while that is current: blocks and copies of device 1's, by its stream, by linear copies and by planes whose ends are said to be a device's. */
static int of_other_device(char **args)
{
    driver(args);
    Context second = context(1), first = context(0);
    Stream there;
    Ptr here, its, async;
    static char host[MIB];
    OKAY(cuCtxSetCurrent, second);
    OKAY(cuMemAlloc_v2, &its, (size_t)(4 * MIB));
    OKAY(cuStreamCreate, &there, 1);
    OKAY(cuCtxSetCurrent, first);
    OKAY(cuMemAlloc_v2, &here, (size_t)MIB);
    OKAY(cuMemAllocAsync, &async, (size_t)(8 * MIB), there);
    OKAY(cuMemcpyHtoD_v2, its, host, (size_t)1000);
    OKAY(cuMemcpyDtoH_v2, host, its, (size_t)20000);
    OKAY(cuMemcpyHtoD_v2, here, host, (size_t)300000);
    OKAY(cuMemsetD8_v2, its, 0, (size_t)5000);
    const uint64_t plane[16] = {[2] = 2, [4] = its, [6] = 700, [9] = 2, [11] = here, [13] = 700, [14] = 700, [15] = 10}; /* kinds, addresses, pitches, extent */
    OKAY(cuMemcpy2D_v2, plane);
    return 0;
}

/* What a pool kept goes back to the device while the host waits, and is taken from there. */
static int shrinking_pool(char **args)
{
    driver(args);
    context(0);
    Stream s;
    Pool pool;
    Ptr p;
    uint64_t none = 0;
    OKAY(cuStreamCreate, &s, 1);
    OKAY(cuDeviceGetMemPool, &pool, 0);
    OKAY(cuMemPoolSetAttribute, pool, 4, &none);
    OKAY(cuMemAllocAsync, &p, (size_t)(320 * MIB), s);
    OKAY(cuMemFreeAsync, p, s);
    OKAY(cuStreamSynchronize, s);
    OKAY(cuMemAlloc_v2, &p, (size_t)(320 * MIB));
    return 0;
}

/* The same of a pool that keeps nothing by itself, where its block goes by an ordinary free. */
static int freed_plainly(char **args)
{
    driver(args);
    context(0);
    Stream s;
    Ptr p;
    OKAY(cuStreamCreate, &s, 1);
    OKAY(cuMemAllocAsync, &p, (size_t)(64 * MIB), s);
    OKAY(cuMemFree_v2, p);
    OKAY(cuCtxSynchronize);
    OKAY(cuMemAlloc_v2, &p, (size_t)(96 * MIB));
    return 0;
}

/* Memory of the host's from what else gives a device's: blocks of a pool that was made and of one that was found, and physical memory. */
static int on_host(char **args)
{
    const int on_node[32] = {1, 0, 3, 0};
    Location of_host = {2, 0};
    driver(args);
    context(0);
    Stream s;
    Pool made, found;
    Ptr here, a, b, space;
    Handle h;
    OKAY(cuStreamCreate, &s, 1);
    OKAY(cuMemAlloc_v2, &here, (size_t)MIB);
    OKAY(cuMemPoolCreate, &made, on_node);
    OKAY(cuMemGetDefaultMemPool, &found, &of_host, 1);
    OKAY(cuMemAllocFromPoolAsync, &a, (size_t)(3 * MIB), made, s);
    OKAY(cuMemAllocFromPoolAsync, &b, (size_t)(5 * MIB), found, s);
    OKAY(cuMemCreate, &h, (size_t)(7 * MIB), on_node, (uint64_t)0);
    OKAY(cuMemAddressReserve, &space, (size_t)(7 * MIB), (size_t)0, (Ptr)0, (uint64_t)0);
    OKAY(cuMemMap, space, (size_t)(7 * MIB), (size_t)0, h, (uint64_t)0);
    OKAY(cuMemcpyAsync, here, a, (size_t)1000, s);
    OKAY(cuMemcpyHtoDAsync_v2, here, b, (size_t)2000, s);
    OKAY(cuMemcpyAsync, here, space, (size_t)4000, s);
    OKAY(cuStreamSynchronize, s);
    OKAY(cuMemPoolTrimTo, made, (size_t)0);
    OKAY(cuMemFreeAsync, a, s);
    OKAY(cuMemPoolDestroy, made);
    OKAY(cuMemUnmap, space, (size_t)(7 * MIB));
    OKAY(cuMemRelease, h);
    return 0;
}

static int arrays(char **args)
{
    driver(args);
    context(0);
    struct { size_t w, h; int format; unsigned channels; } two = {256, 256, 0x20, 4}; /* 1 MiB */
    struct { size_t w, h, d; int format; unsigned channels, flags; } three = {128, 64, 32, 0x10, 2, 0}; /* 1 MiB */
    Array a, b, c;
    OKAY(cuArrayCreate_v2, &a, &two);
    OKAY(cuArray3DCreate_v2, &b, &three);
    three.d = 0;
    OKAY(cuMipmappedArrayCreate, &c, &three, 2); /* 32 KiB + 8 KiB */
    OKAY(cuArrayDestroy, a);
    OKAY(cuArrayDestroy, b);
    OKAY(cuMipmappedArrayDestroy, c);
    return 0;
}

/* What is another's does not count here. */
static int others(char **args)
{
    driver(args);
    context(0);
    struct { char bytes[64]; } handle = {"shared"};
    Ptr a, b;
    void *external;
    uint64_t memory[16] = {1, 3, 0, 16 * MIB}, part[4] = {0, MIB};
    OKAY(cuIpcOpenMemHandle_v2, &a, handle, 1);
    OKAY(cuIpcCloseMemHandle, a);
    OKAY(cuImportExternalMemory, &external, memory);
    OKAY(cuExternalMemoryGetMappedBuffer, &b, external, part);
    OKAY(cuMemsetD8_v2, b, 0, (size_t)MIB);
    OKAY(cuDestroyExternalMemory, external);
    return 0;
}

/* The same where some is open at the end, beside 2 MiB of the program's own. */
static int imports(char **args)
{
    driver(args);
    context(0);
    struct { char bytes[64]; } shared = {"shared"};
    uint64_t of_vulkan[16] = {1, 3, 0, 16 * MIB}, smaller[16] = {1, 3, 0, 4 * MIB};
    Ptr own, a, b, space;
    void *external[2];
    Handle handle, closed, group;
    Pool pool; /* stands for another process's */
    const uint64_t of_pool[8] = {MIB}, part[4] = {0, MIB};
    void *mipmap;
    OKAY(cuMemAlloc_v2, &own, (size_t)(2 * MIB));
    OKAY(cuMemPoolCreate, &pool, on_device);
    OKAY(cuIpcOpenMemHandle_v2, &a, shared, 1);
    OKAY(cuIpcOpenMemHandle_v2, &b, shared, 1);
    OKAY(cuIpcCloseMemHandle, a);
    OKAY(cuImportExternalMemory, &external[0], of_vulkan);
    OKAY(cuImportExternalMemory, &external[1], smaller);
    OKAY(cuExternalMemoryGetMappedMipmappedArray, &mipmap, external[0], (void *)0);
    OKAY(cuMipmappedArrayDestroy, mipmap);
    OKAY(cuDestroyExternalMemory, external[0]);
    OKAY(cuExternalMemoryGetMappedBuffer, &a, external[1], part);
    OKAY(cuMemFree_v2, a);
    OKAY(cuMemPoolImportPointer, &a, pool, of_pool);
    OKAY(cuMemPoolImportPointer, &space, pool, of_pool);
    OKAY(cuMemFreeAsync, a, (Stream)0);
    OKAY(cuMulticastCreate, &group, (void *)0);
    OKAY(cuMemRelease, group);
    OKAY(cuMemImportFromShareableHandle, &handle, (void *)3, 1);
    OKAY(cuMemImportFromShareableHandle, &closed, (void *)4, 1);
    OKAY(cuMemAddressReserve, &space, (size_t)(2 * MIB), (size_t)0, (Ptr)0, (uint64_t)0);
    OKAY(cuMemMap, space, (size_t)(2 * MIB), (size_t)0, handle, (uint64_t)0);
    OKAY(cuMemRelease, handle);
    OKAY(cuMemRelease, closed);
    OKAY(cuMemcpyDtoD_v2, b, own, (size_t)1000);
    OKAY(cuMemcpyDtoD_v2, space, own, (size_t)20000);
    return 0;
}

/* A context ends with all that is in it. */
static int contexts_end(char **args)
{
    driver(args);
    Context c;
    Ptr p;
    OKAY(cuCtxCreate_v2, &c, 0, 0);
    OKAY(cuMemAlloc_v2, &p, (size_t)(8 * MIB));
    OKAY(cuMemAllocHost_v2, &p, (size_t)(4 * MIB));
    OKAY(cuCtxDestroy_v2, c);
    context(1);
    OKAY(cuMemAlloc_v2, &p, (size_t)(2 * MIB));
    OKAY(cuDevicePrimaryCtxReset_v2, 1);
    context(0);
    OKAY(cuMemAlloc_v2, &p, (size_t)(3 * MIB));
    context(0);
    OKAY(cuDevicePrimaryCtxRelease_v2, 0); /* one use is left */
    OKAY(cuMemAlloc_v2, &p, (size_t)MIB);
    OKAY(cuDevicePrimaryCtxRelease_v2, 0);
    return 0;
}

/* Names that nobody knows pass, and are named. */
static int unknown(char **args)
{
    driver(args);
    context(0);
    OKAY(cuMemTeleportAsync, (Ptr)0, (Stream)0);
    OKAY(cuMemTeleportAsync, (Ptr)0, (Stream)0);
    Ptr p;
    OKAY(cuMemAlloc_v2, &p, (size_t)MIB);
    return 0;
}

/* Who holds it: a function each. Device 0 has 10 MiB at its peak and 9 at the end, device 1 has 5. */
#define HOLDER(name, mib) \
    __attribute__((noinline)) static Ptr name(void) \
    { \
        Ptr p; \
        OKAY(cuMemAlloc_v2, &p, (size_t)(mib * MIB)); \
        return p; \
    }
HOLDER(weights, 6)
HOLDER(activations, 4)
HOLDER(results, 3)
HOLDER(shard, 5)

__attribute__((noinline)) static Handle mapped(void)
{
    Handle h;
    OKAY(cuMemCreate, &h, (size_t)(2 * MIB), on_device, (uint64_t)0);
    return h;
}

__attribute__((noinline)) static void staging(void)
{
    Ptr p;
    OKAY(cuMemAllocHost_v2, &p, (size_t)(2 * MIB));
}

static int owners(char **args)
{
    driver(args);
    context(0);
    weights();
    Ptr a = activations();
    OKAY(cuMemFree_v2, a);
    OKAY(cuMemRelease, mapped());
    results();
    staging();
    context(1);
    shard();
    return 0;
}

MODES({"owners", owners}, {"plain", plain}, {"narrow", narrow}, {"host", host}, {"pools", pools}, {"physical", physical}, {"elsewhere", elsewhere}, {"of_other_device", of_other_device}, {"shrinking_pool", shrinking_pool}, {"freed_plainly", freed_plainly}, {"on_host", on_host}, {"arrays", arrays}, {"others", others}, {"imports", imports},
      {"contexts", contexts_end}, {"unknown", unknown})
