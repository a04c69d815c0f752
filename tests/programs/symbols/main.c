/* Calls functions of a library in every way there is; says what it got, and on lines with TRUTH which function was called how often, what it
 * left behind and what it needed meanwhile (- : not said). */
#define _GNU_SOURCE
#include "part.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static void truth(const char *name, int count, const char *rest) { printf("TRUTH %s %d %s\n", name, count, rest); }

static void arguments(void) {
    for (int i = 0; i < 3; i++)
        printf("mix %.17g\n", mix(1, .1, 2, .2, 3, .3, 4, .4, 5, .5, 6, .6, 7, .7, 8, .8, 9, .9, 10, 1.0, 1.1, i));
    printf("longer %.20Lg\n", longer(1.0L, 3, 2.5L));
    struct pair p = swap((struct pair){2.5, 7});
    printf("swap %g %ld\n", p.a, p.b);
    struct big b;
    for (int i = 0; i < 24; i++) b.v[i] = i;
    b = scale(b, 3);
    printf("scale %ld %ld\n", b.v[1], b.v[23]);
    static struct huge h;
    for (int i = 0; i < 220; i++) h.v[i] = i * 7;
    printf("sum %ld\n", sum(h, (struct pair){3, 4}, h));
    char text[80];
    int n = say(text, sizeof text, "%d %s %.3f %ld %Lg %c", 42, "forty-two", 4.2, 1L << 40, 0.25L, 'x');
    printf("say %d %s\n", n, text);
    errno = 5;
    n = sets_errno(5);
    int after = errno;
    printf("errno %d %d\n", n, after);
    int w = wide();
    printf("wide %s\n", w < 100 ? "right" : "WRONG");
    truth("mix", 3, "0 0");
    truth("longer", 1, "0 0");
    truth("swap", 1, "0 0");
    truth("scale", 1, "0 0");
    truth("sum", 1, "0 0");
    truth("say", 1, "0 0");
    truth("sets_errno", 1, "0 0");
    truth("wide", 1, "0 0");
    if (w & 1) truth("add4", 2, "0 0");
    if (w & 2) truth("add8", 1, "0 0");
}

static void heap(void) {
    void *a = keep(1000000);
    work(300000);
    void *b = keep(2000);
    free(a);
    work(700000);
    free(b);
    truth("keep", 2, "1002000 0");
    truth("work", 2, "0 700000");
}

static void pointers(void) {
    function by_name = (function)dlsym(RTLD_DEFAULT, "down"), by_handle = (function)dlsym(dlopen(NULL, RTLD_NOW), "down");
    printf("same %d %d %d %d\n", by_name == down, by_handle == down, table[0] == down, address_of_down() == down);
    printf("none %d\n", dlsym(RTLD_DEFAULT, "no_such_function") == NULL && dlerror() != NULL);
    void *data = dlsym(RTLD_DEFAULT, "table");
    printf("data %d\n", data == (void *)table);
    int n = down(9) + table[0](3) + by_name(2) + call(down, 4) + call(table[1], 1);
    printf("down %d, renewed %d\n", n, renewed(1) + renewed(2));
    truth("renewed", 2, "0 0");
    /* 9: down and up in turn, ten calls. */
    truth("down", 5 + 2 + 2 + 3 + 1, "0 0");
    truth("up", 5 + 2 + 1 + 2 + 1, "0 0");
    truth("call", 2, "0 0");
}

static void jumps(void) {
    jmp_buf here;
    volatile int seen = 0;
    for (int i = 1; i < 4; i++) {
        int got = setjmp(here);
        if (got == 0) leave(&here, i);
        seen += got;
        free(keep(1000));
    }
    printf("jumped %d\n", seen);
    truth("leave", 3, "0 0");
    truth("keep", 3, "3000 0");
}

static void *runs(void *times) {
    for (long i = 0; i < (long)times; i++) work(100 + i);
    exits_thread();
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, runs, (void *)500L);
    long sum = 0;
    for (int i = 0; i < 4; i++) {
        void *got;
        pthread_join(all[i], &got);
        sum += (long)got;
    }
    printf("joined %ld\n", sum);
    truth("work", 2000, "- -");
    truth("exits_thread", 4, "- -");
}

