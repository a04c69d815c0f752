// Stacks of every kind, each with calls of malloc in it: argv[1] says which. Prints "done <which>".
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#define OUT __attribute__((noinline, noclone))
static thread_local volatile long sink;

// Of the preloaded library: compares the stack here; whether this thread is inside libunwind; tells of modules.
// Not weak references, which a program at a fixed place has settled already.
static auto check_here = (void (*)())dlsym(RTLD_DEFAULT, "check_here");
static auto check_busy = (int (*)())dlsym(RTLD_DEFAULT, "check_busy");
static auto check_tell = (void (*)())dlsym(RTLD_DEFAULT, "check_tell");
// Signals come at any instant, where malloc must not be called.
static bool quiet;

OUT static void touch(int n) {
    if (quiet) {
        if (check_here) check_here();
    } else {
        void *kept = malloc(16 + n % 64);
        asm volatile("" : "+r"(kept));
        free(kept);
    }
    sink++;
}

// Code in segments of its own, far from the rest.
#ifdef FAR
#define IN(n) __attribute__((section(".far" #n)))
#else
#define IN(n)
#endif

// Frames of many shapes.
OUT static void small(int n) { touch(n), sink++; }
OUT IN(1) static long with_array(int n) {
    char room[200];
    memset(room, n, sizeof room);
    touch(n);
    return room[n % 200] + sink;
}
OUT static long with_alloca(int n) {
    char *room = (char *)alloca(16 + n * 8 % 512);
    memset(room, n, 16);
    small(n);
    touch(n);
    return room[3];
}
OUT static long realigned(int n) {
    alignas(64) char room[128];
    char *more = (char *)alloca(16 + n % 100);
    memset(room, n, sizeof room);
    memset(more, n, 16);
    touch(n);
    return room[5] + more[1];
}
OUT static long busy_registers(long a, long b, long c, long d, long e, long f, long g) {
    long x = a * b, y = c ^ d, z = e + f, w = g * 3, v = a - f, u = b + g;
    for (int i = 0; i < 3; i++) {
        touch(i);
        x += y * sink, y ^= z, z -= w, w += v, v *= u, u += x;
    }
    return x + y + z + w + v + u;
}
OUT static long shapes(int n) {
    small(n);
    long r = with_array(n) + with_alloca(n) + realigned(n);
    return r + busy_registers(n, r, 3, 4, 5, 6, 7);
}

OUT IN(2) static long recurse(int depth, int n) {
    if (depth == 0) return shapes(n);
    char room[32];
    memset(room, depth, sizeof room);
    touch(n);
    long r = recurse(depth - 1, n) + room[depth % 32];
    if (depth % 3 == 0) touch(n);
    return r;
}
OUT IN(3) static long tree(int depth, int n) {
    if (depth == 0) return touch(n), n;
    return n % 2 ? tree(depth - 1, n / 2) + with_array(n) : with_array(n) + tree(depth - 1, n / 2 + 1) + tree(depth - 1, n);
}

struct Guard {
    int n;
    ~Guard() { touch(n); }
};
OUT static void thrower(int n) {
    Guard g{n};
    if (n % 2) throw std::runtime_error("a text that is too long to be kept inside the string itself");
    throw n;
}
OUT IN(2) static void passes_on(int depth, int n) {
    Guard g{depth};
    if (depth) passes_on(depth - 1, n);
    else thrower(n);
}
static void exceptions() {
    for (int i = 0; i < 40; i++) {
        try {
            passes_on(i % 20, i);
        } catch (const std::exception &e) {
            std::string s(e.what());
            touch(i);
        } catch (int n) {
            touch(n);
            try {
                throw;
            } catch (int) {
                shapes(i);
            }
        }
    }
}

static int compare(const void *a, const void *b) {
    touch(*(const int *)a & 31);
    return *(const int *)a - *(const int *)b;
}
static void callbacks() {
    int v[60];
    for (int i = 0; i < 60; i++) v[i] = i * 7919 % 101;
    qsort(v, 60, sizeof *v, compare);
    int key = 30;
    bsearch(&key, v, 60, sizeof *v, compare);
    std::map<std::string, std::function<void(int)>> m;
    for (int i = 0; i < 50; i++) m["a rather long name of an entry " + std::to_string(i)] = [i](int n) { shapes(i + n); };
    for (auto &[name, f] : m) f(name.size());
}

