/* Copies and memsets in all their forms. Each becomes one operation of a stream, or a node of the graph that the stream captures. */

static int64_t took(uint64_t bytes, int rate) { return LATENCY + (int64_t)(bytes * 1000 / rate); }

/* The rate of a copy between two addresses, arrays being device memory (0). */
static int rate_between(Ptr to, Ptr from, int to_array, int from_array)
{
    struct block *t = to_array ? 0 : block_of(to), *f = from_array ? 0 : block_of(from);
    int t_host = !to_array && (!t || t->kind == PINNED || t->kind == REGISTERED), f_host = !from_array && (!f || f->kind == PINNED || f->kind == REGISTERED);
    if (t_host && f_host)
        return H2H;
    if (f_host)
        return f ? H2D_PINNED : H2D_PAGEABLE;
    if (t_host)
        return t ? D2H_PINNED : D2H_PAGEABLE;
    return t && f && t->device != f->device ? P2P : D2D;
}

/* An operation that moves bytes: into the graph or onto the clock. */
static R operate(const char *name, Stream s, int waits, uint64_t bytes, int rate, int set)
{
    if (!s)
        return INVALID_CONTEXT;
    struct capture *k = capture_by(s->capture);
    if (k) {
        if (waits) {
            k->broken = 1;
            return CAPTURE_UNSUPPORTED;
        }
        node_of_graph(s, set, bytes);
        return OK;
    }
    if (waits && unsafe_now())
        return CAPTURE_UNSUPPORTED;
    int64_t ends = schedule(s, took(bytes, rate));
    ran(set ? SET_RUNS : COPY_RUNS, s, ends - took(bytes, rate), ends, bytes, rate, 0, 0);
    if (waits && ends > now_ns)
        now_ns = ends;
    return OK;
}

static R copy(const char *name, Ptr to, Ptr from, uint64_t n, int to_array, int from_array, Stream s, int waits)
{
    ENTER(name);
    if (!initialised)
        return leave(NOT_INITIALIZED);
    R r = operate(name, s, waits, n, rate_between(to, from, to_array, from_array), 0);
    if (!r && !to_array && !from_array && !(s->capture))
        memmove((void *)to, (void *)from, n);
    return leave(r);
}
#define copy(...) NAMED((copy)(__VA_ARGS__))
static R set(const char *name, Ptr p, uint64_t bytes, int value, Stream s, int waits)
{
    ENTER(name);
    R r = operate(name, s, waits, bytes, SET, 1);
    if (!r && s && !s->capture)
        memset((void *)p, value, bytes);
    return leave(r);
}
#define set(...) NAMED((set)(__VA_ARGS__))

