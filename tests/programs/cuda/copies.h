/* Every form of copy and memset that there is a hook for, each with a size of its own: the sums tell which is missing or counted twice.
   The expected sums are made here, beside the calls, and printed as `EXPECT direction memory count bytes`. */
#pragma once
#include "driver.h"

#define N 6
enum { H2D_ = 0, D2H_, D2D_, P2P_, H2H_, SET_ };
enum { PAGEABLE = 0, PINNED_, MANAGED_, DEVICE_ };
static const char *directions[] = {"H2D", "D2H", "D2D", "P2P", "H2H", "memset"}, *memories[] = {"pageable", "pinned", "managed", "device"};
static struct { uint64_t count, bytes; int64_t ns; } sums[N][4];
static uint64_t size = 4096;
static int rehearsing; /* the call is to fail: it counts when it is made again */

/* The next size, noted as one copy. */
static size_t next_size(int direction, int memory, int rate, uint64_t unit)
{
    uint64_t bytes = (size + 256) / unit * unit;
    if (rehearsing)
        return bytes;
    size += 256;
    sums[direction][memory].count++, sums[direction][memory].bytes += bytes;
    sums[direction][memory].ns += LATENCY + (int64_t)(bytes * 1000 / rate);
    return bytes;
}
static void say_sums(void)
{
    for (int d = 0; d < N; d++)
        for (int m = 0; m < 4; m++)
            if (sums[d][m].count)
                line("EXPECT %s %s %lu %lu %ld", directions[d], memories[m], sums[d][m].count, sums[d][m].bytes, sums[d][m].ns);
}
#define RATE(d, m) ((d) == H2D_ ? (m) == PAGEABLE ? H2D_PAGEABLE : H2D_PINNED : (d) == D2H_ ? (m) == PAGEABLE ? D2H_PAGEABLE : D2H_PINNED : (d) == D2D_ ? D2D : (d) == P2P_ ? P2P : (d) == H2H_ ? H2H : SET)
#define SIZE(d, m) next_size(d, m, RATE(d, m), 1)

struct plane { size_t from_x, from_y; int from_type; Ptr from_host, from_device; Array from_array; size_t from_pitch, to_x, to_y; int to_type; Ptr to_host, to_device; Array to_array; size_t to_pitch, w, h; };
struct volume { size_t from_x, from_y, from_z, from_lod; int from_type; Ptr from_host, from_device; Array from_array; Context from_context; size_t from_pitch, from_height, to_x, to_y, to_z, to_lod; int to_type; Ptr to_host, to_device; Array to_array; Context to_context; size_t to_pitch, to_height, w, h, d; };
struct operand { int type; union { struct { Ptr at; size_t row, layer; Location hint; } pointer; struct { Array a; size_t x, y, z; } array; } of; };
struct operation { struct operand from, to; size_t w, h, d; int order; unsigned flags; };

static Ptr dev, dev2, other, pinned, managed;
static char *heap;
static Context first, second;
static Array array;
static Stream stream;

