/* Graphs and kernels. A kernel's function is the number of nanoseconds that it takes. A launched graph takes what its nodes take, one by one. */

struct step { int what; int64_t took; uint64_t bytes, number; };
struct graph {
    int64_t took;
    uint64_t copied, memory;
    int nodes, live, count;
    struct step steps[32];
};
struct exec {
    struct graph g;
    int live;
};

static uint64_t node_numbers = 100;
static void add_step(Graph g, int what, int64_t took, uint64_t bytes)
{
    g->nodes++, g->took += took;
    if (g->count == 32)
        abort();
    g->steps[g->count++] = (struct step){what, took, bytes, ++node_numbers};
}
static void add_child(Graph g, Graph child)
{
    g->copied += child->copied;
    for (int i = 0; i < child->count; i++)
        add_step(g, child->steps[i].what, child->steps[i].took, child->steps[i].bytes);
}
static void node_of_graph(Stream s, int set_, size_t bytes)
{
    struct capture *k = capture_by(s->capture);
    add_step(k->graph, set_ ? SET_RUNS : COPY_RUNS, took(bytes, set_ ? SET : D2D), bytes);
    k->graph->copied += bytes;
}
/* Memory of a graph has its address at once, and is taken while the graph is instantiated. */
static Ptr add_memory(Graph g, size_t bytes)
{
    Ptr p = room(bytes, 0);
    add_block(p, bytes, GRAPHED);
    g->nodes++, g->memory += bytes;
    return p;
}
static Ptr memory_of_graph(Stream s, size_t bytes) { return add_memory(capture_by(s->capture)->graph, bytes); }
static Graph new_graph(void)
{
    Graph g = calloc(1, sizeof *g);
    g->live = 1;
    return g;
}
static R begin(const char *name, Stream s, int mode, Graph into)
{
    ENTER(name);
    if (!s || s == &current->legacy)
        return leave(CAPTURE_UNSUPPORTED);
    for (int i = 0; i < 64; i++)
        if (!captures[i].open) {
            captures[i] = (struct capture){++capture_count, mode, 1, 0, into ? into : new_graph(), s};
            s->capture = capture_count;
            return leave(OK);
        }
    return leave(OUT_OF_MEMORY);
}
API R cuStreamBeginCapture(Stream s) { return begin("cuStreamBeginCapture", resolve(s, 0), 0, 0); }
API R cuStreamBeginCapture_ptsz(Stream s) { return begin("cuStreamBeginCapture", resolve(s, 1), 0, 0); }
API R cuStreamBeginCapture_v2(Stream s, int mode) { return begin("cuStreamBeginCapture", resolve(s, 0), mode, 0); }
API R cuStreamBeginCapture_v2_ptsz(Stream s, int mode) { return begin("cuStreamBeginCapture", resolve(s, 1), mode, 0); }
API R cuStreamBeginCaptureToGraph(Stream s, Graph g, void *dependencies, void *data, size_t n, int mode) { return begin("cuStreamBeginCaptureToGraph", resolve(s, 0), mode, g); }
API R cuStreamBeginCaptureToGraph_ptsz(Stream s, Graph g, void *dependencies, void *data, size_t n, int mode) { return begin("cuStreamBeginCaptureToGraph", resolve(s, 1), mode, g); }
static R begin_again(Stream s, int mode, Graph g)
{
    R r = begin("cuStreamBeginRecaptureToGraph", s, mode, g);
    if (!r)
        g->count = g->nodes = g->took = g->copied = g->memory = 0;
    return r;
}
API R cuStreamBeginRecaptureToGraph(Stream s, int mode, Graph g, void *told, void *data) { return begin_again(resolve(s, 0), mode, g); }
API R cuStreamBeginRecaptureToGraph_ptsz(Stream s, int mode, Graph g, void *told, void *data) { return begin_again(resolve(s, 1), mode, g); }
API R cuStreamBeginCaptureToCig(Stream s, void *params) { return begin("cuStreamBeginCaptureToCig", resolve(s, 0), 2, 0); }
API R cuStreamBeginCaptureToCig_ptsz(Stream s, void *params) { return begin("cuStreamBeginCaptureToCig", resolve(s, 1), 2, 0); }
API R fake_begin_capture(Stream s, int mode) { return begin("", s, mode, 0); }
static R end(const char *name, Stream s, Graph *g)
{
    ENTER(name);
    *g = 0;
    if (!s)
        return leave(INVALID_HANDLE);
    struct capture *k = capture_by(s->capture);
    if (!k || k->origin != s)
        return leave(CAPTURE_UNMATCHED);
    for (Stream o = streams; o; o = o->next)
        if (o->capture == k->id)
            o->capture = 0;
    s->capture = 0;
    k->open = 0;
    if (k->broken)
        return leave(CAPTURE_INVALIDATED);
    *g = k->graph;
    return leave(OK);
}
API R cuStreamEndCapture(Stream s, Graph *g) { return end("cuStreamEndCapture", resolve(s, 0), g); }
API R cuStreamEndCapture_ptsz(Stream s, Graph *g) { return end("cuStreamEndCapture", resolve(s, 1), g); }
API R cuStreamEndCaptureToCig(Stream s) { Graph g; return end("cuStreamEndCaptureToCig", resolve(s, 0), &g); }
API R cuStreamEndCaptureToCig_ptsz(Stream s) { Graph g; return end("cuStreamEndCaptureToCig", resolve(s, 1), &g); }
API R cuGraphCreate(Graph *g, unsigned flags)
{
    ENTER("cuGraphCreate");
    *g = new_graph();
    return leave(OK);
}
API R cuGraphClone(Graph *clone, Graph g)
{
    ENTER("cuGraphClone");
    *clone = new_graph();
    **clone = *g;
    return leave(OK);
}
API R cuGraphDestroy(Graph g)
{
    ENTER("cuGraphDestroy");
    g->live = 0;
    return leave(OK);
}
static R instantiate(const char *name, struct exec **e, Graph g)
{
    ENTER(name);
    *e = calloc(1, sizeof **e);
    (*e)->g = *g, (*e)->live = 1;
    used[current->device] += g->memory;
    return leave(OK);
}
API R cuGraphInstantiate(Exec *e, Graph g, void *node, char *log, size_t n) { return instantiate("cuGraphInstantiate", e, g); }
API R cuGraphInstantiate_v2(Exec *e, Graph g, void *node, char *log, size_t n) { return instantiate("cuGraphInstantiate", e, g); }
API R cuGraphInstantiateWithFlags(Exec *e, Graph g, uint64_t flags) { return instantiate("cuGraphInstantiateWithFlags", e, g); }
API R cuGraphInstantiateWithParams(Exec *e, Graph g, void *params) { return instantiate("cuGraphInstantiateWithParams", e, g); }
API R cuGraphInstantiateWithParams_ptsz(Exec *e, Graph g, void *params) { return instantiate("cuGraphInstantiateWithParams", e, g); }
static R update(Exec e, Graph g)
{
    ENTER("cuGraphExecUpdate");
    e->g = *g;
    return leave(OK);
}
API R cuGraphExecUpdate(Exec e, Graph g, void *node, void *result) { return update(e, g); }
API R cuGraphExecUpdate_v2(Exec e, Graph g, void *result) { return update(e, g); }
API R cuGraphExecDestroy(Exec e)
{
    ENTER("cuGraphExecDestroy");
    e->live = 0;
    used[current->device] -= e->g.memory;
    return leave(OK);
}
static R launch_graph(Exec e, Stream s)
{
    ENTER("cuGraphLaunch");
    if (!s || !e || !e->live)
        return leave(INVALID_HANDLE);
    int64_t at = schedule(s, e->g.took) - e->g.took;
    for (struct step *n = e->g.steps; n < e->g.steps + e->g.count; at += n++->took)
        ran(n->what, s, at, at + n->took, n->bytes, D2D, n->took, n->number);
    return leave(OK);
}
#define launch_graph(...) NAMED((launch_graph)(__VA_ARGS__))
API R cuGraphLaunch(Exec e, Stream s) { return launch_graph(e, resolve(s, 0)); }
API R cuGraphLaunch_ptsz(Exec e, Stream s) { return launch_graph(e, resolve(s, 1)); }
API R cuGraphUpload(Exec e, Stream s) { return allowed("cuGraphUpload"); }
API R cuGraphUpload_ptsz(Exec e, Stream s) { return allowed("cuGraphUpload"); }
static R add(const char *name, Graph g, int what, uint64_t bytes, int64_t length)
{
    ENTER(name);
    add_step(g, what, length, bytes);
    g->copied += what == COPY_RUNS ? bytes : 0;
    return leave(OK);
}
API R cuGraphAddMemcpyNode(void **node, Graph g, void **d, size_t n, const struct volume *p, Context c)
{
    uint64_t bytes = p->w * p->h * p->d;
    return add("cuGraphAddMemcpyNode", g, COPY_RUNS, bytes, took(bytes, D2D));
}
struct set_node { Ptr at; size_t pitch; unsigned value, element; size_t w, h; };
API R cuGraphAddMemsetNode(void **node, Graph g, void **d, size_t n, const struct set_node *p, Context c)
{
    uint64_t bytes = p->element * p->w * p->h;
    return add("cuGraphAddMemsetNode", g, SET_RUNS, bytes, took(bytes, SET));
}
struct alloc_node { int type, handles; Location at; void *security; size_t most; char reserved[56]; const void *access; size_t accesses, bytes; Ptr address; };
API R cuGraphAddMemAllocNode(void **node, Graph g, void **d, size_t n, struct alloc_node *p)
{
    ENTER("cuGraphAddMemAllocNode");
    p->address = add_memory(g, p->bytes);
    return leave(OK);
}
API R cuGraphAddMemFreeNode(void **node, Graph g, void **d, size_t n, Ptr p)
{
    struct block *b = block_of(p);
    return allowed("cuGraphAddMemFreeNode") ?: b && b->kind == GRAPHED ? OK : INVALID_VALUE;
}
API R cuGraphAddChildGraphNode(void **node, Graph g, void **d, size_t n, Graph child)
{
    ENTER("cuGraphAddChildGraphNode");
    add_child(g, child);
    return leave(OK);
}
struct node { int type, reserved[3]; union { struct { int flags, reserved; Context c; struct volume p; } copy; struct set_node set; Graph child; struct alloc_node alloc; Ptr address; } of; };
static R add_node(Graph g, struct node *n)
{
    R r = allowed("cuGraphAddNode");
    if (r)
        return r;
    switch (n->type) {
    case 1: return cuGraphAddMemcpyNode(0, g, 0, 0, &n->of.copy.p, 0);
    case 2: return cuGraphAddMemsetNode(0, g, 0, 0, &n->of.set, 0);
    case 10: return cuGraphAddMemAllocNode(0, g, 0, 0, &n->of.alloc);
    case 11: return cuGraphAddMemFreeNode(0, g, 0, 0, n->of.address);
    case 4: return cuGraphAddChildGraphNode(0, g, 0, 0, n->of.child);
    }
    return add("cuGraphAddNode", g, KERNEL_RUNS, 0, 1000);
}
API R cuGraphAddNode(void **node, Graph g, void **d, size_t n, struct node *p) { return add_node(g, p); }
API R cuGraphAddNode_v2(void **node, Graph g, void **d, void *data, size_t n, struct node *p) { return add_node(g, p); }
API R cuGraphAddNode_v3(void **node, Graph g, void **d, void *data, size_t n, struct node *p, void *more, void *last) { return allowed("cuGraphAddNode") ?: last == (void *)7 ? OK : INVALID_VALUE; }
API R cuGraphExecMemcpyNodeSetParams(Exec e, void *node, const struct volume *p, Context c) { return allowed("cuGraphExecMemcpyNodeSetParams"); }
API R cuGraphExecMemsetNodeSetParams(Exec e, void *node, const struct set_node *p, Context c) { return allowed("cuGraphExecMemsetNodeSetParams"); }
API R cuGraphExecKernelNodeSetParams(Exec e, void *node, void *p) { return allowed("cuGraphExecKernelNodeSetParams"); }
API R cuGraphExecKernelNodeSetParams_v2(Exec e, void *node, void *p) { return allowed("cuGraphExecKernelNodeSetParams"); }
API R cuGraphExecNodeSetParams(Exec e, void *node, void *p) { return allowed("cuGraphExecNodeSetParams"); }
API R cuGraphExecChildGraphNodeSetParams(Exec e, void *node, Graph g) { return allowed("cuGraphExecChildGraphNodeSetParams"); }

