/* Calls that the driver refuses before it looks at what pointers point to: these lead nowhere here. */
#include "driver.h"

static const struct { const char *symbol, *name; } hooked[] = {
#define X(symbol, name, version, per_thread) {#symbol, name},
#include "abi.inc"
#undef X
    {"cuInit", "cuInit"}, {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"},
};
#define HOOKED (sizeof hooked / sizeof *hooked)

/* Of which there are no rows. */
static int is_lookup(unsigned i) { return !strcmp(hooked[i].name, "cuGetProcAddress"); }

/* Every hooked function, with a word for each argument: each way once in a context, once in none. */
static void refuse(uintptr_t w)
{
    for (unsigned i = 0; i < HOOKED; i++) {
        R (*f)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
        f = has(hooked[i].symbol) ? address(hooked[i].symbol) : 0;
        if (!f)
            continue;
        CU(fake_fail, hooked[i].name, 700 + i % 90, 0);
        R r = f(w, w, w, w, w, w, w, w, w, w, w, w, w, w);
        need(r == (R)(700 + i % 90), "%s of %lx: %d", hooked[i].symbol, (long)w, r);
        if (!is_lookup(i))
            line("REFUSED %s", hooked[i].name);
    }
}
static int all(char **args)
{
    driver(args);
    Context c = context(0);
    for (int place = 0; place < 2; place++) {
        refuse(0);
        refuse(8);
        OKAY(cuCtxSetCurrent, place ? c : (Context)0);
    }
    return 0;
}

/* The same by the driver's own judgement: nothing to launch, no stream, no context. */
static int by_itself(char **args)
{
    driver(args);
    Context c = context(0);
    void *const nowhere = (void *)8;
    Stream none = (Stream)12345;
    size_t many = 1 << 20;
    need(CU(cuLaunchCooperativeKernelMultiDevice, nowhere, 0u, 0u) == INVALID_VALUE, "nothing to launch");
    need(CU(cuLaunchKernelEx, (void *)0, (int64_t)1000, (void *)0, (void *)0) == INVALID_VALUE, "no configuration");
    need(CU(cuMemcpyBatchAsync_v2, nowhere, nowhere, nowhere, many, nowhere, nowhere, many, none) == INVALID_CONTEXT, "a batch");
    need(CU(cuMemcpy3DBatchAsync_v2, many, nowhere, (uint64_t)0, none) == INVALID_CONTEXT, "operations");
    need(CU(cuMemPrefetchBatchAsync, nowhere, nowhere, many, nowhere, nowhere, many, (uint64_t)0, none) == INVALID_CONTEXT, "prefetches");
    OKAY(cuMemcpyBatchAsync_v2, nowhere, nowhere, nowhere, (size_t)0, (void *)0, (void *)0, (size_t)0, (Stream)0);
    OKAY(cuMemcpy3DBatchAsync_v2, (size_t)0, nowhere, (uint64_t)0, (Stream)0);
    OKAY(cuCtxSetCurrent, (Context)0);
    Array a;
    need(CU(cuArrayCreate_v2, &a, nowhere) == INVALID_CONTEXT, "an array of no context");
    need(CU(cuMipmappedArrayCreate, &a, nowhere, 5) == INVALID_CONTEXT, "a mipmap");
    OKAY(cuCtxSetCurrent, c);
    return 0;
}

MODES({"all", all}, {"by_itself", by_itself})