static void linear(void)
{
    for (int own = 0; own < 2; own++) {
        Ptr host[2] = {(Ptr)heap, pinned};
        for (int m = 0; m < 2; m++) {
            if (own) {
                OKAY(cuMemcpyHtoD_v2_ptds, dev, host[m], SIZE(H2D_, m));
                OKAY(cuMemcpyDtoH_v2_ptds, host[m], dev, SIZE(D2H_, m));
                OKAY(cuMemcpyHtoDAsync_v2_ptsz, dev, host[m], SIZE(H2D_, m), stream);
                OKAY(cuMemcpyHtoDAsync_v2_ptsz, dev, host[m], SIZE(H2D_, m), (Stream)0);
                OKAY(cuMemcpyDtoHAsync_v2_ptsz, host[m], dev, SIZE(D2H_, m), stream);
                OKAY(cuMemcpyAsync_ptsz, dev, host[m], SIZE(H2D_, m), stream);
                OKAY(cuMemcpyAsync_ptsz, host[m], dev, SIZE(D2H_, m), stream);
                OKAY(cuMemcpy_ptds, dev, host[m], SIZE(H2D_, m));
                OKAY(cuMemcpyWithAttributesAsync_ptsz, dev, host[m], SIZE(H2D_, m), (void *)0, stream);
                OKAY(cuMemcpyHtoA_v2_ptds, array, (size_t)0, host[m], SIZE(H2D_, m));
                OKAY(cuMemcpyAtoH_v2_ptds, host[m], array, (size_t)0, SIZE(D2H_, m));
                OKAY(cuMemcpyHtoAAsync_v2_ptsz, array, (size_t)0, host[m], SIZE(H2D_, m), stream);
                OKAY(cuMemcpyAtoHAsync_v2_ptsz, host[m], array, (size_t)0, SIZE(D2H_, m), stream);
            } else {
                OKAY(cuMemcpyHtoD_v2, dev, host[m], SIZE(H2D_, m));
                OKAY(cuMemcpyDtoH_v2, host[m], dev, SIZE(D2H_, m));
                OKAY(cuMemcpyHtoDAsync_v2, dev, host[m], SIZE(H2D_, m), stream);
                OKAY(cuMemcpyHtoDAsync_v2, dev, host[m], SIZE(H2D_, m), (Stream)0);
                OKAY(cuMemcpyDtoHAsync_v2, host[m], dev, SIZE(D2H_, m), stream);
                OKAY(cuMemcpyAsync, dev, host[m], SIZE(H2D_, m), stream);
                OKAY(cuMemcpyAsync, host[m], dev, SIZE(D2H_, m), stream);
                OKAY(cuMemcpy, dev, host[m], SIZE(H2D_, m));
                OKAY(cuMemcpy, host[m], dev, SIZE(D2H_, m));
                OKAY(cuMemcpyWithAttributesAsync, dev, host[m], SIZE(H2D_, m), (void *)0, stream);
                OKAY(cuMemcpyHtoA_v2, array, (size_t)0, host[m], SIZE(H2D_, m));
                OKAY(cuMemcpyAtoH_v2, host[m], array, (size_t)0, SIZE(D2H_, m));
                OKAY(cuMemcpyHtoAAsync_v2, array, (size_t)0, host[m], SIZE(H2D_, m), stream);
                OKAY(cuMemcpyAtoHAsync_v2, host[m], array, (size_t)0, SIZE(D2H_, m), stream);
            }
        }
    }
    OKAY(cuMemcpyDtoD_v2, dev, dev2, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyDtoD_v2_ptds, dev, dev2, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyDtoDAsync_v2, dev, dev2, SIZE(D2D_, DEVICE_), stream);
    OKAY(cuMemcpyDtoDAsync_v2_ptsz, dev, dev2, SIZE(D2D_, DEVICE_), stream);
    OKAY(cuMemcpy, dev, dev2, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyAtoA_v2, array, (size_t)0, array, (size_t)0, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyAtoA_v2_ptds, array, (size_t)0, array, (size_t)0, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyAtoD_v2, dev, array, (size_t)0, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyAtoD_v2_ptds, dev, array, (size_t)0, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyDtoA_v2, array, (size_t)0, dev, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyDtoA_v2_ptds, array, (size_t)0, dev, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpy, pinned, (Ptr)heap, SIZE(H2H_, PAGEABLE));
    OKAY(cuMemcpy, dev, managed, SIZE(D2D_, MANAGED_));
    OKAY(cuMemcpyDtoD_v2, managed, dev, SIZE(D2D_, MANAGED_));
    OKAY(cuMemcpyPeer, other, second, dev, first, SIZE(P2P_, DEVICE_));
    OKAY(cuMemcpyPeer_ptds, other, second, dev, first, SIZE(P2P_, DEVICE_));
    OKAY(cuMemcpyPeerAsync, other, second, dev, first, SIZE(P2P_, DEVICE_), stream);
    OKAY(cuMemcpyPeerAsync_ptsz, dev, first, other, second, SIZE(P2P_, DEVICE_), stream);
    OKAY(cuMemcpyPeer, dev, first, dev2, first, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyAsync, other, dev, SIZE(P2P_, DEVICE_), stream);
}