static R kernel(const char *name, int64_t length, Stream s)
{
    ENTER(name);
    if (!s)
        return leave(INVALID_HANDLE);
    struct capture *k = capture_by(s->capture);
    if (k) {
        add_step(k->graph, KERNEL_RUNS, length, 0);
        return leave(OK);
    }
    int64_t ends = schedule(s, length);
    ran(KERNEL_RUNS, s, ends - length, ends, 0, 0, length, 0);
    return leave(OK);
}
#define kernel(...) NAMED((kernel)(__VA_ARGS__))
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
/* The last argument is checked: it comes by the stack. */
#define EXTRA(e) (e && *(uint64_t *)e != 0x5eed ? INVALID_VALUE : OK)
API R cuLaunchKernel(int64_t f, GRID, Stream s, void **params, void **extra) { return EXTRA(extra) ?: kernel("cuLaunchKernel", f, resolve(s, 0)); }
API R cuLaunchKernel_ptsz(int64_t f, GRID, Stream s, void **params, void **extra) { return EXTRA(extra) ?: kernel("cuLaunchKernel", f, resolve(s, 1)); }
API R cuLaunchCooperativeKernel(int64_t f, GRID, Stream s, void **params) { return kernel("cuLaunchCooperativeKernel", f, resolve(s, 0)); }
API R cuLaunchCooperativeKernel_ptsz(int64_t f, GRID, Stream s, void **params) { return kernel("cuLaunchCooperativeKernel", f, resolve(s, 1)); }
struct config { unsigned gx, gy, gz, bx, by, bz, shared; Stream s; void *attributes; unsigned n; };
API R cuLaunchKernelEx(const struct config *c, int64_t f, void **params, void **extra) { return kernel("cuLaunchKernelEx", f, resolve(c->s, 0)); }
API R cuLaunchKernelEx_ptsz(const struct config *c, int64_t f, void **params, void **extra) { return kernel("cuLaunchKernelEx", f, resolve(c->s, 1)); }
