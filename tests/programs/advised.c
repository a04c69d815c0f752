// Phases by the header that need something pointed out, by the first argument: `held` across phases by one line, `hot` in its time, `holes` in its
// heap, `arenas` of its threads, `huge` pages of its stacks; `small` ones, `clean`: nothing.
#define _GNU_SOURCE
#include "../../include/memshim.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1 << 20)
enum { SMALL = 1000, MANY = 80 * MIB / SMALL, THREADS = 8, MORE = 40 };

static char *small[MANY], *large;

__attribute__((noinline)) static char *fill(size_t bytes) {
    return malloc(bytes);
}

// Blocks that stay between what goes leave holes that nothing large fits in.
static void make_holes(int from, int to) {
    for (int i = from; i < to; i++) small[i] = memset(malloc(SMALL), 1, SMALL);
    for (int i = from; i < to; i++)
        if (i % 32) free(small[i]);
}

static pthread_barrier_t all_hold;

static void *thread(void *number) {
    long n = (long)number;
    // Each has an arena of its own: that of a thread that has ended is taken again.
    free(malloc(1));
    pthread_barrier_wait(&all_hold);
    make_holes(MANY / THREADS * n, MANY / THREADS * (n + 1));
    return 0;
}

// A byte far down each stack is touched; where huge pages are asked for, as they are by itself where the system gives them always, that is 2 MiB.
static void *touches_its_stack(void *huge) {
    pthread_attr_t of;
    void *low;
    size_t size;
    pthread_getattr_np(pthread_self(), &of);
    pthread_attr_getstack(&of, &low, &size);
    pthread_attr_destroy(&of);
    if (huge) madvise(low, size, MADV_HUGEPAGE);
    ((volatile char *)low)[size / 2] = 1;
    pthread_barrier_wait(&all_hold);
    // For long enough that the kernel is asked for the pages, too.
    usleep(1700000);
    return 0;
}

// Resident memory has its peak here, for long enough to be seen.
static void touch_more(void) {
    for (int i = 0; i < 80; i++) memset(malloc(MIB), 1, MIB);
    usleep(250000);
}

int main(int n, char **arg) {
    const char *how = n > 1 ? arg[1] : "";
    if (!strcmp(how, "held")) {
        memshim_begin("build");
        large = fill(100 * MIB);
        memshim_end();
        memshim_begin("solve");
        free(malloc(60 * MIB));
        memshim_end();
    } else if (!strcmp(how, "hot")) {
        memshim_begin("assemble");
        usleep(20000);
        memshim_end();
        memshim_begin("solve");
        usleep(600000);
        memshim_end();
    } else if (!strcmp(how, "holes")) {
        make_holes(0, MANY);
        touch_more();
    } else if (!strcmp(how, "arenas")) {
        pthread_t all[THREADS];
        pthread_barrier_init(&all_hold, 0, THREADS);
        for (long i = 0; i < THREADS; i++) pthread_create(&all[i], 0, thread, (void *)i);
        for (int i = 0; i < THREADS; i++) pthread_join(all[i], 0);
        touch_more();
    } else if (!strcmp(how, "huge") || !strcmp(how, "small")) {
        pthread_t all[MORE];
        pthread_barrier_init(&all_hold, 0, MORE);
        for (int i = 0; i < MORE; i++) pthread_create(&all[i], 0, touches_its_stack, !strcmp(how, "huge") ? arg : 0);
        for (int i = 0; i < MORE; i++) pthread_join(all[i], 0);
    } else if (!strcmp(how, "clean")) {
        for (int i = 0; i < 50; i++) {
            memshim_begin(i % 2 ? "even" : "odd");
            free(memset(malloc(8 * MIB), 1, 8 * MIB));
            memshim_end();
        }
    } else {
        return 2;
    }
    puts("done");
    return 0;
}
