/* Many threads and one heap: who allocates is not who frees, threads come and go, all at once or one after another. */
#include "facts.h"

/* A table of slots; every thread swaps blocks in and out at random, so nearly every block is freed by another thread. */
enum { SLOTS = 512, SWAPPERS = 6 };
static void *slots[SLOTS];
static void *swapper(void *arg)
{
    unsigned state = 17 + (unsigned)(uintptr_t)arg;
    for (int i = 0; i < 30000; i++) {
        state = state * 1664525 + 1013904223;
        char *fresh = malloc(6007);
        fresh[0] = 1;
        free(__atomic_exchange_n(&slots[(state >> 12) % SLOTS], fresh, __ATOMIC_ACQ_REL));
    }
    return 0;
}
static void join_swappers(void)
{
    pthread_t threads[SWAPPERS];
    for (long i = 0; i < SWAPPERS; i++) EXPECT(!pthread_create(&threads[i], 0, swapper, (void *)i));
    for (int i = 0; i < SWAPPERS; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
    line("TRUTH size=6007 allocs=180000 frees=180000");
}
static int exchange(char **args) { (void)args; join_swappers(); return 0; }

/* One arena and no thread cache: an address freed by one thread is at once another's. A profiler that tells blocks apart
   by address and order of arrival alone sees leaks that are none. Needs MALLOC_ARENA_MAX=1 and tcache_count=0. */
static void *reuser(void *arg)
{
    for (int i = 0; i < 60000; i++) { char *p = opaque(malloc(520)); p[0] = 1; free(p); }
    return arg;
}
static int address_reuse(char **args)
{
    (void)args;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) EXPECT(!pthread_create(&threads[i], 0, reuser, 0));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    line("TRUTH size=520 allocs=240000 frees=240000 leaked=0 leaked_bytes=0");
    join_swappers();
    return 0;
}

/* Many more threads than processors, one arena, no thread cache: an address is now one thread's, now another's, while most of them do not
   run. Sixteen sizes share each chunk size, so that only who owns a block tells them apart. Each thread keeps one block of its own. */
enum { OWNERS = 48, TURNS = 20000, HELD = 24 };
static void *owner(void *arg)
{
    size_t size = 1001 + (size_t)arg % 16;
    char *held[HELD] = { 0 };
    unsigned state = 17 + (unsigned)(uintptr_t)arg;
    for (int i = 0; i < TURNS; i++) {
        state = state * 1664525 + 1013904223;
        char **place = &held[(state >> 12) % HELD];
        free(*place);
        *place = opaque(malloc(size));
        **place = 1;
    }
    free(opaque(malloc(size)));
    for (int i = 1; i < HELD; i++) free(held[i]);
    return held[0];
}
static int owners(char **args)
{
    (void)args;
    static void *kept[OWNERS];
    pthread_t threads[OWNERS];
    for (long i = 0; i < OWNERS; i++) EXPECT(!pthread_create(&threads[i], 0, owner, (void *)i));
    for (int i = 0; i < OWNERS; i++) pthread_join(threads[i], &kept[i]);
    int each = OWNERS / 16, allocs = each * (TURNS + 1);
    for (int i = 0; i < 16; i++) line("TRUTH size=%d allocs=%d frees=%d leaked=%d", 1001 + i, allocs, allocs - each, each);
    return 0;
}

static void *pump(void *arg) { blocks(600000, 3989); return arg; }
static int burst(char **args)
{
    (void)args;
    long before = status_value("VmRSS:");
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) EXPECT(!pthread_create(&threads[i], 0, pump, 0));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    long grown = status_value("VmRSS:") - before;
    line("TRUTH size=3989 allocs=1200000 frees=1200000");
    line("memory grew by less than 128 MiB: %s", grown < 128 << 10 ? "yes" : "no");
    return 0;
}

enum { CROWD = 500, EACH = 16 };
static pthread_barrier_t everyone;
static char *crowd_block[CROWD][EACH];
static void *one_of_crowd(void *arg)
{
    char **mine = crowd_block[(long)arg];
    pthread_barrier_wait(&everyone);
    for (int i = 0; i < EACH; i++) { mine[i] = malloc(9001); mine[i][9000] = 1; }
    pthread_barrier_wait(&everyone);
    return 0;
}
static int crowd(char **args)
{
    (void)args;
    static pthread_t threads[CROWD];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 80 << 10);
    pthread_barrier_init(&everyone, 0, CROWD);
    for (long i = 0; i < CROWD; i++) EXPECT(!pthread_create(&threads[i], &attr, one_of_crowd, (void *)i));
    for (int i = 0; i < CROWD; i++) EXPECT(!pthread_join(threads[i], 0));
    for (int i = 0; i < CROWD; i++) for (int k = 0; k < EACH; k++) free(crowd_block[i][k]);
    line("TRUTH size=9001 allocs=8000 frees=8000 peak_live=8000");
    return 0;
}

