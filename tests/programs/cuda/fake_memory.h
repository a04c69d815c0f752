/* Memory: device, managed, pinned, pools, physical handles, arrays. Device addresses are addresses of the host, so copies really copy. */

enum kind { DEVICE, MANAGED, POOLED, PINNED, REGISTERED, MAPPED, IMPORTED, GRAPHED };
static struct block {
    Ptr at;
    size_t len;
    enum kind kind;
    Context ctx;
    int device;
    Pool pool;
    Handle handle;
    struct block *next;
} *blocks;
struct pool {
    int device;
    uint64_t used, used_high, reserved, reserved_high;
};
struct handle {
    size_t len;
    int device, refs, maps, imported;
};
struct array {
    size_t len;
    Context ctx;
    struct array *next;
};
static Array arrays;
static struct pool default_pool[DEVICES] = {{0}, {1}};
static uint64_t used[DEVICES];
static const uint64_t total[DEVICES] = {80ull << 30, 24ull << 30};
#define CONTEXT_BYTES (300ull << 20) /* what a context takes for itself */
#define POOL_STEP (32ull << 20)

static struct block *block_of(Ptr p)
{
    for (struct block *b = blocks; b; b = b->next)
        if (p >= b->at && p < b->at + b->len)
            return b;
    return 0;
}
static Ptr room(size_t len, int low)
{
    void *p = mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (low ? MAP_32BIT : 0), -1, 0);
    return p == MAP_FAILED ? 0 : (Ptr)p;
}
static int fits(int device, uint64_t len)
{
    return used[device] + len <= total[device] - CONTEXT_BYTES;
}
static struct block *add_block(Ptr at, size_t len, enum kind kind)
{
    struct block *b = calloc(1, sizeof *b);
    b->at = at, b->len = len, b->kind = kind, b->ctx = current, b->device = current ? current->device : 0, b->next = blocks;
    return blocks = b;
}
static void drop_block(struct block *b)
{
    for (struct block **p = &blocks; *p; p = &(*p)->next)
        if (*p == b) {
            *p = b->next;
            break;
        }
    if (b->kind == DEVICE || b->kind == MANAGED)
        used[b->device] -= b->len;
    if (b->kind == POOLED)
        b->pool->used -= b->len;
    if (b->kind != REGISTERED && b->kind != MAPPED && b->kind != IMPORTED)
        munmap((void *)b->at, b->len);
    free(b);
}
static R get(const char *name, Ptr *out, size_t len, enum kind kind, int low)
{
    ENTER(name);
    if (!current)
        return leave(INVALID_CONTEXT);
    if (!len || !out)
        return leave(INVALID_VALUE);
    if (unsafe_now())
        return leave(CAPTURE_UNSUPPORTED);
    int on_device = kind == DEVICE || kind == MANAGED;
    if (on_device && !fits(current->device, len))
        return leave(OUT_OF_MEMORY);
    Ptr p = room(len, low);
    if (!p)
        return leave(OUT_OF_MEMORY);
    if (on_device)
        used[current->device] += len;
    add_block(p, len, kind);
    *out = p;
    return leave(OK);
}
static R drop(const char *name, Ptr p, int host)
{
    ENTER(name);
    if (!p)
        return leave(OK);
    struct block *b = block_of(p);
    if (!b || b->at != p || (b->kind == PINNED) != host || b->kind == REGISTERED)
        return leave(INVALID_VALUE);
    if (b->ctx && b->ctx->legacy.ready > now_ns)
        now_ns = b->ctx->legacy.ready;
    drop_block(b);
    return leave(OK);
}
API R cuMemAlloc_v2(Ptr *p, size_t n) { return get("cuMemAlloc", p, n, DEVICE, 0); }
API R cuMemAlloc(Ptr32 *p, unsigned n)
{
    Ptr wide = 0;
    R r = get("cuMemAlloc", &wide, n, DEVICE, 1);
    if (!r)
        *p = wide;
    return r;
}
API R cuMemAllocPitch_v2(Ptr *p, size_t *pitch, size_t w, size_t h, unsigned element)
{
    *pitch = (w + 511) / 512 * 512;
    return get("cuMemAllocPitch", p, *pitch * h, DEVICE, 0);
}
API R cuMemAllocPitch(Ptr32 *p, unsigned *pitch, unsigned w, unsigned h, unsigned element)
{
    Ptr wide = 0;
    *pitch = (w + 511) / 512 * 512;
    R r = get("cuMemAllocPitch", &wide, *pitch * h, DEVICE, 1);
    if (!r)
        *p = wide;
    return r;
}
API R cuMemAllocManaged(Ptr *p, size_t n, unsigned flags) { return get("cuMemAllocManaged", p, n, MANAGED, 0); }
API R cuMemFree_v2(Ptr p) { return drop("cuMemFree", p, 0); }
API R cuMemFree(Ptr32 p) { return drop("cuMemFree", p, 0); }
API R cuMemAllocHost_v2(Ptr *p, size_t n) { return get("cuMemAllocHost", p, n, PINNED, 0); }
API R cuMemAllocHost(Ptr *p, unsigned n) { return get("cuMemAllocHost", p, n, PINNED, 0); }
API R cuMemHostAlloc(Ptr *p, size_t n, unsigned flags) { return get("cuMemHostAlloc", p, n, PINNED, 0); }
API R cuMemFreeHost(Ptr p) { return drop("cuMemFreeHost", p, 1); }
API R cuMemHostRegister_v2(Ptr p, size_t n, unsigned flags)
{
    ENTER("cuMemHostRegister");
    add_block(p, n, REGISTERED);
    return leave(OK);
}
API R cuMemHostRegister(Ptr p, unsigned n, unsigned flags) { return cuMemHostRegister_v2(p, n, flags); }
API R cuMemHostUnregister(Ptr p)
{
    ENTER("cuMemHostUnregister");
    struct block *b = block_of(p);
    if (!b || b->kind != REGISTERED)
        return leave(713);
    drop_block(b);
    return leave(OK);
}
API R cuMemGetInfo_v2(size_t *free_, size_t *total_)
{
    ENTER("cuMemGetInfo");
    if (!current)
        return leave(INVALID_CONTEXT);
    *free_ = total[current->device] - used[current->device] - CONTEXT_BYTES;
    *total_ = total[current->device];
    return leave(OK);
}
API R cuMemGetInfo(unsigned *free_, unsigned *total_)
{
    *free_ = *total_ = 0;
    return allowed("cuMemGetInfo");
}
API R cuPointerGetAttribute(void *data, int what, Ptr p)
{
    ENTER("cuPointerGetAttribute");
    struct block *b = block_of(p);
    if (!b)
        return leave(INVALID_VALUE);
    int host = b->kind == PINNED || b->kind == REGISTERED;
    if (what == 2)
        *(unsigned *)data = host ? 1 : 2;
    else if (what == 8)
        *(char *)data = b->kind == MANAGED;
    else if (what == 9)
        *(int *)data = b->device;
    else
        return leave(INVALID_VALUE);
    return leave(OK);
}

