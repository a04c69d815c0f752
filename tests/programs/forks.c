/* Children by fork in its forms, out of processes whose other threads are inside the hooks at that moment. */
#include "facts.h"
static volatile int stop;
static void *allocating(void *arg)
{
    while (!stop) {
        free(opaque(malloc(70)));
        free(opaque(realloc(opaque(calloc(4, 11)), 1200)));
        munmap(mmap(0, 8192, RW, ANON, -1, 0), 8192);
    }
    return arg;
}
static pthread_t company[4];
static void start_company(int n) { for (int i = 0; i < n; i++) EXPECT(!pthread_create(&company[i], 0, allocating, 0)); }
static void stop_company(int n) { stop = 1; for (int i = 0; i < n; i++) pthread_join(company[i], 0); }

static int storm(char **args)
{
    (void)args;
    int good = 0;
    start_company(4);
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (!child) { blocks(10, 31469); munmap(map_anon(8192), 8192); _exit(i % 100); }
        good += ended(child) == i % 100;
    }
    stop_company(4);
    line("TRUTH size=31469 allocs=3000 frees=3000");
    line("children %d", good);
    return 0;
}

static void around(void) { blocks(2, 9973); }
/* One set before most libraries start, one after all of them. */
__attribute__((constructor(103))) static void early_handlers(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "handlers")) pthread_atfork(around, around, around);
}
static int handlers(char **args)
{
    (void)args;
    pthread_atfork(around, around, around);
    start_company(2);
    int good = 0;
    for (int i = 0; i < 40; i++) { pid_t child = fork(); if (!child) exit(0); good += ended(child) == 0; }
    stop_company(2);
    line("TRUTH size=9973 allocs=480 frees=480");
    line("children %d", good);
    return 0;
}

/* By the bare system call: no handler of any library runs, no helper thread exists in the child. */
static int raw(char **args)
{
    (void)args;
    blocks(500, 9973);
    pid_t child = syscall(SYS_fork);
    if (!child) { blocks(149000, 9973); exit(0); }
    int rc = ended(child);
    blocks(500, 9973);
    line("TRUTH size=9973 allocs=150000 frees=150000");
    line("child %d", rc);
    return 0;
}

/* clone() as containers and runtimes use it: a process of its own without handlers, and one that borrows the parent's memory. */
static int cloned_work(void *arg) { blocks((long)arg, 9973); return 5; }
static int cloned(char **args)
{
    (void)args;
    int apart = 0, borrowed = 0;
    char *stack = map_anon(1 << 20);
    for (int i = 0; i < 20; i++) {
        blocks(10, 9973);
        apart += ended(clone(cloned_work, stack + (1 << 20), SIGCHLD, (void *)30L)) == 5;
        borrowed += ended(clone(cloned_work, stack + (1 << 20), CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)2L)) == 5;
    }
    line("TRUTH size=9973 allocs=840 frees=840");
    line("apart %d, borrowed %d", apart, borrowed);
    return 0;
}

/* A tree: each child forks again; a block made by the first is freed by all of them in their own copies. */
static int nested(char **args)
{
    (void)args;
    char *from_parent = opaque(malloc(27011));
    for (int depth = 0; depth < 5; depth++) {
        blocks(100, 9973);
        pid_t child = fork();
        if (child) {
            int rc = ended(child);
            if (depth) _exit(rc);
            free(from_parent);
            line("TRUTH size=9973 allocs=600 frees=600");
            line("deepest %d", rc);
            return 0;
        }
    }
    free(from_parent);
    blocks(100, 9973);
    exit(7);
}

MODES({ "storm", storm }, { "handlers", handlers }, { "raw", raw }, { "clone", cloned }, { "nested", nested })
