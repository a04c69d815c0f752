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

#include "fake_device.h"

#include "fake_lookup.h"
