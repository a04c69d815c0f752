/* A program's way to the driver: CU(symbol, arguments…) calls a driver function by its exported symbol. How the address is found is the
   mode's argument (`dlsym`, `proc`: cuGetProcAddress, `proc1`: its first ABI) or, built with -DBY_LINK, the linker's matter. */
#pragma once
#include "../facts.h"
#include "fake.h"

#define need(condition, ...) do { if (!(condition)) { line(__VA_ARGS__); _exit(99); } } while (0)

static const struct { const char *symbol, *name; int version, per_thread; } abi[] = {
#define X(symbol, name, version, per_thread) {#symbol, name, version, per_thread},
#include "abi.inc"
#include "abi_more.inc"
#undef X
};
static const char *way = "dlsym";
static void *library;
static int driver_version = 13050;

/* Whether the driver is new enough to have a function. */
static int has(const char *symbol)
{
    for (unsigned i = 0; i < sizeof abi / sizeof *abi; i++)
        if (!strcmp(abi[i].symbol, symbol))
            return abi[i].version <= driver_version;
    return 1;
}
#define HAS(symbol) has(#symbol)

static void *address(const char *symbol)
{
    if (!has(symbol)) {
        need(!dlsym(library, symbol), "%s in a driver of version %d", symbol, driver_version);
        return 0;
    }
    if (!strncmp(way, "proc", 4) && strncmp(symbol, "fake", 4)) {
        static R (*find2)(const char *, void **, int, uint64_t, int *);
        static R (*find1)(const char *, void **, int, uint64_t);
        if (!find1) {
            find2 = dlsym(library, "cuGetProcAddress_v2");
            find1 = dlsym(library, "cuGetProcAddress");
        }
        char plain[64];
        snprintf(plain, sizeof plain, "%s", symbol);
        if (strlen(plain) > 3 && !strncmp(plain + strlen(plain) - 3, "_v2", 3))
            plain[strlen(plain) - 3] = 0;
        const char *name = plain;
        int version = driver_version, per_thread = 0;
        for (unsigned i = 0; i < sizeof abi / sizeof *abi; i++)
            if (!strcmp(abi[i].symbol, symbol))
                name = abi[i].name, version = abi[i].version, per_thread = abi[i].per_thread;
        void *f = 0;
        int status;
        R r = way[4] ? find1(name, &f, version, per_thread ? 2 : 0) : find2(name, &f, version, per_thread ? 2 : 0, &status);
        need(!r && f, "cuGetProcAddress of %s: %d", symbol, r);
        return f;
    }
    void *f = dlsym(library, symbol);
    need(f != 0, "dlsym of %s: %s", symbol, dlerror());
    return f;
}

#ifdef BY_LINK
#define FUNCTION(symbol) ({ extern R symbol(); (R(*)())symbol; })
#else
#define FUNCTION(symbol) ((R(*)())address(#symbol))
#endif
#define CU(symbol, ...) (FUNCTION(symbol)(__VA_ARGS__))
/* The call must succeed. */
#ifndef OKAY
#define OKAY(symbol, ...)                                                                                                                            \
    do {                                                                                                                                             \
        R r_ = CU(symbol, ##__VA_ARGS__);                                                                                                            \
        need(r_ == 0, "line %d: " #symbol ": %d", __LINE__, r_);                                                                                     \
    } while (0)
#endif

static inline void driver(char **args)
{
#ifndef BY_LINK
    need(args[0], "how are addresses found?");
    way = args[0];
    /* The fake one, or the one that CUDA_DRIVER names. */
    const char *path = getenv("CUDA_DRIVER");
    library = dlopen(path ? path : beside("libcuda.so.1"), RTLD_NOW);
    need(library != 0, "%s", dlerror());
    R (*version)(int *) = (R (*)(int *))dlsym(library, "cuDriverGetVersion");
    need(version && !version(&driver_version), "no version of the driver");
#endif
    OKAY(cuInit, 0);
}
/* Where somebody is to have switched our CUPTI on: waits until he has. */
static inline void wait_for_cupti(void)
{
    size_t free, total;
    if (!getenv("FAKE_CUPTI_EXPECTED"))
        return;
    OKAY(cuMemGetInfo_v2, &free, &total);
    for (int i = 0; i < 20000; i++) {
        void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
        int (*flushes)(void) = cupti ? (int (*)(void))dlsym(cupti, "fake_cupti_flushes") : 0;
        if (flushes && flushes() > 0)
            return;
        rest_ms(1);
    }
    need(0, "nobody has switched CUPTI on");
}
static inline Context context(int device)
{
    Context c;
    OKAY(cuDevicePrimaryCtxRetain, &c, device);
    OKAY(cuCtxSetCurrent, c);
    wait_for_cupti();
    return c;
}
