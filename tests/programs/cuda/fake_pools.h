/* Pools of memory in stream order, and physical memory by handles. */

/* Pools: they reserve in steps and keep what they have until trimmed. */
static void node_of_graph(Stream s, int kind, size_t bytes);
static Ptr memory_of_graph(Stream s, size_t bytes);
static R from_pool(const char *name, Ptr *out, size_t n, Pool pool, Stream s)
{
    ENTER(name);
    if (!s)
        return leave(INVALID_HANDLE);
    if (s->capture) {
        *out = memory_of_graph(s, n);
        return leave(OK);
    }
    if (!pool)
        pool = &default_pool[s->ctx->device];
    uint64_t needs = pool->used + n > pool->reserved ? (pool->used + n - pool->reserved + POOL_STEP - 1) / POOL_STEP * POOL_STEP : 0;
    if (!fits(pool->device, needs))
        return leave(OUT_OF_MEMORY);
    pool->reserved += needs, used[pool->device] += needs, pool->used += n;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    *out = room(n, 0);
    struct block *b = add_block(*out, n, POOLED);
    b->pool = pool, b->device = pool->device;
    schedule(s, 0);
    return leave(OK);
}
API R cuMemAllocAsync(Ptr *p, size_t n, Stream s) { return from_pool("cuMemAllocAsync", p, n, 0, resolve(s, 0)); }
API R cuMemAllocAsync_ptsz(Ptr *p, size_t n, Stream s) { return from_pool("cuMemAllocAsync", p, n, 0, resolve(s, 1)); }
API R cuMemAllocFromPoolAsync(Ptr *p, size_t n, Pool pool, Stream s) { return from_pool("cuMemAllocFromPoolAsync", p, n, pool, resolve(s, 0)); }
API R cuMemAllocFromPoolAsync_ptsz(Ptr *p, size_t n, Pool pool, Stream s) { return from_pool("cuMemAllocFromPoolAsync", p, n, pool, resolve(s, 1)); }
static R free_in_order(Ptr p, Stream s)
{
    struct block *b = block_of(p);
    if (s && s->capture)
        return b && b->kind == GRAPHED ? OK : INVALID_VALUE;
    return drop("cuMemFreeAsync", p, 0);
}
API R cuMemFreeAsync(Ptr p, Stream s) { return free_in_order(p, resolve(s, 0)); }
API R cuMemFreeAsync_ptsz(Ptr p, Stream s) { return free_in_order(p, resolve(s, 1)); }
API R cuDeviceGetMemPool(Pool *p, int d)
{
    *p = &default_pool[d];
    return OK;
}
API R cuMemPoolCreate(Pool *p, const int *properties)
{
    ENTER("cuMemPoolCreate");
    *p = calloc(1, sizeof **p);
    (*p)->device = properties[3];
    return leave(OK);
}
API R cuMemPoolTrimTo(Pool p, size_t keep)
{
    ENTER("cuMemPoolTrimTo");
    uint64_t least = p->used > keep ? p->used : keep;
    least = (least + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    if (least < p->reserved)
        used[p->device] -= p->reserved - least, p->reserved = least;
    return leave(OK);
}
API R cuMemPoolDestroy(Pool p)
{
    ENTER("cuMemPoolDestroy");
    used[p->device] -= p->reserved, p->reserved = 0;
    return leave(OK);
}
API R cuMemPoolGetAttribute(Pool p, int what, uint64_t *v)
{
    *v = what == 5 ? p->reserved : what == 6 ? p->reserved_high : what == 7 ? p->used : what == 8 ? p->used_high : 0;
    return what >= 5 && what <= 8 ? OK : INVALID_VALUE;
}
API R cuMemPoolSetAttribute(Pool p, int what, uint64_t *v)
{
    ENTER("cuMemPoolSetAttribute");
    if (what == 6)
        p->reserved_high = p->reserved;
    if (what == 8)
        p->used_high = p->used;
    return leave(OK);
}

/* Physical memory by handles; a handle lives until it is neither held nor mapped. */
static void let_go(Handle h)
{
    if (h->refs == 0 && h->maps == 0 && !h->imported)
        used[h->device] -= h->len;
}
API R cuMemCreate(Handle *h, size_t n, const int *properties, uint64_t flags)
{
    ENTER("cuMemCreate");
    if (!fits(properties[3], n))
        return leave(OUT_OF_MEMORY);
    *h = calloc(1, sizeof **h);
    (*h)->len = n, (*h)->device = properties[3], (*h)->refs = 1;
    used[(*h)->device] += n;
    return leave(OK);
}
API R cuMemRelease(Handle h)
{
    ENTER("cuMemRelease");
    if (h->refs == 0)
        return leave(INVALID_VALUE);
    h->refs--;
    let_go(h);
    return leave(OK);
}
API R cuMemAddressReserve(Ptr *p, size_t n, size_t align, Ptr at, uint64_t flags)
{
    *p = room(n, 0);
    return OK;
}
API R cuMemAddressFree(Ptr p, size_t n)
{
    munmap((void *)p, n);
    return OK;
}
API R cuMemSetAccess(Ptr p, size_t n, const void *access, size_t count) { return OK; }
API R cuMemMap(Ptr p, size_t n, size_t offset, Handle h, uint64_t flags)
{
    ENTER("cuMemMap");
    struct block *b = add_block(p, n, MAPPED);
    b->handle = h, b->device = h->device;
    h->maps++;
    return leave(OK);
}
API R cuMemUnmap(Ptr p, size_t n)
{
    ENTER("cuMemUnmap");
    struct block *b;
    while ((b = block_of(p)) && b->kind == MAPPED && n) {
        Handle h = b->handle;
        p += b->len, n -= b->len > n ? n : b->len;
        drop_block(b);
        h->maps--;
        let_go(h);
    }
    return leave(OK);
}
API R cuMemRetainAllocationHandle(Handle *h, void *p)
{
    ENTER("cuMemRetainAllocationHandle");
    struct block *b = block_of((Ptr)p);
    if (!b || b->kind != MAPPED)
        return leave(INVALID_VALUE);
    *h = b->handle;
    b->handle->refs++;
    return leave(OK);
}
struct properties { int type, handles; Location at; void *security; uint64_t flags; };
API R cuMemGetAllocationPropertiesFromHandle(struct properties *p, Handle h)
{
    ENTER("cuMemGetAllocationPropertiesFromHandle");
    *p = (struct properties){1, 1, {1, h->device}};
    return leave(OK);
}
API R cuMemImportFromShareableHandle(Handle *h, void *of_system, int type)
{
    ENTER("cuMemImportFromShareableHandle");
    *h = calloc(1, sizeof **h);
    (*h)->refs = (*h)->imported = 1;
    return leave(OK);
}

