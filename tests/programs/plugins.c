/* Libraries that come and go: constructors with threads under the loader's lock, thread-local storage, deep binding, unloading. */
#include "facts.h"

static void *load(const char *name, int how)
{
    void *library = dlopen(name, how);
    if (!library) { line("%s", dlerror()); _exit(99); }
    return library;
}

static int constructor_thread(char **args)
{
    (void)args;
    for (int i = 0; i < 4; i++) { void *library = load(beside("constructor.so"), RTLD_NOW); blocks(1, 9973); EXPECT(!dlclose(library)); }
    line("TRUTH size=9973 allocs=404 frees=404");
    line("TRUTH size=5003 allocs=4 frees=4");
    return 0;
}

enum { COPIES = 48, READERS = 6 };
static int (*touch[COPIES])(int);
static pthread_barrier_t started, loaded;
static long total;
static void *reader(void *arg)
{
    long sum = 0;
    blocks(1, 9973);
    pthread_barrier_wait(&started);
    pthread_barrier_wait(&loaded);
    for (int round = 0; round < 3; round++) for (int i = 0; i < COPIES; i++) { sum += touch[i](i); free(opaque(malloc(90 + i))); }
    __atomic_fetch_add(&total, sum, __ATOMIC_RELAXED);
    return arg;
}
static int thread_storage(char **args)
{
    (void)args;
    static char bytes[2 << 20];
    pthread_t threads[READERS];
    void *library[COPIES];
    pthread_barrier_init(&started, 0, READERS + 1);
    pthread_barrier_init(&loaded, 0, READERS + 1);
    for (int i = 0; i < READERS; i++) EXPECT(!pthread_create(&threads[i], 0, reader, 0));
    pthread_barrier_wait(&started);
    int in = open(beside("storage.so"), O_RDONLY | O_CLOEXEC);
    ssize_t length = read(in, bytes, sizeof bytes);
    close(in);
    EXPECT(length > 0);
    for (int i = 0; i < COPIES; i++) {
        char name[32];
        snprintf(name, sizeof name, "./storage%d.so", i);
        int to = open(name, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0755);
        EXPECT(write(to, bytes, length) == length && !close(to));
        library[i] = load(name, RTLD_NOW | RTLD_LOCAL);
        EXPECT(touch[i] = (int (*)(int))dlsym(library[i], "touch"));
    }
    pthread_barrier_wait(&loaded);
    for (int i = 0; i < READERS; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < COPIES; i++) dlclose(library[i]);
    blocks(500, 9973);
    line("TRUTH size=9973 allocs=506 frees=506");
    line("total %ld", total);
    return 0;
}

/* A library bound to the C library itself: its calls pass the shim by, its blocks do not. */
static int deep_binding(char **args)
{
    (void)args;
    void *library = load(beside("grab-one.so"), RTLD_NOW | RTLD_DEEPBIND);
    void *(*grab)(void) = (void *(*)(void))dlsym(library, "grab");
    void *(*grow)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "grow");
    void (*drop)(void *) = (void (*)(void *))dlsym(library, "drop");
    for (int i = 0; i < 800; i++) {
        char *theirs = grab(), *ours = opaque(malloc(9973));
        EXPECT(theirs = realloc(theirs, 260003));
        EXPECT(ours = grow(ours, 260003));
        EXPECT(malloc_usable_size(theirs) >= 260003);
        theirs[260002] = ours[260002] = 1;
        free(theirs);
        drop(ours);
    }
    line("crossed 1600 times");
    return 0;
}

static int unloading(char **args)
{
    (void)args;
    for (int i = 0; i < 30; i++) {
        void *block[2];
        for (int k = 0; k < 2; k++) {
            void *library = load(beside(k ? "grab-two.so" : "grab-one.so"), RTLD_NOW);
            block[k] = ((void *(*)(void))dlsym(library, "grab"))();
            EXPECT(!dlclose(library));
        }
        free(block[0]);
        free(block[1]);
    }
    line("TRUTH size=17011 allocs=30 frees=30");
    line("TRUTH size=18013 allocs=30 frees=30");
    return 0;
}

/* The program runs itself with a second interposing library, loaded after and before what is preloaded now. */
static int counted(char **args)
{
    blocks(900, 9973);
    long (*seen)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "rival_saw");
    line("%s: the rival saw %ld", args[0], seen ? seen() : -1);
    return 0;
}
static int rival(char **args)
{
    (void)args;
    const char *present = getenv("LD_PRELOAD");
    for (int before = 0; before < 2; before++) {
        char value[8192];
        if (!present || !*present) snprintf(value, sizeof value, "%s", beside("rival.so"));
        else if (before) snprintf(value, sizeof value, "%s:%s", beside("rival.so"), present);
        else snprintf(value, sizeof value, "%s:%s", present, beside("rival.so"));
        pid_t child = fork();
        if (!child) { setenv("LD_PRELOAD", value, 1); AGAIN("counted", before ? "before" : "after"); _exit(97); }
        EXPECT(ended(child) == 0);
    }
    line("TRUTH size=9973 allocs=1800 frees=1800");
    return 0;
}

MODES({ "constructor", constructor_thread }, { "storage", thread_storage }, { "deep-binding", deep_binding }, { "unloading", unloading },
      { "counted", counted }, { "rival", rival })