static struct plane plane(int direction, int memory, Ptr host)
{
    size_t bytes = next_size(direction, memory, RATE(direction, memory), 16);
    struct plane p = {.from_type = 2, .from_device = dev2, .from_pitch = bytes / 16, .to_type = 2, .to_device = dev, .to_pitch = bytes / 16, .w = bytes / 16, .h = 16};
    if (direction == H2D_)
        p.from_type = 1, p.from_host = host;
    if (direction == D2H_)
        p.to_type = 1, p.to_host = host;
    return p;
}
static struct volume volume(int direction, int memory, Ptr host)
{
    size_t bytes = next_size(direction, memory, RATE(direction, memory), 32);
    struct volume v = {.from_type = 2, .from_device = dev2, .to_type = 2, .to_device = dev, .w = bytes / 32, .h = 8, .d = 4};
    if (direction == H2D_)
        v.from_type = 1, v.from_host = host;
    if (direction == D2H_)
        v.to_type = 1, v.to_host = host;
    if (direction == P2P_)
        v.from_device = other, v.from_context = second, v.to_context = first;
    return v;
}
static void shaped(void)
{
    for (int d = H2D_; d <= D2D_; d++) {
        int m = d == D2D_ ? DEVICE_ : PINNED_;
        struct plane p;
        struct volume v;
        p = plane(d, m, pinned); OKAY(cuMemcpy2D_v2, &p);
        p = plane(d, m, pinned); OKAY(cuMemcpy2D_v2_ptds, &p);
        p = plane(d, m, pinned); OKAY(cuMemcpy2DUnaligned_v2, &p);
        p = plane(d, m, pinned); OKAY(cuMemcpy2DUnaligned_v2_ptds, &p);
        p = plane(d, m, pinned); OKAY(cuMemcpy2DAsync_v2, &p, stream);
        p = plane(d, m, pinned); OKAY(cuMemcpy2DAsync_v2_ptsz, &p, stream);
        v = volume(d, m, pinned); OKAY(cuMemcpy3D_v2, &v);
        v = volume(d, m, pinned); OKAY(cuMemcpy3D_v2_ptds, &v);
        v = volume(d, m, pinned); OKAY(cuMemcpy3DAsync_v2, &v, stream);
        v = volume(d, m, pinned); OKAY(cuMemcpy3DAsync_v2_ptsz, &v, stream);
    }
    struct plane p = plane(H2D_, PAGEABLE, (Ptr)heap);
    p.from_type = 4, p.from_device = (Ptr)heap; /* unified: the address tells */
    OKAY(cuMemcpy2D_v2, &p);
    p = plane(H2D_, PAGEABLE, (Ptr)heap);
    p.to_type = 3, p.to_array = array;
    OKAY(cuMemcpy2DAsync_v2, &p, stream);
    struct volume v;
    v = volume(P2P_, DEVICE_, 0); OKAY(cuMemcpy3DPeer, &v);
    v = volume(P2P_, DEVICE_, 0); OKAY(cuMemcpy3DPeer_ptds, &v);
    v = volume(P2P_, DEVICE_, 0); OKAY(cuMemcpy3DPeerAsync, &v, stream);
    v = volume(P2P_, DEVICE_, 0); OKAY(cuMemcpy3DPeerAsync_ptsz, &v, stream);
}

static void prefetches(void)
{
    Location here = {1, 0}, host = {2, 0};
    OKAY(cuMemPrefetchAsync, managed, SIZE(H2D_, MANAGED_), 0, stream);
    OKAY(cuMemPrefetchAsync_ptsz, managed, SIZE(D2H_, MANAGED_), -1, stream);
    OKAY(cuMemPrefetchAsync_v2, managed, SIZE(H2D_, MANAGED_), here, 0, stream);
    OKAY(cuMemPrefetchAsync_v2_ptsz, managed, SIZE(D2H_, MANAGED_), host, 0, stream);
    if (HAS(cuMemPrefetchBatchAsync)) {
        size_t one = SIZE(H2D_, MANAGED_), zero = 0;
        OKAY(cuMemPrefetchBatchAsync, &managed, &one, (size_t)1, &here, &zero, (size_t)1, (uint64_t)0, stream);
        one = SIZE(D2H_, MANAGED_);
        OKAY(cuMemPrefetchBatchAsync_ptsz, &managed, &one, (size_t)1, &host, &zero, (size_t)1, (uint64_t)0, stream);
        one = SIZE(H2D_, MANAGED_);
        OKAY(cuMemDiscardAndPrefetchBatchAsync, &managed, &one, (size_t)1, &here, &zero, (size_t)1, (uint64_t)0, stream);
        one = SIZE(D2H_, MANAGED_);
        OKAY(cuMemDiscardAndPrefetchBatchAsync_ptsz, &managed, &one, (size_t)1, &host, &zero, (size_t)1, (uint64_t)0, stream);
    }
}

