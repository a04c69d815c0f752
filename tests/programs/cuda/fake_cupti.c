/* A CUPTI of our own, for tests only, on the driver of our own: records of its operations, complete when its clock has passed them. The layouts are
   those of `cupti_activity.h`, version by version: a record grows at its end. Its moods come from the environment:

   FAKE_CUPTI_VERSION  what cuptiGetVersion says [130500]
   FAKE_CUPTI_HELD     somebody else has subscribed
   FAKE_CUPTI_REFUSES  cuptiActivityEnable answers this code
   FAKE_CUPTI_DROPS    so many records find no room
   FAKE_CUPTI_STEPS    after the first flush somebody sets the clock so many seconds forward
   FAKE_CUPTI_HANGS    a flush never returns
   FAKE_CUPTI_LATE     it is there when the driver's clock has moved, not before */
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "fake.h"

typedef void (*Request)(uint8_t **, size_t *, size_t *);
typedef void (*Complete)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*Callback)(void *, int, uint32_t, const void *);
enum { SUCCESS = 0, NO_MORE = 12, NOT_INITIALIZED_ = 15, INVALID_KIND = 21, HELD = 39, KIND_COPY = 1, KIND_SET = 2, KIND_KERNEL = 10, KIND_PEER = 22 };

static const struct { const char *symbol; uint32_t id; } ids[] = {
#define X(symbol, id) {#symbol, id},
#include "cupti_ids.inc"
#undef X
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Callback callback;
static Request request;
static Complete complete;
static char callbacks[1024], kinds[64];
static struct work *queue;
static size_t queued, room, dropped;
static long to_drop;
static uint8_t *buffer;
static size_t size, used;
static int64_t base;
static volatile int flushes, ending;
static pthread_t worker;
static int64_t (*driver_now)(void);
static int (*driver_tap)(const struct tap *);

static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }
static int version(void) { return number("FAKE_CUPTI_VERSION", 130500); }
static int64_t step;
static int64_t wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec + step;
}

/* How long a record of a kind is in this version. */
static size_t length(int kind)
{
    int v = version();
    switch (kind) {
    case KIND_KERNEL: return v < 18 ? 176 : v == 18 ? 200 : v < 130000 ? 208 : v < 130100 ? 216 : v < 130300 ? 224 : v < 130400 ? 232 : 248;
    case KIND_COPY: return v < 26 ? 88 : v < 130400 ? 96 : 112;
    case KIND_SET: return v < 130400 ? 88 : 104;
    case KIND_PEER: return 96;
    }
    return 0;
}
static int copy_kind(int rate)
{
    switch (rate) {
    case H2D_PINNED: case H2D_PAGEABLE: return 1;
    case D2H_PINNED: case D2H_PAGEABLE: return 2;
    case P2P: return 10;
    case H2H: return 9;
    }
    return 8;
}
/* The name of the kernel that takes so long, as a compiler would write `void spin<N>()`. */
static const char *name_of(int64_t ns)
{
    static struct { int64_t ns; char *name; } names[256];
    for (int i = 0; i < 256; i++) {
        if (!names[i].name && asprintf(&names[i].name, "_Z4spinILl%ldEEvv", (long)ns) > 0)
            names[i].ns = ns;
        if (names[i].ns == ns)
            return names[i].name;
    }
    abort();
}

static void give_back(void)
{
    if (buffer)
        complete(0, 0, buffer, size, used);
    buffer = 0, used = 0;
}
#define PUT(at, type, value) (*(type *)(r + (at)) = (value))
static void write_record(const struct work *w, int timed)
{
    int kind = w->what == KERNEL_RUNS ? KIND_KERNEL : w->what == SET_RUNS ? KIND_SET : w->rate == P2P ? KIND_PEER : KIND_COPY;
    size_t n = length(kind);
    if (!kinds[kind])
        return;
    if (to_drop > 0) {
        to_drop--, dropped++;
        return;
    }
    if (buffer && used + n > size)
        give_back();
    if (!buffer) {
        size_t most;
        request(&buffer, &size, &most);
        if (!buffer) {
            dropped++;
            return;
        }
    }
    uint8_t *r = buffer + used;
    memset(r, 0, n);
    used += n;
    int64_t start = timed ? base + step + w->begins : 0, end = timed ? base + step + w->ends : 0;
    PUT(0, uint32_t, kind), PUT(16, int64_t, start), PUT(24, int64_t, end);
    if (kind == KIND_KERNEL) {
        PUT(40, uint32_t, w->device), PUT(44, uint32_t, 1), PUT(48, uint32_t, w->stream), PUT(92, uint32_t, w->correlation);
        PUT(104, const char *, name_of(w->kernel)), PUT(144, uint64_t, w->node);
        return;
    }
    PUT(8, uint64_t, w->bytes), PUT(32, uint32_t, w->device), PUT(36, uint32_t, 1), PUT(40, uint32_t, w->stream);
    if (kind != KIND_SET)
        PUT(4, uint8_t, copy_kind(w->rate));
    PUT(kind == KIND_PEER ? 60 : 44, uint32_t, w->correlation), PUT(kind == KIND_PEER ? 72 : 64, uint64_t, w->node);
}