static void *short_life(void *arg) { blocks(1, 9973); return arg; }
static int churn(char **args)
{
    (void)args;
    long rss = 0, size = 0, threads = status_value("Threads:");
    for (int i = 0; i < 25000; i++) {
        pthread_t thread;
        EXPECT(!pthread_create(&thread, 0, short_life, 0));
        pthread_join(thread, 0);
        if (i == 2500) { rss = status_value("VmRSS:"); size = status_value("VmSize:"); }
    }
    line("TRUTH size=9973 allocs=25000 frees=25000");
    line("resident growth %s, address space growth %s, threads %s", status_value("VmRSS:") - rss < 24 << 10 ? "small" : "large",
         status_value("VmSize:") - size < 256 << 10 ? "small" : "large", status_value("Threads:") <= threads + 1 ? "gone" : "left");
    return 0;
}

static void *on_small_stack(void *arg)
{
    blocks(80, 9973);
    free(opaque(realloc(opaque(calloc(7, 31)), 4001)));
    munmap(map_anon(8192), 8192);
    return arg;
}
static int small_stacks(char **args)
{
    (void)args;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    EXPECT(!pthread_attr_setstacksize(&attr, 16384));
    for (int round = 0; round < 12; round++) {
        pthread_t four[4];
        for (int i = 0; i < 4; i++) EXPECT(!pthread_create(&four[i], &attr, on_small_stack, 0));
        for (int i = 0; i < 4; i++) pthread_join(four[i], 0);
    }
    line("TRUTH size=9973 allocs=3840 frees=3840");
    line("TRUTH size=4001 allocs=48 frees=48");
    return 0;
}

/* Cancelled threads only ever sit in calls that POSIX does not let cancel: none may die with something held. */
static long inside;
static void *cancelled(void *arg)
{
    for (;;) {
        for (int i = 0; i < 150; i++) { free(opaque(malloc(80 + i))); munmap(mmap(0, 4096, RW, ANON, -1, 0), 4096); }
        int was;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
        __atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
        blocks(1, 61);
        __atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
        pthread_setcancelstate(was, 0);
        pthread_testcancel();
    }
    return arg;
}
static int cancel(char **args)
{
    (void)args;
    int gone = 0;
    for (int round = 0; round < 20; round++) {
        pthread_t four[4];
        for (int i = 0; i < 4; i++) EXPECT(!pthread_create(&four[i], 0, cancelled, 0));
        rest_ms(2);
        for (int i = 0; i < 4; i++) pthread_cancel(four[i]);
        for (int i = 0; i < 4; i++) { void *how; pthread_join(four[i], &how); gone += how == PTHREAD_CANCELED; }
        blocks(50, 9973);
    }
    line("TRUTH size=9973 allocs=1000 frees=1000");
    line("cancelled %d, inside %ld", gone, inside);
    return 0;
}

static void *survivor(void *arg)
{
    rest_ms(150);
    blocks(1500, 9973);
    line("TRUTH size=9973 allocs=2200 frees=2200");
    return arg;
}
static int main_leaves(char **args)
{
    (void)args;
    pthread_t thread;
    blocks(700, 9973);
    EXPECT(!pthread_create(&thread, 0, survivor, 0));
    pthread_detach(thread);
    pthread_exit(0);
}

static void *packer(void *arg)
{
    prctl(PR_SET_NAME, "packer", 0, 0, 0);
    blocks(250, 9973);
    return arg;
}
static void *waits_for_name(void *arg)
{
    pthread_barrier_wait(&everyone);
    blocks(350, 9973);
    pthread_barrier_wait(&everyone);
    return arg;
}
static int named(char **args)
{
    (void)args;
    pthread_t one, two;
    pthread_barrier_init(&everyone, 0, 2);
    EXPECT(!pthread_create(&one, 0, packer, 0) && !pthread_create(&two, 0, waits_for_name, 0));
    EXPECT(!pthread_setname_np(two, "sorter"));
    pthread_barrier_wait(&everyone);
    rest_ms(300);
    pthread_barrier_wait(&everyone);
    pthread_join(one, 0);
    pthread_join(two, 0);
    line("TRUTH size=9973 allocs=600 frees=600");
    return 0;
}

MODES({ "named", named }, { "exchange", exchange }, { "reuse", address_reuse }, { "owners", owners }, { "burst", burst }, { "crowd", crowd }, { "churn", churn },
      { "small-stacks", small_stacks }, { "cancel", cancel }, { "main-leaves", main_leaves })