/* Batches of one kind, whose times are known. */
static void batches(void)
{
    Ptr to[3], from[3];
    size_t n[3], failed = 0;
    int forms = HAS(cuMemcpyBatchAsync_v2) ? 4 : HAS(cuMemcpyBatchAsync) ? 2 : 0;
    for (int form = 0; form < forms; form++) {
        for (int i = 0; i < 3; i++)
            to[i] = dev + i * 65536, from[i] = pinned + i * 65536, n[i] = SIZE(H2D_, PINNED_);
        switch (form) {
        case 0: OKAY(cuMemcpyBatchAsync, to, from, n, (size_t)3, (void *)0, (void *)0, (size_t)0, &failed, stream); break;
        case 1: OKAY(cuMemcpyBatchAsync_ptsz, to, from, n, (size_t)3, (void *)0, (void *)0, (size_t)0, &failed, stream); break;
        case 2: OKAY(cuMemcpyBatchAsync_v2, to, from, n, (size_t)3, (void *)0, (void *)0, (size_t)0, stream); break;
        case 3: OKAY(cuMemcpyBatchAsync_v2_ptsz, to, from, n, (size_t)3, (void *)0, (void *)0, (size_t)0, stream); break;
        }
    }
    forms = HAS(cuMemcpy3DWithAttributesAsync) ? 6 : forms;
    for (int form = 0; form < forms; form++) {
        struct operation o[2] = {0};
        int count = form < 4 ? 2 : 1;
        for (int i = 0; i < count; i++) {
            size_t bytes = next_size(D2H_, PINNED_, D2H_PINNED, 8);
            o[i].from.type = o[i].to.type = 1, o[i].from.of.pointer.at = dev, o[i].to.of.pointer.at = pinned;
            o[i].w = bytes / 8, o[i].h = 4, o[i].d = 2;
        }
        switch (form) {
        case 0: OKAY(cuMemcpy3DBatchAsync, (size_t)2, o, &failed, (uint64_t)0, stream); break;
        case 1: OKAY(cuMemcpy3DBatchAsync_ptsz, (size_t)2, o, &failed, (uint64_t)0, stream); break;
        case 2: OKAY(cuMemcpy3DBatchAsync_v2, (size_t)2, o, (uint64_t)0, stream); break;
        case 3: OKAY(cuMemcpy3DBatchAsync_v2_ptsz, (size_t)2, o, (uint64_t)0, stream); break;
        case 4: OKAY(cuMemcpy3DWithAttributesAsync, o, (uint64_t)0, stream); break;
        case 5: OKAY(cuMemcpy3DWithAttributesAsync_ptsz, o, (uint64_t)0, stream); break;
        }
    }
    prefetches();
}

#define SET_OF(bits)                                                                                                                                  \
    do {                                                                                                                                              \
        size_t e = bits / 8, n;                                                                                                                       \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD##bits##_v2, dev, 1, n);                                                             \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD##bits##_v2_ptds, dev, 1, n);                                                        \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD##bits##Async, dev, 1, n, stream);                                                   \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD##bits##Async_ptsz, dev, 1, n, stream);                                              \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD2D##bits##_v2, dev, n / 4 * e, 1, n / 4, (size_t)4);                                 \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD2D##bits##_v2_ptds, dev, n / 4 * e, 1, n / 4, (size_t)4);                            \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD2D##bits##Async, dev, n / 4 * e, 1, n / 4, (size_t)4, stream);                       \
        n = next_size(SET_, DEVICE_, SET, 16) / e; OKAY(cuMemsetD2D##bits##Async_ptsz, dev, n / 4 * e, 1, n / 4, (size_t)4, stream);                  \
    } while (0)

static void prepare(char **args)
{
    driver(args);
    second = context(1);
    OKAY(cuMemAlloc_v2, &other, (size_t)(4 << 20));
    first = context(0);
    OKAY(cuMemAlloc_v2, &dev, (size_t)(4 << 20));
    OKAY(cuMemAlloc_v2, &dev2, (size_t)(4 << 20));
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)(4 << 20));
    OKAY(cuMemAllocManaged, &managed, (size_t)(4 << 20), 1);
    heap = map_anon(4 << 20);
    struct { size_t w, h; int format; unsigned channels; } shape = {1024, 1024, 0x20, 1};
    OKAY(cuArrayCreate_v2, &array, &shape);
    OKAY(cuStreamCreate, &stream, 1);
}
static void wide_forms(void)
{
    linear();
    shaped();
    batches();
    SET_OF(8);
    SET_OF(16);
    SET_OF(32);
}

