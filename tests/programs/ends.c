/* Every way a process can end, each with all of its events already made. */
#include "facts.h"
static void work(long times) { blocks(times, 9973); }
static void fact(int times) { line("TRUTH size=9973 allocs=%d frees=%d", times, times); }

static int at_once(char **args) { (void)args; work(4000); fact(4000); _exit(41); }
static int capital(char **args) { (void)args; work(4000); fact(4000); _Exit(42); }
static int aborts(char **args) { (void)args; work(4000); fact(4000); abort(); }
static int wild(char **args) { (void)args; work(4000); fact(4000); *(volatile int *)opaque((void *)24) = 1; return 0; }
static int killed(char **args) { (void)args; work(4000); fact(4000); rest_ms(300); kill(getpid(), SIGKILL); pause(); return 0; }
static int terminated(char **args) { (void)args; work(4000); fact(4000); raise(SIGTERM); return 0; }
static int raw_exit(char **args) { (void)args; work(4000); fact(4000); syscall(SYS_exit_group, 43); return 0; }

static void when_quick(void) { work(300); }
static int quick(char **args) { (void)args; at_quick_exit(when_quick); work(4000); fact(4300); quick_exit(44); }

static void second(void) { work(20); for (int i = 0; i < 9; i++) opaque(malloc(24007)); }
static void first(void) { work(30); atexit(second); }
static int late_on;
static void last(void) { if (late_on) { work(17); for (int i = 0; i < 4; i++) opaque(malloc(24007)); } }
__attribute__((section(".fini_array"), used)) static void (*last_entry)(void) = last;
void library_is_used(int);
static int late(char **args)
{
    (void)args;
    late_on = 1;
    library_is_used(1);
    atexit(first);
    work(100);
    fact(178);
    line("TRUTH size=24007 allocs=15 frees=0 leaked=15 leaked_bytes=360105");
    exit(45);
}

static void *restless(void *arg)
{
    unsigned state = 1 + (unsigned)(uintptr_t)arg;
    for (;;) { state = state * 1103515245 + 12345; free(opaque(malloc(1 + (state >> 20)))); munmap(mmap(0, 8192, RW, ANON, -1, 0), 8192); }
    return arg;
}
static void at_exit_busy(void) { blocks(900, 9973); }
static int busy(char **args)
{
    (void)args;
    atexit(at_exit_busy);
    for (long i = 0; i < 4; i++) { pthread_t thread; EXPECT(!pthread_create(&thread, 0, restless, (void *)i)); }
    rest_ms(120);
    fact(900);
    exit(46);
}

MODES({ "_exit", at_once }, { "_Exit", capital }, { "abort", aborts }, { "segv", wild }, { "sigkill", killed }, { "sigterm", terminated },
      { "exit_group", raw_exit }, { "quick_exit", quick }, { "late", late }, { "busy", busy })