API R cuMemGetAddressRange_v2(Ptr *base, size_t *len, Ptr p)
{
    ENTER("cuMemGetAddressRange");
    struct block *b = block_of(p);
    if (!b || b->kind == PINNED || b->kind == REGISTERED)
        return leave(INVALID_VALUE);
    *base = b->at, *len = b->len;
    return leave(OK);
}

#include "fake_pools.h"

static R new_array(const char *name, Array *a, size_t len)
{
    ENTER(name);
    if (!current)
        return leave(INVALID_CONTEXT);
    *a = calloc(1, sizeof **a);
    (*a)->len = len, (*a)->ctx = current, (*a)->next = arrays, arrays = *a;
    used[current->device] += len;
    return leave(OK);
}
static R drop_array(const char *name, Array a)
{
    ENTER(name);
    used[a->ctx->device] -= a->len;
    a->len = 0;
    return leave(OK);
}
struct descriptor { size_t w, h, d; int format; unsigned channels, flags; };
struct descriptor2 { size_t w, h; int format; unsigned channels; };
struct narrow3 { unsigned w, h, d; int format; unsigned channels, flags; };
struct narrow2 { unsigned w, h; int format; unsigned channels; };
static size_t width_of(int format) { return format == 0x20 || format == 3 ? 4 : format == 0x10 ? 2 : 1; }
static size_t max1(size_t n) { return n ? n : 1; }
#define LEN2(d) (d->w * max1(d->h) * d->channels * width_of(d->format))
API R cuArrayCreate_v2(Array *a, const struct descriptor2 *d) { return new_array("cuArrayCreate", a, LEN2(d)); }
API R cuArrayCreate(Array *a, const struct narrow2 *d) { return new_array("cuArrayCreate", a, LEN2(d)); }
API R cuArray3DCreate_v2(Array *a, const struct descriptor *d) { return new_array("cuArray3DCreate", a, LEN2(d) * max1(d->d)); }
API R cuArray3DCreate(Array *a, const struct narrow3 *d) { return new_array("cuArray3DCreate", a, LEN2(d) * max1(d->d)); }
API R cuArrayDestroy(Array a) { return drop_array("cuArrayDestroy", a); }
API R cuMipmappedArrayCreate(Array *a, const struct descriptor *d, unsigned levels)
{
    size_t sum = 0, w = d->w, h = d->h, deep = d->d;
    while (levels--)
        sum += w * max1(h) * max1(deep) * d->channels * width_of(d->format), w = max1(w / 2), h /= 2, deep /= 2;
    return new_array("cuMipmappedArrayCreate", a, sum);
}
API R cuMipmappedArrayDestroy(Array a) { return drop_array("cuMipmappedArrayDestroy", a); }

