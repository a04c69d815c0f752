/* How functions are found: by name, by cuGetProcAddress in both of its ABIs. A driver has what its version has: newer symbols are not exported. */

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define X(symbol, name, version, per_thread) __asm__(".if " #version " > " TEXT(DRIVER_VERSION) "\n.hidden " #symbol "\n.endif");
#include "abi.inc"
#include "abi_more.inc"
#undef X

API R cuGetProcAddress(const char *name, void **f, int version, uint64_t flags);
API R cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status);
static const struct { const char *symbol, *name; int version, per_thread; void *f; } abi[] = {
#define X(symbol, name, version, per_thread) {#symbol, name, version, per_thread, symbol},
#include "abi.inc"
#include "abi_more.inc"
#undef X
};

/* The newest ABI that is neither newer than asked nor than the driver. */
static void *find(const char *name, int version, uint64_t flags)
{
    void *best = 0;
    int newest = -1;
    for (int pass = flags & 2 ? 1 : 0; pass >= 0 && !best; pass--)
        for (unsigned i = 0; i < sizeof abi / sizeof *abi; i++)
            if (!strcmp(abi[i].name, name) && abi[i].per_thread == pass && abi[i].version <= version && abi[i].version <= DRIVER_VERSION && abi[i].version > newest)
                best = abi[i].f, newest = abi[i].version;
    return best;
}
API R cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status)
{
    ENTER("cuGetProcAddress");
    void *p = find(name, version, flags);
    if (f)
        *f = p;
    if (status)
        *status = p ? 0 : 1;
    return leave(p ? OK : NOT_FOUND);
}
API R cuGetProcAddress(const char *name, void **f, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, f, version, flags, 0);
}