static jmp_buf away;
static volatile int jumps;
static void on_signal(int signal) {
    shapes(signal);
    if (jumps && ++jumps % 3 == 0 && !(check_busy && check_busy())) siglongjmp(away, 1);
}
static void signals(bool other_stack, bool jump) {
    static char room[1 << 17];
    stack_t st = {};
    st.ss_sp = room;
    st.ss_size = sizeof room;
    if (other_stack) sigaltstack(&st, nullptr);
    struct sigaction a = {};
    a.sa_handler = on_signal;
    a.sa_flags = SA_RESTART | (other_stack ? SA_ONSTACK : 0) | (jump ? SA_NODEFER : 0);
    sigaction(SIGUSR1, &a, nullptr);
    sigaction(SIGALRM, &a, nullptr);
    jumps = jump;
    quiet = true;
    for (int i = 0; i < 20; i++) {
        sigsetjmp(away, 1);
        raise(SIGUSR1);
        with_array(i);
    }
    itimerval often = {{0, 200}, {0, 200}}, never = {};
    setitimer(ITIMER_REAL, &often, nullptr);
    static volatile int i;
    i = 0;
    sigsetjmp(away, 1);
    for (; i < 400; i++) {
        recurse(i % 30, i);
        double d = i;
        char text[64];
        for (int k = 0; k < 40; k++) snprintf(text, sizeof text, "%f %d", d * k, i), sink += strlen(text);
    }
    setitimer(ITIMER_REAL, &never, nullptr);
}

static ucontext_t home, other[4];
static int which;
static bool in_child;
static void coroutine() {
    for (int i = 0; i < 25; i++) {
        shapes(i);
        recurse(i % 7, i);
        swapcontext(&other[which], &home);
    }
}
static void coroutines() {
    for (int round = 0; round < 3; round++) {
        void *rooms[4];
        for (int i = 0; i < 4; i++) {
            getcontext(&other[i]);
            rooms[i] = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            other[i].uc_stack.ss_sp = rooms[i];
            other[i].uc_stack.ss_size = (1 << 16) - 4096 * i;
            other[i].uc_link = &home;
            makecontext(&other[i], coroutine, 0);
        }
        for (int i = 0; i < 104; i++) which = i % 4, touch(i), swapcontext(&home, &other[which]);
        for (int i = 0; i < 4; i++) munmap(rooms[i], 1 << 16);
    }
}

// Where the libraries are, while two threads load them.
static const char *parts;
static void libraries(const char *folder) {
    char path[4096];
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "%s/libunwind_part%d.so", folder, i % 2);
        void *l = dlopen(path, RTLD_NOW);
        if (!l) puts(dlerror()), exit(1);
        auto call = (long (*)(void (*)(int), int))dlsym(l, "part");
        for (int k = 0; k < 5; k++) sink += call(touch, k);
        if (check_tell && i < 4 && !parts) check_tell();
        dlclose(l);
    }
}

// Two threads load and unload while others allocate.
static void *in_loader(void *arg) { return libraries(parts), nullptr; }
static void *in_other(void *) {
    for (int i = 0; i < 60; i++) recurse(i % 11, i), tree(5, i);
    return nullptr;
}
static void loading(const char *folder) {
    parts = folder;
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], nullptr, i < 2 ? in_loader : in_other, nullptr);
    for (auto &x : t) pthread_join(x, nullptr);
}

// The loader looks a function up when it is first called, and runs a resolver that allocates: the loader's own frame is found by rbx.
static void resolver(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libunwind_resolver.so", folder);
    void *l = dlopen(path, RTLD_LAZY);
    if (!l) puts(dlerror()), exit(1);
    ((void (*)())dlsym(l, "call"))();
}

static void forks() {
    for (int i = 0; i < 3; i++) {
        shapes(i);
        if (pid_t child = fork()) waitpid(child, nullptr, 0);
        else shapes(i), in_child = true;
        if (in_child) break;
    }
    shapes(7);
}

// Code that is made at run time, without tables: push rbp; call rdi (with rsi as its argument); pop rbp; ret.
static void made_code() {
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xf8, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    void *room = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(room, code, sizeof code);
    for (int i = 0; i < 50; i++) ((void (*)(void (*)(int), int))room)(touch, i);
}