/* Memory of others. */
struct ipc { char bytes[64]; };
API R cuIpcOpenMemHandle_v2(Ptr *p, struct ipc h, unsigned flags)
{
    ENTER("cuIpcOpenMemHandle");
    if (memcmp(h.bytes, "shared", 6) || flags != 1)
        return leave(INVALID_VALUE);
    *p = room(4096, 0);
    add_block(*p, 4096, IMPORTED);
    return leave(OK);
}
API R cuIpcOpenMemHandle(Ptr *p, struct ipc h, unsigned flags) { return cuIpcOpenMemHandle_v2(p, h, flags); }
API R cuIpcCloseMemHandle(Ptr p) { return drop("cuIpcCloseMemHandle", p, 0); }
API R cuImportExternalMemory(void **e, const uint64_t *descriptor)
{
    ENTER("cuImportExternalMemory");
    *e = calloc(1, 8);
    *(uint64_t *)*e = descriptor[3];
    return leave(OK);
}
API R cuExternalMemoryGetMappedBuffer(Ptr *p, void *e, const uint64_t *descriptor)
{
    ENTER("cuExternalMemoryGetMappedBuffer");
    *p = room(descriptor[1], 0);
    add_block(*p, descriptor[1], IMPORTED);
    return leave(OK);
}
API R cuDestroyExternalMemory(void *e)
{
    ENTER("cuDestroyExternalMemory");
    return leave(OK);
}

static void end_context(Context c)
{
    for (int again = 1; again;) {
        again = 0;
        for (struct block *b = blocks; b; b = b->next)
            if (b->ctx == c && b->kind != POOLED && b->kind != MAPPED) {
                drop_block(b);
                again = 1;
                break;
            }
    }
    for (Array a = arrays; a; a = a->next)
        if (a->ctx == c)
            used[c->device] -= a->len, a->len = 0;
    for (Stream s = streams; s; s = s->next)
        if (s->ctx == c) {
            struct capture *k = capture_by(s->capture);
            if (k)
                k->open = 0;
            s->live = 0;
        }
}
