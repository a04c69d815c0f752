// Two threads that rest for 200 jittered times each, in phases, one within the other, and say how long by CLOCK_MONOTONIC: a line for each time with
// the phase, the nanoseconds between its begin and its end, and those around both. The phases are told by memshim's header, by NVTX (BY_NVTX), or are
// the functions themselves (BY_SYMBOLS), which then are a library's: PART, and APART for the program.
#if defined BY_NVTX
#include <nvtx3/nvToolsExt.h>
#define BEGIN(name) nvtxRangePushA(name)
#define END() nvtxRangePop()
#elif defined BY_SYMBOLS
#define BEGIN(name)
#define END()
#else
#include "../../include/memshim.h"
#define BEGIN(name) memshim_begin(name)
#define END() memshim_end()
#endif
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { TIMES = 200 };
struct took {
    long inner, outer;
};
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}

static inline void pause_for(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, 0);
}

void rest(struct took *took, long ns);
void work(struct took *took, struct took *in_it, long ns);

#ifndef APART
void rest(struct took *took, long ns) {
    BEGIN("rest");
    long in = now();
    pause_for(ns);
    took->inner = now() - in;
    END();
}

void work(struct took *took, struct took *in_it, long ns) {
    BEGIN("work");
    long in = now();
    pause_for(200000);
    long around = now();
    rest(in_it, ns);
    in_it->outer = now() - around;
    took->inner = now() - in;
    END();
}

#endif
#ifndef PART
static struct took works[2][TIMES], rests[2][TIMES];

static void *thread(void *number) {
    unsigned long me = (unsigned long)number, r = me + 7;
    for (int i = 0; i < TIMES; i++) {
        r = r * 6364136223846793005ul + 1442695040888963407ul;
        long around = now();
        work(&works[me][i], &rests[me][i], 500000 + (long)((r >> 33) % 2000000));
        works[me][i].outer = now() - around;
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
#endif