static void *in_thread(void *arg) {
    int n = (int)(long)arg;
    for (int i = 0; i < 50; i++) recurse(i % 11, n), exceptions(), tree(5, i);
    return nullptr;
}
static void threads() {
    for (int round = 0; round < 5; round++) {
        pthread_t t[6];
        for (long i = 0; i < 6; i++) {
            pthread_attr_t a;
            pthread_attr_init(&a);
            pthread_attr_setstacksize(&a, (256 + 64 * i) << 10);
            pthread_create(&t[i], &a, in_thread, (void *)i);
        }
        for (auto &x : t) pthread_join(x, nullptr);
    }
}

// Frames whose words are overwritten while a walk goes over them, and put back before anyone returns.
static unsigned long seed = 88172645463325252;
static unsigned long random_word(const void *stack) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    unsigned long here = (unsigned long)stack, by = seed >> 8;
    switch (seed & 7) {
    case 0: return by & 0xfff;
    case 1: return here + (by & 0xffff8);
    case 2: return here - (by & 0xffff8);
    case 3: return here + (by & 0xff8) + (by >> 20 & 1);
    case 4: return (unsigned long)&touch + (by & 0x3fff);
    case 5: return (unsigned long)&qsort + (by & 0xfffff);
    case 6: return by & 0x7fffffffffff;
    default: return seed;
    }
}
OUT static void overwrite(int words) {
    unsigned long kept[64], *from = (unsigned long *)__builtin_frame_address(0) + 2;
    // Volatile, or the compiler takes them for stores that nobody sees.
    volatile unsigned long *frame = from;
    for (int i = 0; i < words; i++) kept[i] = frame[i];
    for (int i = 0; i < words; i++) if (random_word(from) & 1 << i % 3) frame[i] = random_word(from);
    if (check_here) check_here();
    for (int i = 0; i < words; i++) frame[i] = kept[i];
    if (check_here) check_here();
}
OUT static void under(int depth, int words) {
    volatile char room[32] = {};
    if (depth) under(depth - 1, words);
    else overwrite(words);
    room[depth % 32] = 1;
}
static void *garbage(void *) {
    for (int i = 0; i < 3000; i++) under(12 + i % 5, i % 64);
    return nullptr;
}
static void garbage_coroutine() { garbage(nullptr), swapcontext(&other[0], &home); }
static void garbages() {
    garbage(nullptr);
    pthread_t t;
    pthread_create(&t, nullptr, garbage, nullptr);
    pthread_join(t, nullptr);
    getcontext(&other[0]);
    char *room = (char *)mmap(nullptr, 3 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(room + (1 << 16), 1 << 16, PROT_READ | PROT_WRITE);
    other[0].uc_stack.ss_sp = room + (1 << 16);
    other[0].uc_stack.ss_size = 1 << 16;
    other[0].uc_link = &home;
    makecontext(&other[0], garbage_coroutine, 0);
    swapcontext(&home, &other[0]);
}

int main(int argc, char **argv) {
    std::string mode = argc > 1 ? argv[1] : "";
    touch(0);
    if (mode == "shapes") for (int i = 0; i < 200; i++) shapes(i);
    else if (mode == "recursion") for (int i = 0; i < 300; i += 7) recurse(i, i), tree(8, i);
    else if (mode == "deep") recurse(3000, 1), recurse(5, 1), recurse(600, 1), recurse(250, 1), recurse(280, 1);
    else if (mode == "exceptions") exceptions();
    else if (mode == "callbacks") callbacks();
    else if (mode == "signals") signals(false, false);
    else if (mode == "altstack") signals(true, false);
    else if (mode == "jumps") signals(false, true), signals(true, true);
    else if (mode == "coroutines") coroutines();
    else if (mode == "libraries") libraries(argv[2]);
    else if (mode == "garbage") garbages();
    else if (mode == "loading") loading(argv[2]);
    else if (mode == "resolver") resolver(argv[2]);
    else if (mode == "forks") forks();
    else if (mode == "made") made_code();
    else if (mode == "threads") threads();
    else return 2;
    printf("done %s\n", mode.c_str());
}
