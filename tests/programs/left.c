// Phases that keep and throw away known amounts, by functions of known names; says for each phase what whose is.
#include "../../include/memshim.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BY(name) __attribute__((noinline)) static void *name(size_t n) { void *p = malloc(n); __asm__ volatile("" ::: "memory"); return memset(p, 1, n); }
BY(keep_load) BY(scratch_load) BY(keep_solve) BY(scratch_solve) BY(keep_inner) BY(keep_step) BY(scratch_step) BY(keep_many) BY(other_thread) BY(fill)

static void *worker(void *p) {
    *(void **)p = other_thread(123456);
    return p;
}

static void *many[4000];

static int ramp(void) {
    struct timespec t = {0, 10000000};
    for (int i = 0; i < 40; i++) nanosleep(&t, 0);
    void *all[100];
    for (int i = 0; i < 100; i++) {
        all[i] = fill(1000000);
        free(scratch_load(500000));
        nanosleep(&t, 0);
    }
    for (int i = 0; i < 60; i++) nanosleep(&t, 0);
    return all[7] != 0 ? 0 : 1;
}

int main(int n, char **args) {
    if (n > 1 && !strcmp(args[1], "ramp")) return ramp();
    void *load[3], *scratch[5], *steps[10], *shared;
    memshim_begin("load");
    for (int i = 0; i < 3; i++) load[i] = keep_load(100000);
    for (int i = 0; i < 5; i++) scratch[i] = scratch_load(200000);
    for (int i = 0; i < 5; i++) free(scratch[i]);
    memshim_end();

    memshim_begin("solve");
    free(load[0]);
    void *kept = keep_solve(700001), *large = scratch_solve(1000000);
    memshim_begin("inner");
    void *inner = keep_inner(50000);
    kept = realloc(kept, 800001);
    memshim_end();
    free(large);
    pthread_t other;
    pthread_create(&other, 0, worker, &shared);
    pthread_join(other, 0);
    memshim_end();

    for (int i = 0; i < 10; i++) {
        memshim_begin("step");
        steps[i] = keep_step(70000);
        free(scratch_step(i == 6 ? 900000 : 300000));
        memshim_end();
        if (i == 2) free(steps[0]);
    }
    memshim_begin("many");
    for (int i = 0; i < 4000; i++) many[i] = keep_many(1000);
    memshim_end();
    free(kept);
    free(inner);
    for (int i = 1; i < 10; i++) free(steps[i]);
    return 0;
}
