/* Another preloaded library between programs and the driver, as limiters and tracers of GPU memory are. It has wrappers of four functions, which
   count, and one more that tells of less memory than there is, which the first of them calls by its name; and is asked for them in the ways in which such libraries are: by being in front (-DIN_FRONT: what is behind it is the next of that name), or
   by a dlsym and a cuGetProcAddress of its own, which give the wrappers out (-DGIVES_OUT). Says at the end how often each was called. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuMemcpyDtoHAsync_v2"};
static void *real[4];
static int calls[5];

#ifdef IN_FRONT
static void *real_of(int i) { return real[i] ? real[i] : (real[i] = dlsym(RTLD_NEXT, names[i])); }
#define WRAPPER __attribute__((visibility("default")))
#else
static void *real_of(int i) { return real[i]; }
#define WRAPPER static
#endif
/* What a program may have of the device, whatever the driver says. */
enum { GRANTED = 1 << 30 };
WRAPPER int cuMemGetInfo_v2(size_t *free, size_t *total) { return calls[4]++, *free = *total = GRANTED, 0; }
/* By the linkage table, as from another file of the library. */
static int (*volatile memory_info)(size_t *, size_t *) = cuMemGetInfo_v2;
static int is_granted(size_t n)
{
    size_t free, total;
    return !memory_info(&free, &total) && free == GRANTED && n <= free;
}
#define CALL(i, TYPE, ...) (calls[i]++, ((int (*) TYPE)real_of(i))(__VA_ARGS__))
WRAPPER int cuMemAlloc_v2(uint64_t *p, size_t n) { return is_granted(n) ? CALL(0, (uint64_t *, size_t), p, n) : 2; }
WRAPPER int cuMemFree_v2(uint64_t p) { return CALL(1, (uint64_t), p); }
WRAPPER int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) { return CALL(2, (uint64_t, const void *, size_t), to, from, n); }
WRAPPER int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) { return CALL(3, (void *, uint64_t, size_t, void *), to, from, n, s); }

#ifdef GIVES_OUT
static void *wrappers[] = {cuMemAlloc_v2, cuMemFree_v2, cuMemcpyHtoD_v2, cuMemcpyDtoHAsync_v2};
static void *(*real_dlsym)(void *, const char *);
static int (*real_find)(const char *, void **, int, uint64_t), (*real_find2)(const char *, void **, int, uint64_t, int *);

/* By the wrapper's plain name and its version: what was found gives way to it. */
static void give_out(const char *name, int version, uint64_t flags, void **f)
{
    char symbol[64];
    snprintf(symbol, sizeof symbol, "%s_v2", name);
    for (int i = 0; i < 4 && !(flags & 2) && version >= 3020; i++)
        if (!strcmp(names[i], symbol) && f && *f)
            real[i] = *f, *f = wrappers[i];
}
static int find(const char *name, void **f, int version, uint64_t flags)
{
    int r = real_find(name, f, version, flags);
    if (!r)
        give_out(name, version, flags, f);
    return r;
}
static int find2(const char *name, void **f, int version, uint64_t flags, int *status)
{
    int r = real_find2(name, f, version, flags, status);
    if (!r)
        give_out(name, version, flags, f);
    return r;
}
__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    if (!real_dlsym)
        real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (handle == RTLD_NEXT || !handle)
        return real_dlsym(handle, name); /* a jump (-O2): the real one looks at its caller */
    void *p = real_dlsym(handle, name);
    if (!p)
        return p;
    if (!strcmp(name, "cuGetProcAddress"))
        return real_find = p, find;
    if (!strcmp(name, "cuGetProcAddress_v2"))
        return real_find2 = p, find2;
    for (int i = 0; i < 4; i++)
        if (!strcmp(names[i], name))
            return real[i] = p, wrappers[i];
    return p;
}
#endif

__attribute__((destructor)) static void say(void)
{
    char text[100];
    int n = snprintf(text, sizeof text, "OTHER %d %d %d %d %d\n", calls[0], calls[1], calls[2], calls[3], calls[4]);
    if (write(1, text, n) != n)
        _exit(98);
}