static void children(void) {
    pid_t child = forks();
    if (child == 0) {
        free(keep(4000));
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    printf("spawned %d\n", spawns("/bin/true"));
    truth("forks", 1, "- -");
    truth("spawns", 1, "- -");
    truth("work", 1, "- -");
}

static void plugins(const char *path) {
    int total = 0;
    for (int i = 0; i < 20; i++) {
        void *handle = dlopen(path, i % 2 ? RTLD_NOW : RTLD_LAZY);
        int (*run)(int) = handle ? (int (*)(int))dlsym(handle, "plugin_run") : NULL;
        if (!run) {
            printf("no plugin: %s\n", dlerror());
            return;
        }
        for (int j = 0; j < 3; j++) total += run(j);
        dlclose(handle);
    }
    printf("plugin %d\n", total);
    printf("TRUTH symbols_plugin.so:plugin_run 60 0 1000\n");
    truth("keep", 60, "60000 0");
    truth("same_name", 60, "0 0");
}

/* What of this program and its library may be written, and run, is what it was. */
static void sealed(void) {
    char line[1000];
    FILE *maps = fopen("/proc/self/maps", "r");
    keep(10);
    while (fgets(line, sizeof line, maps)) {
        char *name = strstr(line, "symbols_");
        if (name) printf("%.4s %s", strchr(line, ' ') + 1, strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
    }
    fclose(maps);
    truth("keep", 1, "10 0");
}

static volatile sig_atomic_t rings;
static void rang(int signal) {
    rings++;
    work(50);
}

static void signals(void) {
    stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&other, NULL);
    struct sigaction act = {.sa_handler = rang, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &act, NULL);
    struct itimerval often = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &often, NULL);
    int n = 0;
    for (int i = 0; i < 3000; i++) n += down(3);
    while (rings < 20) n += down(0);
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("rang %d\n", n);
    truth("up", 6000, "- -");
}

static ucontext_t there[2], back;
static int yielded;
static int yields(int i) {
    yielded += i;
    swapcontext(&there[i], &back);
    free(keep(100));
    return i + 5;
}
static void runs_apart(int i) { yielded += call(yields, i); }

static void coroutines(void) {
    for (int i = 0; i < 2; i++) {
        getcontext(&there[i]);
        there[i].uc_stack.ss_sp = malloc(65536);
        there[i].uc_stack.ss_size = 65536;
        there[i].uc_link = &back;
        makecontext(&there[i], (void (*)(void))runs_apart, 1, i);
        swapcontext(&back, &there[i]);
        down(1);
    }
    for (int i = 0; i < 2; i++) swapcontext(&back, &there[i]);
    printf("yielded %d\n", yielded);
    truth("call", 2, "- -");
    truth("keep", 2, "200 -");
    truth("down", 2, "0 0");
}

/* Libraries come and go while others call, make threads and fork: a child must not wait for a lock that its parent's threads had. */
static void *opens(void *path) {
    long right = 0;
    for (int i = 0; i < 100; i++) {
        void *handle = dlopen(path, RTLD_LAZY);
        right += ((function)dlsym(handle, "plugin_run"))(i) == i + 1;
        dlclose(handle);
    }
    return (void *)right;
}
static void *makes(void *nothing) {
    long right = 0;
    for (int i = 0; i < 50; i++) {
        pthread_t other;
        void *got;
        pthread_create(&other, NULL, runs, (void *)1L);
        pthread_join(other, &got);
        right += got == (void *)7;
    }
    return (void *)right;
}
static void *breeds(void *nothing) {
    long right = 0;
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            work(20);
            _exit(down(3) + 10 * (keep == dlsym(RTLD_DEFAULT, "keep")));
        }
        int status;
        waitpid(child, &status, 0);
        right += WEXITSTATUS(status) == 13;
    }
    return (void *)right;
}
static void storm(char *path) {
    void *(*all[])(void *) = {opens, opens, makes, breeds};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, all[i], path);
    for (int i = 0; i < 4; i++) {
        void *got;
        pthread_join(threads[i], &got);
        printf("right %ld\n", (long)got);
    }
    truth("exits_thread", 50, "- -");
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    if (!strcmp(what, "arguments")) arguments();
    if (!strcmp(what, "heap")) heap();
    if (!strcmp(what, "pointers")) pointers();
    if (!strcmp(what, "jumps")) jumps();
    if (!strcmp(what, "threads")) threads();
    if (!strcmp(what, "children")) children();
    if (!strcmp(what, "sealed")) sealed();
    if (!strcmp(what, "signals")) signals();
    if (!strcmp(what, "coroutines")) coroutines();
    if (!strcmp(what, "plugins")) plugins(argv[2]);
    if (!strcmp(what, "storm")) storm(argv[2]);
    return 0;
}