/* The first ABI: 32 bits, and structures of 32 bits. */
struct narrow_plane { unsigned from_x, from_y; int from_type; Ptr from_host; Ptr32 from_device; Array from_array; unsigned from_pitch, to_x, to_y; int to_type; Ptr to_host; Ptr32 to_device; Array to_array; unsigned to_pitch, w, h; };
struct narrow_volume { unsigned from_x, from_y, from_z, from_lod; int from_type; Ptr from_host; Ptr32 from_device; Array from_array; void *from_context; unsigned from_pitch, from_height, to_x, to_y, to_z, to_lod; int to_type; Ptr to_host; Ptr32 to_device; Array to_array; void *to_context; unsigned to_pitch, to_height, w, h, d; };
static void narrow_forms(void)
{
    Ptr32 a, b;
    OKAY(cuMemAlloc, &a, 1 << 20);
    OKAY(cuMemAlloc, &b, 1 << 20);
    OKAY(cuMemcpyHtoD, a, heap, SIZE(H2D_, PAGEABLE));
    OKAY(cuMemcpyHtoDAsync, a, pinned, SIZE(H2D_, PINNED_), stream);
    OKAY(cuMemcpyDtoH, heap, a, SIZE(D2H_, PAGEABLE));
    OKAY(cuMemcpyDtoHAsync, pinned, a, SIZE(D2H_, PINNED_), stream);
    OKAY(cuMemcpyDtoD, b, a, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyDtoDAsync, b, a, SIZE(D2D_, DEVICE_), stream);
    OKAY(cuMemcpyHtoA, array, 0, heap, SIZE(H2D_, PAGEABLE));
    OKAY(cuMemcpyHtoAAsync, array, 0, pinned, SIZE(H2D_, PINNED_), stream);
    OKAY(cuMemcpyAtoH, heap, array, 0, SIZE(D2H_, PAGEABLE));
    OKAY(cuMemcpyAtoHAsync, pinned, array, 0, SIZE(D2H_, PINNED_), stream);
    OKAY(cuMemcpyAtoD, a, array, 0, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyDtoA, array, 0, a, SIZE(D2D_, DEVICE_));
    OKAY(cuMemcpyAtoA, array, 0, array, 0, SIZE(D2D_, DEVICE_));
    OKAY(cuMemsetD8, a, 1, next_size(SET_, DEVICE_, SET, 1));
    OKAY(cuMemsetD16, a, 1, next_size(SET_, DEVICE_, SET, 2) / 2);
    OKAY(cuMemsetD32, a, 1, next_size(SET_, DEVICE_, SET, 4) / 4);
    OKAY(cuMemsetD2D8, a, 64, 1, next_size(SET_, DEVICE_, SET, 16) / 16, 16);
    OKAY(cuMemsetD2D16, a, 64, 1, next_size(SET_, DEVICE_, SET, 32) / 32, 16);
    OKAY(cuMemsetD2D32, a, 64, 1, next_size(SET_, DEVICE_, SET, 64) / 64, 16);
    for (int form = 0; form < 3; form++) {
        size_t bytes = next_size(H2D_, PINNED_, H2D_PINNED, 16);
        struct narrow_plane p = {.from_type = 1, .from_host = pinned, .to_type = 2, .to_device = a, .w = bytes / 16, .h = 16};
        if (form == 0) OKAY(cuMemcpy2D, &p);
        if (form == 1) OKAY(cuMemcpy2DUnaligned, &p);
        if (form == 2) OKAY(cuMemcpy2DAsync, &p, stream);
    }
    for (int form = 0; form < 2; form++) {
        size_t bytes = next_size(D2H_, PINNED_, D2H_PINNED, 32);
        struct narrow_volume v = {.from_type = 2, .from_device = a, .to_type = 1, .to_host = pinned, .w = bytes / 32, .h = 8, .d = 4};
        if (form == 0) OKAY(cuMemcpy3D, &v);
        if (form == 1) OKAY(cuMemcpy3DAsync, &v, stream);
    }
}
