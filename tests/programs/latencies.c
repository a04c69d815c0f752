// Two threads that rest for 200 jittered times each, in phases, one within the other, and say how long by CLOCK_MONOTONIC: a line for each time with
// the phase, the nanoseconds between its begin and its end, and those around both.
#include "../../include/memshim.h"
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { TIMES = 200 };
struct took {
    long inner, outer;
};
static struct took works[2][TIMES], rests[2][TIMES];

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}

static void pause_for(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, 0);
}

static void *thread(void *number) {
    unsigned long me = (unsigned long)number, r = me + 7;
    for (int i = 0; i < TIMES; i++) {
        r = r * 6364136223846793005ul + 1442695040888963407ul;
        long jitter = (r >> 33) % 2000000;
        struct took *work = &works[me][i], *rest = &rests[me][i];
        long around = now();
        memshim_begin("work");
        long in = now();
        pause_for(200000);
        long around_rest = now();
        memshim_begin("rest");
        long in_rest = now();
        pause_for(500000 + jitter);
        rest->inner = now() - in_rest;
        memshim_end();
        rest->outer = now() - around_rest;
        work->inner = now() - in;
        memshim_end();
        work->outer = now() - around;
    }
    return 0;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, 0, thread, (void *)1);
    thread(0);
    pthread_join(other, 0);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < TIMES; i++)
            printf("work %ld %ld\nrest %ld %ld\n", works[t][i].inner, works[t][i].outer, rests[t][i].inner, rests[t][i].outer);
    return 0;
}
