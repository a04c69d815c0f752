/* See fake.h. One file for the linker; the parts stand in files of their own. */
#include <time.h>
#include <unistd.h>
#include "fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t now_ns;
static int initialised;

/* The injected failure. */
static struct { char name[64]; int code, skip; } failure;

static int fails(const char *name)
{
    if (!failure.code || strcmp(failure.name, name) || failure.skip-- > 0)
        return 0;
    int code = failure.code;
    failure.code = 0;
    return code;
}
/* Who watches, the number of the call, and (of calls that start work) its symbol. */
static const struct tap *tap;
static uint32_t correlation;
static __thread const char *symbol;
#define NAMED(call) (symbol = __func__, call)

static void enters(void)
{
    correlation++;
    if (tap && symbol)
        tap->call(symbol, correlation);
    symbol = 0;
}
/* Begins a call: alone, and failing where it is told to. */
#define ENTER(name)                                                                                                                                  \
    pthread_mutex_lock(&lock);                                                                                                                       \
    enters();                                                                                                                                        \
    errno = 77; /* a driver may change it; programs that look at it see what the driver left */                                                      \
    int failed_ = fails(name);                                                                                                                       \
    if (failed_)                                                                                                                                     \
        return leave(failed_)
static R leave(R r)
{
    pthread_mutex_unlock(&lock);
    return r;
}

/* A call that does nothing but fail where it is told to. */
static R allowed(const char *name)
{
    ENTER(name);
    return leave(OK);
}

/* Questions after events and streams take so long, alone. */
static int slow_us;
API int fake_slow(int us)
{
    pthread_mutex_lock(&lock);
    slow_us = us;
    return leave(OK);
}

API int fake_tap(const struct tap *t)
{
    pthread_mutex_lock(&lock);
    tap = t;
    return leave(OK);
}
API int fake_fail(const char *name, int code, int skip)
{
    pthread_mutex_lock(&lock);
    snprintf(failure.name, sizeof failure.name, "%s", name);
    failure.code = code, failure.skip = skip;
    pthread_mutex_unlock(&lock);
    return 0;
}
API int fake_sleep(int64_t ns)
{
    pthread_mutex_lock(&lock);
    now_ns += ns;
    pthread_mutex_unlock(&lock);
    return 0;
}
API int64_t fake_now(void)
{
    return now_ns;
}

/* The clock goes on to where the machine's is since the first of these calls (made by a program that says so), by whole eighths of a
   millisecond, which a float has exactly: what is begun then lies on both clocks at the same time, and is as long as ever. */
static int64_t followed_from;
API int64_t fake_follow(int begin)
{
    struct timespec t;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t machine = t.tv_sec * 1000000000ll + t.tv_nsec;
    if (begin && !followed_from)
        followed_from = machine - now_ns;
    int64_t since = (machine - followed_from) / 125000 * 125000;
    if (followed_from && since > now_ns)
        now_ns = since;
    pthread_mutex_unlock(&lock);
    return now_ns;
}

#include "fake_streams.h"

/* Pages that are moved are no copies to whoever watches. */
static int by_pages;
static void ran(int what, Stream s, int64_t begins, int64_t ends, uint64_t bytes, int rate, int64_t kernel, uint64_t node)
{
    struct work w = {what, begins, ends, kernel, bytes, node, rate, s->ctx->device, s->number, correlation};
    if (tap && !by_pages)
        tap->work(&w);
}

#include "fake_memory.h"

#include "fake_copies.h"

#include "fake_graphs.h"