static void enters(const char *symbol, uint32_t correlation)
{
    struct { int site; const char *function; const void *params; void *r; const char *symbol; void *context; uint32_t uid; uint64_t *data; uint32_t correlation; } call = {0, symbol, 0, 0, symbol, 0, 1, 0, correlation};
    for (unsigned i = 0; callback && i < sizeof ids / sizeof *ids; i++)
        if (!strcmp(ids[i].symbol, symbol) && callbacks[ids[i].id])
            for (call.site = 0; call.site < 2; call.site++)
                callback(0, 1, ids[i].id, &call);
}
static void worked(const struct work *w)
{
    pthread_mutex_lock(&lock);
    if (queued == room)
        queue = realloc(queue, (room = room ? 2 * room : 1024) * sizeof *queue);
    queue[queued++] = *w;
    pthread_mutex_unlock(&lock);
}
static const struct tap tap = {enters, worked};

static int attach(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver)
        return 0;
    driver_now = (int64_t(*)(void))dlsym(driver, "fake_now");
    driver_tap = (int (*)(const struct tap *))dlsym(driver, "fake_tap");
    int64_t (*driver_follow)(int) = (int64_t(*)(int))dlsym(driver, "fake_follow");
    while (getenv("FAKE_CUPTI_LATE") && driver_now && driver_now() == 0)
        usleep(1000);
    base = wall();
    base -= driver_follow ? driver_follow(0) : 0;
    return driver_now && driver_tap;
}
static void *works(void *nothing)
{
    while (!ending)
        usleep(10000);
    return 0;
}

API int cuptiGetVersion(uint32_t *v)
{
    *v = version();
    return SUCCESS;
}
API int cuptiGetTimestamp(uint64_t *t)
{
    *t = wall();
    return SUCCESS;
}
API int cuptiSubscribe(void **subscriber, Callback f, void *data)
{
    if (callback || getenv("FAKE_CUPTI_HELD"))
        return HELD;
    if (!attach())
        return NOT_INITIALIZED_;
    callback = f;
    *subscriber = &callback;
    return SUCCESS;
}
API int cuptiUnsubscribe(void *subscriber)
{
    callback = 0;
    memset(callbacks, 0, sizeof callbacks);
    return SUCCESS;
}
API int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t id)
{
    if (domain != 1 || id >= sizeof callbacks)
        return 1;
    callbacks[id] = on;
    return SUCCESS;
}
API int cuptiActivityRegisterCallbacks(Request r, Complete c)
{
    request = r, complete = c;
    return SUCCESS;
}
API int cuptiActivityEnable(uint32_t kind)
{
    int refuses = number("FAKE_CUPTI_REFUSES", 0);
    if (refuses || kind >= sizeof kinds || !length(kind))
        return refuses ? refuses : INVALID_KIND;
    if (!worker && pthread_create(&worker, 0, works, 0))
        return 8;
    kinds[kind] = 1;
    to_drop = number("FAKE_CUPTI_DROPS", 0);
    return driver_tap(&tap);
}
API int cuptiActivityDisable(uint32_t kind)
{
    kinds[kind] = 0;
    return SUCCESS;
}
API int cuptiActivityFlushAll(uint32_t forced)
{
    if (getenv("FAKE_CUPTI_HANGS") && flushes > 0)
        pause();
    pthread_mutex_lock(&lock);
    int64_t now = driver_now();
    size_t left = 0;
    for (size_t i = 0; i < queued; i++)
        if (queue[i].ends <= now || forced)
            write_record(&queue[i], queue[i].ends <= now);
        else
            queue[left++] = queue[i];
    queued = left;
    give_back();
    flushes++;
    step = number("FAKE_CUPTI_STEPS", 0) * 1000000000ll;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
API int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, uint8_t **record)
{
    uint8_t *next = *record ? *record + length(*(uint32_t *)*record) : from;
    if (next >= from + valid)
        return NO_MORE;
    *record = next;
    return length(*(uint32_t *)next) ? SUCCESS : INVALID_KIND;
}
API int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n)
{
    *n = dropped;
    dropped = 0;
    return SUCCESS;
}
API int cuptiFinalize(void)
{
    ending = 1;
    if (worker)
        pthread_join(worker, 0);
    return SUCCESS;
}
/* For the programs: somebody has switched it on and asked for records. */
API int fake_cupti_flushes(void) { return flushes; }
