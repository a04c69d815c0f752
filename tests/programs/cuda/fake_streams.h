/* Contexts, streams, events, and the rules of captures. */

struct stream {
    int64_t ready; /* when its last operation ends */
    Context ctx;
    int blocking, live;
    uint64_t capture; /* number of the capture it is part of, 0 none */
    int number;
    struct stream *next;
};
struct event {
    int64_t at;
    uint64_t capture; /* recorded into this capture: has no time */
    int live, of_capture;
};
struct context {
    int device, live, made, primary;
    struct stream legacy;
    struct context *next;
};
static struct capture {
    uint64_t id;
    int mode, open, broken;
    Graph graph;
    Stream origin;
} captures[64];
static uint64_t capture_count;

static Context contexts;
static Stream streams;
static Context primary[DEVICES];
static int primary_uses[DEVICES];
static __thread Context current;
static __thread int capture_mode; /* GLOBAL */
static __thread struct stream own_default;
static int stream_numbers = 12;

static struct capture *capture_by(uint64_t id)
{
    for (int i = 0; id && i < 64; i++)
        if (captures[i].id == id && captures[i].open)
            return &captures[i];
    return 0;
}
/* A call that a capture in another thread's or this thread's hands does not allow. */
static int unsafe_now(void)
{
    for (int i = 0; i < 64; i++)
        if (captures[i].open && captures[i].mode == 0 && capture_mode != 2) {
            captures[i].broken = 1;
            return 1;
        }
    return 0;
}
static Stream resolve(Stream s, int per_thread)
{
    if ((uintptr_t)s == 2 || (!s && per_thread)) {
        own_default.ctx = current, own_default.live = 1, own_default.blocking = 1;
        if (!own_default.number)
            own_default.number = __atomic_add_fetch(&stream_numbers, 1, __ATOMIC_RELAXED);
        return &own_default;
    }
    if ((uintptr_t)s <= 1)
        return current ? &current->legacy : 0;
    return s->live ? s : 0;
}
static Context new_context(int device, int made)
{
    Context c = calloc(1, sizeof *c);
    c->device = device, c->live = 1, c->made = made, c->next = contexts, c->legacy.ctx = c, c->legacy.live = c->legacy.blocking = 1, c->legacy.number = 7;
    return contexts = c;
}
/* An operation of a stream: when it begins and ends. The context's own stream and the blocking ones wait for each other. */
static int64_t schedule(Stream s, int64_t took)
{
    int64_t begins = s->ready > now_ns ? s->ready : now_ns;
    Stream legacy = &s->ctx->legacy;
    if (s == legacy) {
        for (Stream o = streams; o; o = o->next)
            if (o->live && o->blocking && o->ctx == s->ctx && o->ready > begins)
                begins = o->ready;
    } else if (s->blocking && legacy->ready > begins)
        begins = legacy->ready;
    return s->ready = begins + took;
}

API R cuCtxGetCurrent(Context *c)
{
    *c = current;
    return initialised ? OK : NOT_INITIALIZED;
}
API R cuCtxSetCurrent(Context c)
{
    /* Threads but the first get no processor, as it were. */
    if (getenv("FAKE_STARVED") && gettid() != getpid())
        sleep(10);
    current = c;
    return OK;
}
/* What is below the current one on the thread's stack. */
static __thread Context below[16];
static __thread int depth;
API R cuCtxPushCurrent_v2(Context c)
{
    if (!c || depth == 16)
        return INVALID_CONTEXT;
    below[depth++] = current;
    current = c;
    return OK;
}
API R cuCtxPopCurrent_v2(Context *c)
{
    if (!current)
        return INVALID_CONTEXT;
    if (c)
        *c = current;
    current = depth ? below[--depth] : 0;
    return OK;
}
API R cuCtxGetDevice(int *d)
{
    if (!current)
        return INVALID_CONTEXT;
    *d = current->device;
    return OK;
}
API R cuDevicePrimaryCtxRetain(Context *c, int d)
{
    ENTER("cuDevicePrimaryCtxRetain");
    if (!primary[d])
        primary[d] = new_context(d, 0), primary[d]->primary = 1;
    primary[d]->live = 1;
    primary_uses[d]++;
    *c = primary[d];
    return leave(OK);
}
API R fake_hold_primary(int d)
{
    Context c;
    return cuDevicePrimaryCtxRetain(&c, d);
}
API R cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active)
{
    *flags = 0, *active = primary_uses[d] > 0;
    return OK;
}
static R create_context(Context *c, int d)
{
    ENTER("cuCtxCreate");
    *c = current = new_context(d, 1);
    return leave(OK);
}
API R cuCtxCreate(Context *c, unsigned flags, int d) { return create_context(c, d); }
API R cuCtxCreate_v2(Context *c, unsigned flags, int d) { return create_context(c, d); }
API R cuCtxCreate_v3(Context *c, void *params, int n, unsigned flags, int d) { return create_context(c, d); }
API R cuCtxCreate_v4(Context *c, void *params, unsigned flags, int d) { return create_context(c, d); }

