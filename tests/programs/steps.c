// Steps by the header, as many as the first argument says; `name=number` sets what each does. Prints the times that it took for them.
#include "../../include/memshim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void *kept[100000];
static int n_kept;

static long set(int n, char **arg, const char *name, long usual) {
    size_t len = strlen(name);
    for (int i = 2; i < n; i++)
        if (!strncmp(arg[i], name, len) && arg[i][len] == '=') return atol(arg[i] + len + 1);
    return usual;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void leak(size_t bytes) {
    kept[n_kept++] = memset(malloc(bytes), 1, bytes);
}

__attribute__((noinline)) static void fill_cache(size_t bytes) {
    kept[n_kept++] = memset(malloc(bytes), 1, bytes);
}

__attribute__((noinline)) static void load_late(size_t bytes) {
    kept[n_kept++] = memset(malloc(bytes), 1, bytes);
}

__attribute__((noinline)) static void scratch(size_t bytes) {
    free(memset(malloc(bytes), 1, bytes));
}

// The thread's processor time, s.
static double worked(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// Computes for so long on a processor, on pages of its own.
static void busy(double s, size_t pages) {
    double end = worked() + s;
    char *fresh = mmap(0, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < pages; i++) fresh[i << 12] = 1;
    munmap(fresh, pages << 12);
    while (worked() < end) {}
}

int main(int n, char **arg) {
    static char out[4096];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    long steps = atol(arg[1]);
    double *took = calloc(steps, sizeof *took);
    struct timespec us = {0, set(n, arg, "us", 0) * 1000};
    for (long i = 0; i < steps; i++) {
        memshim_begin("step");
        double begin = now();
        scratch(5000);
        if (i < set(n, arg, "cache", 0)) fill_cache(10240);
        if (i == set(n, arg, "late", -1)) load_late(300000);
        if (set(n, arg, "leak", 0)) leak(set(n, arg, "leak", 0));
        if (set(n, arg, "map", 0)) *(char *)mmap(0, set(n, arg, "map", 0), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
        if (us.tv_nsec) nanosleep(&us, 0);
        if (i == set(n, arg, "sleeps", -1)) usleep(60000);
        if (i == set(n, arg, "works", -1)) busy(0.05, 1000);
        took[i] = now() - begin;
        memshim_end();
    }
    double mean = 0;
    for (long i = 0; i < steps; i++) mean += took[i] / steps;
    printf("{\"mean\":%.9f}\n", mean);
    return 0;
}
