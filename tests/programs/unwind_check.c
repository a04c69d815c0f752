// Preloaded into a program: at each malloc the shim's walker and libunwind walk the stack, and what differs is told in the file
// $UNWIND_CHECK (appended to; one line `same differ shorter longer-cut short` a process, after details of the first that differ).
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct Checker Checker;
void check_settle(void), check_settle_uncounted(void), check_after_fork(void);
size_t check_size(void);
unsigned check_update(Checker *);
void check_modules(void (*)(unsigned, unsigned long, const char *, size_t, const unsigned char *, size_t, unsigned long, unsigned long));
size_t check_frames(const Checker *, unsigned, unsigned long *, size_t);

extern char __ehdr_start, _end;
enum { MOST = 1024, TOLD = 12 };

// A thread's: its checker, room for two stacks, and whether libunwind is at work or the room in use.
static __thread __attribute__((tls_model("initial-exec"))) struct {
    Checker *checker;
    unsigned long *ours, *theirs;
    int busy;
} own;
static atomic_ulong same, differ, shorter, cut, shorts, nested, told;
static void *(*real_malloc)(size_t);
static int ready, every = 1, again, alone;

static void say(const char *format, ...) {
    const char *path = getenv("UNWIND_CHECK");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    char text[1024];
    va_list more;
    va_start(more, format);
    int n = vsnprintf(text, sizeof text, format, more);
    va_end(more);
    if (n > 0 && write(fd, text, n < (int)sizeof text ? n : (int)sizeof text - 1) < 0) {}
    close(fd);
}

static int is_own(unsigned long pc) { return pc >= (unsigned long)&__ehdr_start && pc < (unsigned long)&_end; }

static void tell(const char *who, const unsigned long *pcs, size_t n) {
    say("  %s, %zu frames:\n", who, n);
    for (size_t i = 0; i < n && i < 64; i++) {
        Dl_info at = {0};
        dladdr((void *)pcs[i], &at);
        const char *file = at.dli_fname ? strrchr(at.dli_fname, '/') : 0;
        say("    %lx %s+%lx %s\n", pcs[i], file ? file + 1 : "?", pcs[i] - (unsigned long)at.dli_fbase, at.dli_sname ? at.dli_sname : "");
    }
}

static __attribute__((noinline)) size_t walk_theirs(unsigned long *to) {
    unw_context_t context;
    unw_cursor_t cursor;
    size_t n = 0;
    unw_getcontext(&context);
    if (unw_init_local(&cursor, &context)) return 0;
    do {
        unw_word_t pc = 0;
        if (unw_get_reg(&cursor, UNW_REG_IP, &pc) || !pc) break;
        if (n || !is_own(pc)) to[n++] = pc;
    } while (n < MOST && unw_step(&cursor) > 0);
    return n;
}

static __attribute__((noinline)) void compare(void) {
    // A handler that comes now finds its own way through, or is told that there is none.
    if (again) own.busy = 0;
    unsigned leaf = check_update(own.checker);
    own.busy = 1;
    if (alone) {
        same++;
        return;
    }
    if (!leaf) {
        nested++;
        return;
    }
    size_t n = check_frames(own.checker, leaf, own.ours, MOST);
    unsigned long end = n && own.ours[n - 1] < 4 ? own.ours[--n] : 1;
    for (size_t i = 0; i < n; i++) own.ours[i] >>= 1;
    // Frames of this library itself are left out by one as by the other.
    size_t m = walk_theirs(own.theirs), k = 0;
    for (size_t i = 0; i < m; i++)
        if (!is_own(own.theirs[i])) own.theirs[k++] = own.theirs[i];
    m = k;
    if (end == 2) shorts++;
    size_t least = n < m ? n : m, bad = 0;
    while (bad < least && own.ours[bad] == own.theirs[bad]) bad++;
    if (bad == n && n == m && n <= 256) same++;
    // A stack of more frames keeps its inner 192, and of those no fewer than 96.
    else if (bad == n && end == 0 && n >= 96 && n <= 256) same++, cut++;
    else {
        if (bad == n && end == 2) shorter++;
        else differ++;
        if (told++ < TOLD) {
            say("differs at %zu, end %ld, pid %d\n", bad, (long)end, getpid());
            tell("ours", own.ours, n);
            tell("theirs", own.theirs, m);
        }
    }
}

int check_busy(void) { return own.busy; }

// Compares the stack here.
void check_here(void) {
    static __thread __attribute__((tls_model("initial-exec"))) unsigned turn;
    if (!ready || own.busy || turn++ % every) return;
    int error = errno;
    own.busy = 1;
    if (!own.checker) {
        size_t lists = 2 * MOST * sizeof(long);
        char *room = mmap(0, lists + check_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room != MAP_FAILED) own.ours = (void *)room, own.theirs = own.ours + MOST, own.checker = (void *)(room + lists);
    }
    if (own.checker) compare();
    own.busy = 0;
    errno = error;
}

void *malloc(size_t size) {
    if (!real_malloc) real_malloc = dlsym(RTLD_NEXT, "malloc");
    void *p = real_malloc(size);
    check_here();
    return p;
}

static void in_child(void) {
    same = differ = shorter = cut = shorts = nested = 0;
    check_after_fork();
}

__attribute__((constructor)) static void begin(void) {
    if (!getenv("UNWIND_CHECK")) return;
    again = getenv("UNWIND_AGAIN") != 0;
    // Without libunwind, which does not survive every stack.
    alone = getenv("UNWIND_ALONE") != 0;
    if (getenv("UNWIND_EVERY")) every = atoi(getenv("UNWIND_EVERY"));
    own.busy = 1;
    // Its cache does not notice that a library has gone.
    unw_set_caching_policy(unw_local_addr_space, getenv("UNWIND_MODULES") ? UNW_CACHE_NONE : UNW_CACHE_PER_THREAD);
    if (getenv("UNWIND_UNCOUNTED")) check_settle_uncounted();
    else check_settle();
    pthread_atfork(0, 0, in_child);
    own.busy = 0;
    ready = 1;
}

static void tell_module(unsigned id, unsigned long bias, const char *path, size_t n, const unsigned char *build, size_t m, unsigned long start, unsigned long end) {
    char hex[80] = "";
    for (size_t i = 0; i < m && i < 32; i++) sprintf(hex + 2 * i, "%02x", build[i]);
    if (path) say("module %u %lx %lx %lx %s %.*s\n", id, bias, start, end, m ? hex : "-", (int)n, path);
    else say("gone %u\n", id);
}

// What the writer does each interval.
void check_tell(void) { check_modules(tell_module); }

__attribute__((destructor)) static void end(void) {
    ready = 0;
    if (getenv("UNWIND_MODULES")) check_tell();
    if (same + differ + shorter)
        say("same %lu differ %lu shorter %lu cut %lu short %lu nested %lu %s\n", same, differ, shorter, cut, shorts, nested, program_invocation_short_name);
}