#define LEGACY resolve(0, 0)
#define OWN resolve(0, 1)
/* Half of a copy to the device of more than FAKE_SPLITS bytes, which is made as two, each by the exported name of what was called; else 0. */
static size_t half_of(const char *name, size_t n)
{
    const char *most = getenv("FAKE_SPLITS");
    return most && !strcmp(name, "cuMemcpyHtoD") && n > strtoull(most, 0, 10) ? n / 2 : 0;
}
/* A copy by address: the symbols of its ABIs, with and without a stream. */
#define LINEAR(name, TO, FROM)                                                                                                                       \
    API R name##_v2(TO to, FROM from, size_t n)                                                                                                      \
    {                                                                                                                                                \
        R (*volatile by_name)(TO, FROM, size_t) = name##_v2;                                                                                         \
        size_t half = half_of(#name, n);                                                                                                                   \
        if (half)                                                                                                                                    \
            return by_name(to, from, half) ?: by_name(to + half, from + half, n - half);                                                         \
        return copy(#name, (Ptr)to, (Ptr)from, n, 0, 0, LEGACY, 1);                                                                                  \
    }                                                                                                                                                \
    API R name##_v2_ptds(TO to, FROM from, size_t n) { return copy(#name, (Ptr)to, (Ptr)from, n, 0, 0, OWN, 1); }                                    \
    API R name##Async_v2(TO to, FROM from, size_t n, Stream s) { return copy(#name "Async", (Ptr)to, (Ptr)from, n, 0, 0, resolve(s, 0), 0); }        \
    API R name##Async_v2_ptsz(TO to, FROM from, size_t n, Stream s) { return copy(#name "Async", (Ptr)to, (Ptr)from, n, 0, 0, resolve(s, 1), 0); }
LINEAR(cuMemcpyHtoD, Ptr, const void *)
LINEAR(cuMemcpyDtoH, void *, Ptr)
LINEAR(cuMemcpyDtoD, Ptr, Ptr)
#define NARROW(name, TO, FROM)                                                                                                                       \
    API R name(TO to, FROM from, unsigned n) { return copy(#name, (Ptr)to, (Ptr)from, n, 0, 0, LEGACY, 1); }                                         \
    API R name##Async(TO to, FROM from, unsigned n, Stream s) { return copy(#name "Async", (Ptr)to, (Ptr)from, n, 0, 0, resolve(s, 0), 0); }
NARROW(cuMemcpyHtoD, Ptr32, const void *)
NARROW(cuMemcpyDtoH, void *, Ptr32)
NARROW(cuMemcpyDtoD, Ptr32, Ptr32)
API R cuMemcpy(Ptr to, Ptr from, size_t n) { return copy("cuMemcpy", to, from, n, 0, 0, LEGACY, 1); }
API R cuMemcpy_ptds(Ptr to, Ptr from, size_t n) { return copy("cuMemcpy", to, from, n, 0, 0, OWN, 1); }
API R cuMemcpyAsync(Ptr to, Ptr from, size_t n, Stream s) { return copy("cuMemcpyAsync", to, from, n, 0, 0, resolve(s, 0), 0); }
API R cuMemcpyAsync_ptsz(Ptr to, Ptr from, size_t n, Stream s) { return copy("cuMemcpyAsync", to, from, n, 0, 0, resolve(s, 1), 0); }
API R cuMemcpyWithAttributesAsync(Ptr to, Ptr from, size_t n, void *a, Stream s) { return copy("cuMemcpyWithAttributesAsync", to, from, n, 0, 0, resolve(s, 0), 0); }
API R cuMemcpyWithAttributesAsync_ptsz(Ptr to, Ptr from, size_t n, void *a, Stream s) { return copy("cuMemcpyWithAttributesAsync", to, from, n, 0, 0, resolve(s, 1), 0); }

static R peer(const char *name, Ptr to, Context tc, Ptr from, Context fc, uint64_t n, Stream s, int waits)
{
    ENTER(name);
    R r = operate(name, s, waits, n, tc->device == fc->device ? D2D : P2P, 0);
    if (!r && !s->capture)
        memmove((void *)to, (void *)from, n);
    return leave(r);
}
#define peer(...) NAMED((peer)(__VA_ARGS__))
API R cuMemcpyPeer(Ptr to, Context tc, Ptr from, Context fc, size_t n) { return peer("cuMemcpyPeer", to, tc, from, fc, n, LEGACY, 1); }
API R cuMemcpyPeer_ptds(Ptr to, Context tc, Ptr from, Context fc, size_t n) { return peer("cuMemcpyPeer", to, tc, from, fc, n, OWN, 1); }
API R cuMemcpyPeerAsync(Ptr to, Context tc, Ptr from, Context fc, size_t n, Stream s) { return peer("cuMemcpyPeerAsync", to, tc, from, fc, n, resolve(s, 0), 0); }
API R cuMemcpyPeerAsync_ptsz(Ptr to, Context tc, Ptr from, Context fc, size_t n, Stream s) { return peer("cuMemcpyPeerAsync", to, tc, from, fc, n, resolve(s, 1), 0); }

/* Arrays hold nothing here. */
#define ARRAYS(name, SIZE, P, suffix, s)                                                                                                              \
    API R cuMemcpyAtoA##name(Array to, SIZE a, Array from, SIZE b, SIZE n) { return copy("cuMemcpyAtoA", 0, 0, n, 1, 1, s, 1); }                      \
    API R cuMemcpyAtoD##name(P to, Array from, SIZE a, SIZE n) { return copy("cuMemcpyAtoD", to, 0, n, 0, 1, s, 1); }                                 \
    API R cuMemcpyDtoA##name(Array to, SIZE a, P from, SIZE n) { return copy("cuMemcpyDtoA", 0, from, n, 1, 0, s, 1); }                               \
    API R cuMemcpyAtoH##name(void *to, Array from, SIZE a, SIZE n) { return copy("cuMemcpyAtoH", (Ptr)to, 0, n, 0, 1, s, 1); }                        \
    API R cuMemcpyHtoA##name(Array to, SIZE a, const void *from, SIZE n) { return copy("cuMemcpyHtoA", 0, (Ptr)from, n, 1, 0, s, 1); }
ARRAYS(, unsigned, Ptr32, , LEGACY)
ARRAYS(_v2, size_t, Ptr, , LEGACY)
ARRAYS(_v2_ptds, size_t, Ptr, , OWN)
#define ARRAYS_ASYNC(name, SIZE, own)                                                                                                                 \
    API R cuMemcpyAtoHAsync##name(void *to, Array from, SIZE a, SIZE n, Stream s) { return copy("cuMemcpyAtoHAsync", (Ptr)to, 0, n, 0, 1, resolve(s, own), 0); } \
    API R cuMemcpyHtoAAsync##name(Array to, SIZE a, const void *from, SIZE n, Stream s) { return copy("cuMemcpyHtoAAsync", 0, (Ptr)from, n, 1, 0, resolve(s, own), 0); }
ARRAYS_ASYNC(, unsigned, 0)
ARRAYS_ASYNC(_v2, size_t, 0)
ARRAYS_ASYNC(_v2_ptsz, size_t, 1)

struct plane { size_t from_x, from_y; int from_type; Ptr from_host, from_device; Array from_array; size_t from_pitch, to_x, to_y; int to_type; Ptr to_host, to_device; Array to_array; size_t to_pitch, w, h; };
struct narrow_plane { unsigned from_x, from_y; int from_type; Ptr from_host; Ptr32 from_device; Array from_array; unsigned from_pitch, to_x, to_y; int to_type; Ptr to_host; Ptr32 to_device; Array to_array; unsigned to_pitch, w, h; };
struct volume { size_t from_x, from_y, from_z, from_lod; int from_type; Ptr from_host, from_device; Array from_array; Context from_context; size_t from_pitch, from_height, to_x, to_y, to_z, to_lod; int to_type; Ptr to_host, to_device; Array to_array; Context to_context; size_t to_pitch, to_height, w, h, d; };
struct narrow_volume { unsigned from_x, from_y, from_z, from_lod; int from_type; Ptr from_host; Ptr32 from_device; Array from_array; void *from_context; unsigned from_pitch, from_height, to_x, to_y, to_z, to_lod; int to_type; Ptr to_host; Ptr32 to_device; Array to_array; void *to_context; unsigned to_pitch, to_height, w, h, d; };
#define ENDS(p) p->to_type == 1 ? p->to_host : p->to_device, p->from_type == 1 ? p->from_host : p->from_device, p->to_type == 3, p->from_type == 3
static R plane(const char *name, const struct plane *p, Stream s, int waits)
{
    uint64_t bytes = p->w * p->h;
    ENTER(name);
    Ptr ends[2] = {p->to_type == 1 ? p->to_host : p->to_device, p->from_type == 1 ? p->from_host : p->from_device};
    R r = operate(name, s, waits, bytes, rate_between(ends[0], ends[1], p->to_type == 3, p->from_type == 3), 0);
    if (!r && !s->capture && p->to_type != 3 && p->from_type != 3)
        for (size_t y = 0; y < p->h; y++)
            memmove((char *)ends[0] + y * p->to_pitch, (char *)ends[1] + y * p->from_pitch, p->w);
    return leave(r);
}
#define plane(...) NAMED((plane)(__VA_ARGS__))
static R plane_narrow(const char *name, const struct narrow_plane *p, Stream s, int waits)
{
    uint64_t bytes = (uint64_t)p->w * p->h;
    ENTER(name);
    return leave(operate(name, s, waits, bytes, rate_between(ENDS(p)), 0));
}
#define plane_narrow(...) NAMED((plane_narrow)(__VA_ARGS__))
API R cuMemcpy2D(const struct narrow_plane *p) { return plane_narrow("cuMemcpy2D", p, LEGACY, 1); }
API R cuMemcpy2D_v2(const struct plane *p) { return plane("cuMemcpy2D", p, LEGACY, 1); }
API R cuMemcpy2D_v2_ptds(const struct plane *p) { return plane("cuMemcpy2D", p, OWN, 1); }
API R cuMemcpy2DUnaligned(const struct narrow_plane *p) { return plane_narrow("cuMemcpy2DUnaligned", p, LEGACY, 1); }
API R cuMemcpy2DUnaligned_v2(const struct plane *p) { return plane("cuMemcpy2DUnaligned", p, LEGACY, 1); }
API R cuMemcpy2DUnaligned_v2_ptds(const struct plane *p) { return plane("cuMemcpy2DUnaligned", p, OWN, 1); }
API R cuMemcpy2DAsync(const struct narrow_plane *p, Stream s) { return plane_narrow("cuMemcpy2DAsync", p, resolve(s, 0), 0); }
API R cuMemcpy2DAsync_v2(const struct plane *p, Stream s) { return plane("cuMemcpy2DAsync", p, resolve(s, 0), 0); }
API R cuMemcpy2DAsync_v2_ptsz(const struct plane *p, Stream s) { return plane("cuMemcpy2DAsync", p, resolve(s, 1), 0); }
static R volume(const char *name, const struct volume *p, Stream s, int waits)
{
    uint64_t bytes = p->w * p->h * p->d;
    ENTER(name);
    int rate = p->from_context && p->to_context ? (p->from_context->device == p->to_context->device ? D2D : P2P) : rate_between(ENDS(p));
    return leave(operate(name, s, waits, bytes, rate, 0));
}
#define volume(...) NAMED((volume)(__VA_ARGS__))
static R volume_narrow(const char *name, const struct narrow_volume *p, Stream s, int waits)
{
    uint64_t bytes = (uint64_t)p->w * p->h * p->d;
    ENTER(name);
    return leave(operate(name, s, waits, bytes, rate_between(ENDS(p)), 0));
}
#define volume_narrow(...) NAMED((volume_narrow)(__VA_ARGS__))
API R cuMemcpy3D(const struct narrow_volume *p) { return volume_narrow("cuMemcpy3D", p, LEGACY, 1); }
API R cuMemcpy3D_v2(const struct volume *p) { return volume("cuMemcpy3D", p, LEGACY, 1); }
API R cuMemcpy3D_v2_ptds(const struct volume *p) { return volume("cuMemcpy3D", p, OWN, 1); }
API R cuMemcpy3DAsync(const struct narrow_volume *p, Stream s) { return volume_narrow("cuMemcpy3DAsync", p, resolve(s, 0), 0); }
API R cuMemcpy3DAsync_v2(const struct volume *p, Stream s) { return volume("cuMemcpy3DAsync", p, resolve(s, 0), 0); }
API R cuMemcpy3DAsync_v2_ptsz(const struct volume *p, Stream s) { return volume("cuMemcpy3DAsync", p, resolve(s, 1), 0); }
API R cuMemcpy3DPeer(const struct volume *p) { return volume("cuMemcpy3DPeer", p, LEGACY, 1); }
API R cuMemcpy3DPeer_ptds(const struct volume *p) { return volume("cuMemcpy3DPeer", p, OWN, 1); }
API R cuMemcpy3DPeerAsync(const struct volume *p, Stream s) { return volume("cuMemcpy3DPeerAsync", p, resolve(s, 0), 0); }
API R cuMemcpy3DPeerAsync_ptsz(const struct volume *p, Stream s) { return volume("cuMemcpy3DPeerAsync", p, resolve(s, 1), 0); }

static R many(const char *name, Ptr *to, Ptr *from, size_t *n, size_t count, size_t *failed, Stream s)
{
    ENTER(name);
    R r = OK;
    for (size_t i = 0; i < count && !r; i++)
        if (!(r = operate(name, s, 0, n[i], rate_between(to[i], from[i], 0, 0), 0)) && !s->capture)
            memmove((void *)to[i], (void *)from[i], n[i]);
    return leave(r);
}
#define many(...) NAMED((many)(__VA_ARGS__))
API R cuMemcpyBatchAsync(Ptr *to, Ptr *from, size_t *n, size_t count, void *a, size_t *b, size_t c, size_t *failed, Stream s) { return many("cuMemcpyBatchAsync", to, from, n, count, failed, resolve(s, 0)); }
API R cuMemcpyBatchAsync_ptsz(Ptr *to, Ptr *from, size_t *n, size_t count, void *a, size_t *b, size_t c, size_t *failed, Stream s) { return many("cuMemcpyBatchAsync", to, from, n, count, failed, resolve(s, 1)); }
API R cuMemcpyBatchAsync_v2(Ptr *to, Ptr *from, size_t *n, size_t count, void *a, size_t *b, size_t c, Stream s) { return many("cuMemcpyBatchAsync", to, from, n, count, 0, resolve(s, 0)); }
API R cuMemcpyBatchAsync_v2_ptsz(Ptr *to, Ptr *from, size_t *n, size_t count, void *a, size_t *b, size_t c, Stream s) { return many("cuMemcpyBatchAsync", to, from, n, count, 0, resolve(s, 1)); }
struct operand { int type; union { struct { Ptr at; size_t row, layer; Location hint; } pointer; struct { Array a; size_t x, y, z; } array; } of; };
struct operation { struct operand from, to; size_t w, h, d; int order; unsigned flags; };
static R volumes(const char *name, const struct operation *o, size_t count, Stream s)
{
    ENTER(name);
    R r = OK;
    for (size_t i = 0; i < count && !r; i++)
        r = operate(name, s, 0, o[i].w * o[i].h * o[i].d, rate_between(o[i].to.of.pointer.at, o[i].from.of.pointer.at, o[i].to.type == 2, o[i].from.type == 2), 0);
    return leave(r);
}
#define volumes(...) NAMED((volumes)(__VA_ARGS__))
API R cuMemcpy3DBatchAsync(size_t n, struct operation *o, size_t *failed, uint64_t flags, Stream s) { return volumes("cuMemcpy3DBatchAsync", o, n, resolve(s, 0)); }
API R cuMemcpy3DBatchAsync_ptsz(size_t n, struct operation *o, size_t *failed, uint64_t flags, Stream s) { return volumes("cuMemcpy3DBatchAsync", o, n, resolve(s, 1)); }
API R cuMemcpy3DBatchAsync_v2(size_t n, struct operation *o, uint64_t flags, Stream s) { return volumes("cuMemcpy3DBatchAsync", o, n, resolve(s, 0)); }
API R cuMemcpy3DBatchAsync_v2_ptsz(size_t n, struct operation *o, uint64_t flags, Stream s) { return volumes("cuMemcpy3DBatchAsync", o, n, resolve(s, 1)); }
API R cuMemcpy3DWithAttributesAsync(struct operation *o, uint64_t flags, Stream s) { return volumes("cuMemcpy3DWithAttributesAsync", o, 1, resolve(s, 0)); }
API R cuMemcpy3DWithAttributesAsync_ptsz(struct operation *o, uint64_t flags, Stream s) { return volumes("cuMemcpy3DWithAttributesAsync", o, 1, resolve(s, 1)); }

/* Prefetches take the pinned rates. */
static R prefetch(const char *name, size_t n, int to_device, Stream s)
{
    ENTER(name);
    by_pages = 1;
    R r = operate(name, s, 0, n, to_device ? H2D_PINNED : D2H_PINNED, 0);
    by_pages = 0;
    return leave(r);
}
API R cuMemPrefetchAsync(Ptr p, size_t n, int device, Stream s) { return prefetch("cuMemPrefetchAsync", n, device >= 0, resolve(s, 0)); }
API R cuMemPrefetchAsync_ptsz(Ptr p, size_t n, int device, Stream s) { return prefetch("cuMemPrefetchAsync", n, device >= 0, resolve(s, 1)); }
API R cuMemPrefetchAsync_v2(Ptr p, size_t n, Location l, unsigned flags, Stream s) { return prefetch("cuMemPrefetchAsync", n, l.type == 1, resolve(s, 0)); }
API R cuMemPrefetchAsync_v2_ptsz(Ptr p, size_t n, Location l, unsigned flags, Stream s) { return prefetch("cuMemPrefetchAsync", n, l.type == 1, resolve(s, 1)); }
static R prefetch_many(size_t *n, size_t count, Location *l, Stream s)
{
    size_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += n[i];
    return prefetch("cuMemPrefetchBatchAsync", sum, l->type == 1, s);
}
API R cuMemPrefetchBatchAsync(Ptr *p, size_t *n, size_t count, Location *l, size_t *first, size_t locations, uint64_t flags, Stream s) { return prefetch_many(n, count, l, resolve(s, 0)); }
API R cuMemPrefetchBatchAsync_ptsz(Ptr *p, size_t *n, size_t count, Location *l, size_t *first, size_t locations, uint64_t flags, Stream s) { return prefetch_many(n, count, l, resolve(s, 1)); }

#define SETS(bits, T)                                                                                                                                 \
    API R cuMemsetD##bits(Ptr32 p, T v, unsigned n) { return set("cuMemsetD" #bits, p, (uint64_t)n * bits / 8, v, LEGACY, 1); }                       \
    API R cuMemsetD##bits##_v2(Ptr p, T v, size_t n) { return set("cuMemsetD" #bits, p, n * bits / 8, v, LEGACY, 1); }                                \
    API R cuMemsetD##bits##_v2_ptds(Ptr p, T v, size_t n) { return set("cuMemsetD" #bits, p, n * bits / 8, v, OWN, 1); }                              \
    API R cuMemsetD##bits##Async(Ptr p, T v, size_t n, Stream s) { return set("cuMemsetD" #bits "Async", p, n * bits / 8, v, resolve(s, 0), 0); }     \
    API R cuMemsetD##bits##Async_ptsz(Ptr p, T v, size_t n, Stream s) { return set("cuMemsetD" #bits "Async", p, n * bits / 8, v, resolve(s, 1), 0); } \
    API R cuMemsetD2D##bits(Ptr32 p, unsigned pitch, T v, unsigned w, unsigned h) { return set("cuMemsetD2D" #bits, p, (uint64_t)w * h * bits / 8, v, LEGACY, 1); } \
    API R cuMemsetD2D##bits##_v2(Ptr p, size_t pitch, T v, size_t w, size_t h) { return set("cuMemsetD2D" #bits, p, w * h * bits / 8, v, LEGACY, 1); } \
    API R cuMemsetD2D##bits##_v2_ptds(Ptr p, size_t pitch, T v, size_t w, size_t h) { return set("cuMemsetD2D" #bits, p, w * h * bits / 8, v, OWN, 1); } \
    API R cuMemsetD2D##bits##Async(Ptr p, size_t pitch, T v, size_t w, size_t h, Stream s) { return set("cuMemsetD2D" #bits "Async", p, w * h * bits / 8, v, resolve(s, 0), 0); } \
    API R cuMemsetD2D##bits##Async_ptsz(Ptr p, size_t pitch, T v, size_t w, size_t h, Stream s) { return set("cuMemsetD2D" #bits "Async", p, w * h * bits / 8, v, resolve(s, 1), 0); }
SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned)
