/* dlsym for everybody else: what it finds, and what it does not, must be what it is without anybody in between. */
#include "driver.h"
#include <link.h>

/* Where something is, without the addresses that differ from run to run. */
static const char *where(void *p)
{
    Dl_info i;
    if (!p) return "nowhere";
    if (!dladdr(p, &i)) return "unknown";
    const char *file = strrchr(i.dli_fname, '/');
    file = file ? file + 1 : i.dli_fname;
    /* Ours stands for what it passes calls on to, and so does another's. */
    return !strcmp(file, "libmemshim.so") || !strncmp(file, "libother_", 9) ? "found" : !strncmp(file, "libcuda.so", 10) || !strncmp(file, "libc.so", 7) ? "found" : file;
}
static void say(const char *what, void *p)
{
    const char *error = dlerror();
    line("%s: %s%s", what, where(p), error ? ", with an error text" : "");
}

static int without_driver(char **args)
{
    say("default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    say("next", dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
    void *self = dlopen(0, RTLD_NOW);
    say("the program's handle", dlsym(self, "cuMemAlloc_v2"));
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    say("libc", dlsym(libc, "cuMemAlloc_v2"));
    say("cudnn", dlsym(RTLD_DEFAULT, "cudnnCreate"));
    say("empty", dlsym(RTLD_DEFAULT, ""));
    return 0;
}

/* The program's own, by names that look like the driver's. */
int cuProgramsOwn(void) { return 1; }
R cuMemcpyPeer(Ptr to, Context tc, Ptr from, Context fc, size_t n) { return 7; }

static int others(char **args)
{
    line("the program's own: %s", dlsym(RTLD_DEFAULT, "cuProgramsOwn") == (void *)cuProgramsOwn ? "found" : "lost");
    R (*peer)(Ptr, Context, Ptr, Context, size_t) = dlsym(RTLD_DEFAULT, "cuMemcpyPeer");
    line("the program's own by a name of the driver's: %d", peer ? peer(0, 0, 0, 0, 0) : -1);
    say("malloc, next", dlsym(RTLD_NEXT, "malloc"));
    say("malloc, default", dlsym(RTLD_DEFAULT, "malloc"));
    say("no such name", dlsym(RTLD_DEFAULT, "no_such_function_anywhere"));
    say("by version", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14"));
    say("by a version that is not", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.9"));
    void *plugin = dlopen(beside("libcuda_plugin.so"), RTLD_NOW);
    need(plugin, "%s", dlerror());
    void *(*next)(const char *) = dlsym(plugin, "plugin_next");
    /* The plugin has a getenv of its own: next is the one behind it, not the one behind us. */
    line("the plugin's next: %s", where(next("plugin_getenv")));
    line("the plugin's next of libc: %s", where(next("getenv")));
    char *(*getenv_)(const char *) = dlsym(plugin, "plugin_getenv");
    line("it works: %s", getenv_("PROGRAM_DIR") ? "yes" : "no");
    /* What stands behind it in the loader's list may be going: nobody looks there for what stands before it. */
    void *(*by_version)(const char *, const char *) = dlsym(plugin, "plugin_next_by_version");
    struct link_map *its = plugin, *behind = its->l_next;
    its->l_next = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *found = by_version("dlsym", "GLIBC_2.2.5");
    its->l_next = behind;
    line("the plugin's next dlsym: %s", where(found));
    return 0;
}

static int with_driver(char **args)
{
    library = dlopen(beside("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL);
    need(library, "%s", dlerror());
    say("by handle", dlsym(library, "cuMemAlloc_v2"));
    say("not hooked", dlsym(library, "cuDriverGetVersion"));
    say("not there", dlsym(library, "cuMemAlloc_v9"));
    say("a prefix", dlsym(library, "cuMem"));
    /* A library of its own scope has the driver in it, the program has not. */
    void *user = dlopen(beside("libcuda_user.so"), RTLD_NOW | RTLD_LOCAL);
    need(user, "%s", dlerror());
    void *(*there)(const char *) = dlsym(user, "plugin_default");
    say("in the scope of a library", there("cuMemAlloc_v2"));
    /* One that another one brought, which needs the driver itself or is beside it. */
    const char *outer[] = {"libcuda_outer.so", "libcuda_both.so"};
    for (int i = 0; i < 2; i++) {
        void *brought = dlopen(beside(outer[i]), RTLD_NOW | RTLD_LOCAL);
        need(brought, "%s", dlerror());
        void *(*inside)(const char *) = dlsym(brought, "plugin_default");
        say(outer[i], inside("cuMemAlloc_v2"));
        say(outer[i], inside("cuMemAlloc_v9"));
    }
    void *plugin = dlopen(beside("libcuda_plugin.so"), RTLD_NOW | RTLD_LOCAL);
    void *(*not_there)(const char *) = dlsym(plugin, "plugin_default");
    say("not in the scope of another", not_there("cuMemAlloc_v2"));
    void *(*next)(const char *) = dlsym(user, "plugin_next");
    say("behind a library", next("cuMemAlloc_v2"));
    say("local: default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    void *global = dlopen(beside("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL);
    say("global: default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    say("global: next", dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
    void *self = dlopen(0, RTLD_NOW);
    say("global: the program's handle", dlsym(self, "cuMemAlloc_v2"));
    /* All three lead to the one driver. */
    R (*init)(unsigned) = dlsym(library, "cuInit");
    R (*alloc)(Ptr *, size_t) = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    R (*alloc2)(Ptr *, size_t) = dlsym(self, "cuMemAlloc_v2");
    init(0);
    way = "dlsym";
    context(0);
    Ptr p;
    need(!alloc(&p, 1 << 20) && !alloc2(&p, 1 << 20), "alloc");
    R (*find)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");
    int status = 7;
    void *f = (void *)1;
    line("no name: %d", find("", &f, 0, 0, &status));
    line("no such: %d, status %d", find("cuNothing", &f, 12000, 0, &status), status);
    line("nowhere to put it: %d", find("cuMemAlloc", 0, 12000, 0, 0));
    line("too old: %d", find("cuMemAllocAsync", &f, 11000, 0, &status));
    void *old, *young, *own;
    need(!find("cuGetProcAddress", &old, 11030, 0, 0) && !find("cuGetProcAddress", &young, 12000, 0, 0) && old != young, "two ABIs of one name");
    need(!find("cuMemcpyBatchAsync", &old, 12080, 0, 0) && !find("cuMemcpyBatchAsync", &young, 13000, 0, 0) && old != young, "two ABIs of one name");
    need(!find("cuMemcpyAsync", &old, 12000, 1, 0) && !find("cuMemcpyAsync", &own, 12000, 2, 0) && old != own, "two default streams");
    need(!find("cuMemAlloc", &old, 12000, 2, 0) && old, "a call without a stream has one flavour");
    return 0;
}

/* Opened to see whether it is there, closed, and opened again for work. */
static int reopened(char **args)
{
    for (int i = 0; i < 3; i++) {
        library = dlopen(beside("libcuda.so.1"), RTLD_NOW);
        need(library, "%s", dlerror());
        R (*init)(unsigned) = dlsym(library, "cuInit");
        void *(*find)(void) = dlsym(library, "cuGetProcAddress_v2");
        need(find && !init(0), "init");
        void *in_between = i == 1 ? 0 : map_anon(64 << 20);
        need(!dlclose(library), "close");
        (void)in_between;
    }
    way = "proc";
    char *again[] = {"proc", 0};
    driver(again);
    context(0);
    Ptr p;
    OKAY(cuMemAlloc_v2, &p, (size_t)(3 << 20));
    return 0;
}

/* Asked for a newer ABI than it has, a driver gives the one it has. */
static int older_driver(char **args)
{
    driver(args);
    context(0);
    R (*find)(const char *, void **, int, uint64_t) = dlsym(library, "cuGetProcAddress");
    R (*prefetch)(), (*batch)(Ptr *, Ptr *, size_t *, size_t, void *, void *, size_t, size_t *, Stream), (*alloc)(Ptr *, size_t);
    Ptr managed, pinned, dev;
    Stream s;
    need(!find("cuMemPrefetchAsync", (void **)&prefetch, 13000, 0) && !find("cuMemAlloc", (void **)&alloc, 13000, 0), "what every driver has");
    OKAY(cuMemAllocManaged, &managed, (size_t)(1 << 20), 1);
    OKAY(cuMemAllocHost_v2, &pinned, (size_t)(1 << 20));
    OKAY(cuStreamCreate, &s, 1);
    need(!alloc(&dev, 1 << 20), "memory");
    Location here = {1, 0}, host = {2, 0};
    if (driver_version >= 12020)
        need(!prefetch(managed, (size_t)100000, here, 0, s) && !prefetch(managed, (size_t)200000, host, 0, s), "prefetches");
    else
        need(!prefetch(managed, (size_t)100000, 0, s) && !prefetch(managed, (size_t)200000, -1, s), "prefetches by the first ABI");
    R r = find("cuMemcpyBatchAsync", (void **)&batch, 13000, 0);
    need((r == 0) == (driver_version >= 12080), "batches: %d", r);
    Ptr to[2] = {dev, dev + 65536}, from[2] = {pinned, pinned + 65536};
    size_t n[2] = {30000, 40000}, failed;
    if (!r)
        need(!batch(to, from, n, 2, 0, 0, 0, &failed, s), "a batch");
    OKAY(cuStreamSynchronize, s);
    return 0;
}

MODES({"older_driver", older_driver}, {"reopened", reopened}, {"without_driver", without_driver}, {"others", others}, {"with_driver", with_driver})