static void end_context(Context c);

API R cuCtxDestroy_v2(Context c)
{
    ENTER("cuCtxDestroy");
    if (!c || !c->live)
        return leave(INVALID_CONTEXT);
    end_context(c);
    c->live = 0;
    if (current == c)
        current = 0;
    return leave(OK);
}
API R cuCtxDestroy(Context c) { return cuCtxDestroy_v2(c); }
API R cuDevicePrimaryCtxReset_v2(int d)
{
    ENTER("cuDevicePrimaryCtxReset");
    if (primary[d])
        end_context(primary[d]);
    primary_uses[d] = 0, primary[d] = 0;
    return leave(OK);
}
API R cuDevicePrimaryCtxReset(int d) { return cuDevicePrimaryCtxReset_v2(d); }
API R cuDevicePrimaryCtxRelease_v2(int d)
{
    ENTER("cuDevicePrimaryCtxRelease");
    if (--primary_uses[d] == 0)
        end_context(primary[d]), primary[d] = 0;
    return leave(OK);
}
API R cuDevicePrimaryCtxRelease(int d) { return cuDevicePrimaryCtxRelease_v2(d); }

static R create_stream(const char *name, Stream *s, unsigned flags)
{
    ENTER(name);
    if (!current)
        return leave(INVALID_CONTEXT);
    Stream n = calloc(1, sizeof *n);
    n->number = __atomic_add_fetch(&stream_numbers, 1, __ATOMIC_RELAXED), n->ctx = current, n->live = 1, n->blocking = !(flags & 1), n->next = streams, streams = n;
    *s = n;
    return leave(OK);
}
API R cuStreamCreate(Stream *s, unsigned flags) { return create_stream("cuStreamCreate", s, flags); }
API R cuStreamCreateWithPriority(Stream *s, unsigned flags, int p) { return create_stream("cuStreamCreateWithPriority", s, flags); }
API R cuGreenCtxStreamCreate(Stream *s, void *green, unsigned flags, int p) { return create_stream("cuGreenCtxStreamCreate", s, flags); }
API R cuStreamDestroy_v2(Stream s)
{
    ENTER("cuStreamDestroy");
    if (!s || !s->live)
        return leave(INVALID_HANDLE);
    struct capture *k = capture_by(s->capture);
    if (k)
        k->open = 0;
    s->live = 0;
    return leave(OK);
}
API R cuStreamDestroy(Stream s) { return cuStreamDestroy_v2(s); }
static R wait_for(const char *name, Stream s)
{
    ENTER(name);
    if (!s)
        return leave(INVALID_HANDLE);
    if (s->capture) {
        struct capture *k = capture_by(s->capture);
        if (k)
            k->broken = 1;
        return leave(CAPTURE_UNSUPPORTED);
    }
    if (s->ready > now_ns)
        now_ns = s->ready;
    return leave(OK);
}
API R cuStreamSynchronize(Stream s) { return wait_for("cuStreamSynchronize", resolve(s, 0)); }
API R cuStreamSynchronize_ptsz(Stream s) { return wait_for("cuStreamSynchronize", resolve(s, 1)); }
API R cuCtxSynchronize(void)
{
    ENTER("cuCtxSynchronize");
    if (!current)
        return leave(INVALID_CONTEXT);
    for (Stream s = streams; s; s = s->next)
        if (s->live && s->ctx == current && s->ready > now_ns)
            now_ns = s->ready;
    if (current->legacy.ready > now_ns)
        now_ns = current->legacy.ready;
    if (own_default.ready > now_ns)
        now_ns = own_default.ready;
    return leave(OK);
}
API R cuCtxSynchronize_v2(Context c) { return cuCtxSynchronize(); }
API R cuStreamQuery(Stream s)
{
    ENTER("cuStreamQuery");
    if (slow_us)
        usleep(slow_us);
    s = resolve(s, 0);
    if (!s)
        return leave(INVALID_HANDLE);
    struct capture *k = capture_by(s->capture);
    if (k || unsafe_now()) {
        if (k)
            k->broken = 1;
        return leave(CAPTURE_UNSUPPORTED);
    }
    return leave(s->ready > now_ns ? NOT_READY : OK);
}