API R cuInit(unsigned flags)
{
    ENTER("cuInit");
    initialised = 1;
    return leave(flags ? INVALID_VALUE : OK);
}
API R cuDriverGetVersion(int *v)
{
    *v = 13020;
    return OK;
}
API R cuDeviceGetCount(int *n)
{
    *n = DEVICES;
    return OK;
}
API R cuDeviceGet(int *d, int i)
{
    *d = i;
    return i < DEVICES ? OK : 101;
}
API R cuDeviceGetName(char *name, int len, int d)
{
    snprintf(name, len, "Fake GPU %d", d);
    return OK;
}
/* A kernel's function is the number of nanoseconds that it takes: a tenth of a millisecond. */
API R cuModuleLoadData(void **module, const void *image)
{
    *module = (void *)1;
    return OK;
}
API R cuModuleGetFunction(int64_t *f, void *module, const char *name)
{
    *f = 100000;
    return OK;
}
API R cuDeviceTotalMem_v2(size_t *bytes, int d)
{
    *bytes = total[d];
    return OK;
}
API R cuMemGetAllocationGranularity(size_t *n, const void *properties, int option)
{
    *n = 2 << 20;
    return OK;
}
API R cuGetExportTable(const void **table, const void *id)
{
    *table = 0;
    return NOT_FOUND;
}
/* A call that no list has heard of. */
API R cuMemTeleportAsync(Ptr p, Stream s)
{
    return OK;
}

API R cuGetProcAddress(const char *name, void **f, int version, uint64_t flags);
API R cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status);
static const struct { const char *symbol, *name; int version, per_thread; void *f; } abi[] = {
#define X(symbol, name, version, per_thread) {#symbol, name, version, per_thread, symbol},
#include "abi.inc"
#undef X
#define X(name, version) {#name, #name, version, 0, name},
    X(cuInit, 2000) X(cuDriverGetVersion, 2020) X(cuDeviceGetCount, 2000) X(cuDeviceGet, 2000) X(cuDeviceGetName, 2000) X(cuCtxGetCurrent, 4000)
    X(cuCtxSetCurrent, 4000) X(cuCtxGetDevice, 2000) X(cuDevicePrimaryCtxRetain, 7000) X(cuDevicePrimaryCtxGetState, 7000) X(cuEventCreate, 2000)
    X(cuEventQuery, 2000) X(cuStreamIsCapturing, 10000) X(cuPointerGetAttribute, 4000) X(cuThreadExchangeStreamCaptureMode, 10010) X(cuMemTeleportAsync, 13010)
    X(cuDeviceGetMemPool, 11020) X(cuMemAddressReserve, 10020) X(cuMemAddressFree, 10020) X(cuMemSetAccess, 10020)
    X(cuMemGetAllocationPropertiesFromHandle, 10020)
#undef X
#define X(name, version, per_thread, f) {#f, name, version, per_thread, f},
    X("cuEventDestroy", 4000, 0, cuEventDestroy_v2) X("cuEventRecord", 2000, 0, cuEventRecord) X("cuEventRecord", 7000, 1, cuEventRecord_ptsz)
    X("cuStreamWaitEvent", 3020, 0, cuStreamWaitEvent) X("cuStreamWaitEvent", 7000, 1, cuStreamWaitEvent_ptsz) X("cuStreamQuery", 2000, 0, cuStreamQuery)
    X("cuMemGetInfo", 3020, 0, cuMemGetInfo_v2) X("cuDeviceTotalMem", 3020, 0, cuDeviceTotalMem_v2) X("cuModuleLoadData", 2000, 0, cuModuleLoadData)
    X("cuModuleGetFunction", 2000, 0, cuModuleGetFunction) X("cuMemGetAllocationGranularity", 10020, 0, cuMemGetAllocationGranularity)
    X("cuEventElapsedTime", 2000, 0, cuEventElapsedTime) X("cuEventElapsedTime", 12080, 0, cuEventElapsedTime_v2)
#undef X
};

static void *find(const char *name, int version, uint64_t flags)
{
    void *best = 0;
    int newest = -1;
    for (int pass = flags & 2 ? 1 : 0; pass >= 0 && !best; pass--)
        for (unsigned i = 0; i < sizeof abi / sizeof *abi; i++)
            if (!strcmp(abi[i].name, name) && abi[i].per_thread == pass && abi[i].version <= version && abi[i].version > newest)
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
