/* A framework over the driver: PyTorch's own figures, and a library that has a pool of its own. */
#include "driver.h"

#define MIB (1ull << 20)
static int torch_of(const char *file, char **args)
{
    driver(args);
    void *c10 = dlopen(beside(file), RTLD_NOW | RTLD_LOCAL);
    need(c10 && dlopen(beside("cupy_runtime.so"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    int (*tell)(int64_t, size_t, size_t, int, int) = dlsym(c10, "c10_tell");
    int64_t (*sum)(int) = dlsym(c10, "c10_sum");
    context(0);
    Ptr block;
    OKAY(cuMemAlloc_v2, &block, (size_t)(20 * MIB));
    tell(5 * MIB, 5 * MIB, 20 * MIB, 1, 0);
    tell(7 * MIB, 12 * MIB, 20 * MIB, 1, 0);
    tell(-5ll * MIB, 7 * MIB, 20 * MIB, 1, 0);
    tell(MIB, MIB, 2 * MIB, 1, 1);
    int calls = tell(100 * MIB, 100 * MIB, 0, 0, -1); /* of the host */
    line("%d calls, %ld %ld %ld", calls, sum(0), sum(1), sum(2));
    return 0;
}
static int torch(char **args) { return torch_of("libc10.so", args); }
/* All in one library, or a copy under another name. */
static int whole(char **args) { return torch_of("libtorch_whole.so", args); }

/* Both figures new, one, none, the other one. */
static int maxima(char **args)
{
    driver(args);
    void *c10 = dlopen(beside("libc10.so"), RTLD_NOW | RTLD_LOCAL);
    need(c10 != 0, "%s", dlerror());
    int (*tell)(int64_t, size_t, size_t, int, int) = dlsym(c10, "c10_tell");
    context(0);
    tell(5 * MIB, 5 * MIB, 20 * MIB, 1, 0);
    tell(-MIB, 4 * MIB, 20 * MIB, 1, 0);
    tell(3 * MIB, 7 * MIB, 20 * MIB, 1, 0);
    tell(-4ll * MIB, 3 * MIB, 20 * MIB, 1, 0);
    tell(0, 3 * MIB, 30 * MIB, 1, 0);
    return 0;
}

/* Two copies, each with its own function and its own figures: one all in one library, the other in two, and in another folder. */
static int twice(char **args)
{
    driver(args);
    context(0);
    const char *files[] = {"libc10.so", "second/libc10_cuda.so"};
    int (*tell[2])(int64_t, size_t, size_t, int, int);
    int64_t (*sum[2])(int);
    for (int i = 0; i < 2; i++) {
        void *c10 = dlopen(beside(files[i]), RTLD_NOW | RTLD_LOCAL);
        need(c10 != 0, "%s", dlerror());
        tell[i] = dlsym(c10, "c10_tell"), sum[i] = dlsym(c10, "c10_sum");
    }
    tell[0](5 * MIB, 5 * MIB, 20 * MIB, 1, 0);
    tell[1](8 * MIB, 8 * MIB, 10 * MIB, 1, 0);
    tell[0](-3ll * MIB, 2 * MIB, 20 * MIB, 1, 0);
    int calls[2];
    for (int i = 0; i < 2; i++)
        calls[i] = tell[i](MIB, 3 * (i + 1) * MIB, 10 * MIB, 1, 0);
    for (int i = 0; i < 2; i++)
        line("%d calls, %ld %ld %ld", calls[i], sum[i](0), sum[i](1), sum[i](2));
    return 0;
}
/* Libraries of frameworks that have pools: known by their paths. */
static int pools(char **args)
{
    driver(args);
    const char *files[] = {"cupy_runtime.so", "xla_cuda_plugin.so", "xla_extension.so", "librmm.so"};
    for (int i = 0; i < 4; i++)
        need(dlopen(beside(files[i]), RTLD_NOW | RTLD_LOCAL) != 0, "%s", dlerror());
    Ptr block;
    context(0);
    OKAY(cuMemAlloc_v2, &block, (size_t)(20 * MIB));
    return 0;
}
/* A library of any name in folders whose names begin as a framework's does, and are none of its own. */
static int folders(char **args)
{
    driver(args);
    const char *folders[] = {"cupy-free", "cupy", "xla_cuda_env", "xla_extension-src", "librmm-dev"};
    char path[64];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/libplain.so", folders[i]);
        need(dlopen(beside(path), RTLD_NOW | RTLD_LOCAL) != 0, "%s", dlerror());
    }
    Ptr block;
    context(0);
    OKAY(cuMemAlloc_v2, &block, (size_t)(20 * MIB));
    return 0;
}
/* CuPy's and RMM's own modules, whose files' names say nothing. */
static int packages(char **args)
{
    driver(args);
    need(dlopen(beside("packages/cupy/cuda/memory.so"), RTLD_NOW | RTLD_LOCAL) != 0, "%s", dlerror());
    need(dlopen(beside("packages/cupy_backends/cuda/driver.so"), RTLD_NOW | RTLD_LOCAL) != 0, "%s", dlerror());
    need(dlopen(beside("packages/rmm/pylibrmm/memory_resource.so"), RTLD_NOW | RTLD_LOCAL) != 0, "%s", dlerror());
    Ptr block;
    context(0);
    OKAY(cuMemAlloc_v2, &block, (size_t)(20 * MIB));
    return 0;
}
/* They are loaded when there has long been a context: one is seen at a later call, the other at the end. */
static int late(char **args)
{
    driver(args);
    Ptr block;
    context(0);
    OKAY(cuMemAlloc_v2, &block, (size_t)MIB);
    need(dlopen(beside("cupy_runtime.so"), RTLD_NOW | RTLD_LOCAL) != 0, "%s", dlerror());
    rest_ms(150);
    OKAY(cuMemAlloc_v2, &block, (size_t)MIB);
    OKAY(cuMemFree_v2, block);
    need(dlopen(beside("librmm.so"), RTLD_NOW | RTLD_LOCAL) != 0, "%s", dlerror());
    return 0;
}
MODES({"folders", folders}, {"late", late}, {"packages", packages}, {"pools", pools}, {"torch", torch}, {"maxima", maxima}, {"whole", whole}, {"twice", twice})