API R cuEventCreate(Event *e, unsigned flags)
{
    ENTER("cuEventCreate");
    if (!current)
        return leave(INVALID_CONTEXT);
    *e = calloc(1, sizeof **e);
    (*e)->live = 1;
    return leave(OK);
}
API R cuEventDestroy_v2(Event e)
{
    ENTER("cuEventDestroy");
    if (!e || !e->live)
        return leave(INVALID_HANDLE);
    e->live = 0;
    return leave(OK);
}
API R cuEventDestroy(Event e) { return cuEventDestroy_v2(e); }
static R record(Event e, Stream s)
{
    ENTER("cuEventRecord");
    if (!s || !e || !e->live)
        return leave(INVALID_HANDLE);
    if ((e->capture = s->capture))
        return leave(OK);
    e->at = schedule(s, 0);
    return leave(OK);
}
API R cuEventRecord(Event e, Stream s) { return record(e, resolve(s, 0)); }
API R cuEventRecord_ptsz(Event e, Stream s) { return record(e, resolve(s, 1)); }
API R cuEventQuery(Event e)
{
    ENTER("cuEventQuery");
    if (slow_us)
        usleep(slow_us);
    if (!e || !e->live)
        return leave(INVALID_HANDLE);
    if (unsafe_now())
        return leave(CAPTURE_UNSUPPORTED);
    if (e->capture)
        return leave(CAPTURED_EVENT);
    return leave(e->at > now_ns ? NOT_READY : OK);
}
API R cuEventSynchronize(Event e)
{
    ENTER("cuEventSynchronize");
    if (e->at > now_ns)
        now_ns = e->at;
    return leave(OK);
}
API R cuEventElapsedTime_v2(float *ms, Event a, Event b)
{
    ENTER("cuEventElapsedTime");
    if (!a->live || !b->live)
        return leave(INVALID_HANDLE);
    if (a->capture || b->capture)
        return leave(CAPTURED_EVENT);
    if (a->at > now_ns || b->at > now_ns)
        return leave(NOT_READY);
    *ms = (b->at - a->at) / 1e6;
    return leave(OK);
}
API R cuEventElapsedTime(float *ms, Event a, Event b) { return cuEventElapsedTime_v2(ms, a, b); }
static R wait_event(Stream s, Event e)
{
    ENTER("cuStreamWaitEvent");
    if (!s || !e)
        return leave(INVALID_HANDLE);
    if (e->capture)
        s->capture = e->capture;
    else if (e->at > s->ready)
        s->ready = e->at;
    return leave(OK);
}
API R cuStreamWaitEvent(Stream s, Event e, unsigned flags) { return wait_event(resolve(s, 0), e); }
API R cuStreamWaitEvent_ptsz(Stream s, Event e, unsigned flags) { return wait_event(resolve(s, 1), e); }
API R cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;
    capture_mode = *mode, *mode = before;
    return OK;
}
static R is_capturing(Stream s, int legacy, int *status, uint64_t *id)
{
    ENTER("cuStreamIsCapturing");
    *status = 0;
    if (!s)
        return leave(INVALID_HANDLE);
    for (int i = 0; legacy && i < 64; i++)
        if (captures[i].open && captures[i].origin->blocking && captures[i].origin->ctx == s->ctx && captures[i].origin != s)
            return leave(CAPTURE_IMPLICIT);
    struct capture *k = capture_by(s->capture);
    if (!k)
        s->capture = 0;
    *status = k ? k->broken ? 2 : 1 : 0;
    if (id)
        *id = k ? k->id : 0;
    return leave(OK);
}
API R cuStreamIsCapturing(Stream s, int *status) { return is_capturing(resolve(s, 0), (uintptr_t)s < 2, status, 0); }
API R cuStreamGetCaptureInfo(Stream s, int *status, uint64_t *id) { return is_capturing(resolve(s, 0), (uintptr_t)s < 2, status, id); }
