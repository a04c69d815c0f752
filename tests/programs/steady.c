// Works for so many milliseconds at one pace: small blocks all the time, a large one with a hint every few milliseconds.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int n, char **arg) {
    enum { LIVE = 1000, LARGE = 1 << 20 };
    static void *live[LIVE];
    double begin = now(), next = begin, end = begin + atof(arg[1]);
    unsigned random = 1;
    long calls = 0, large = 0;
    while (now() < end) {
        for (int i = 0; i < 1000; i++) {
            random = random * 1664525u + 1013904223u;
            void **slot = &live[(random >> 16) % LIVE];
            free(*slot);
            *slot = malloc(16 + (random >> 8) % 1000);
            calls++;
        }
        if (now() >= next) {
            void *p = aligned_alloc(4096, LARGE);
            madvise(p, LARGE, MADV_HUGEPAGE);
            free(p);
            large++;
            next += 5;
        }
    }
    printf("%ld %ld\n", calls, large);
    return n != 2;
}
