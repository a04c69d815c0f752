/* Holds, leaks and passes memory, and holds more with each step, at lines that are marked. Sizes are such that glibc's usable size is the requested one. */
#include "../../include/memshim.h"
#include <stdlib.h>
#include <string.h>

static void *held[50], *kept[3000], *grown[180], *volatile others[2000];

__attribute__((noinline)) static void *hold(size_t n)
{
    void *p = malloc(n); /* <PEAK> */
    memset(p, 1, n);
    return p;
}

__attribute__((noinline)) static void leak(int i)
{
    kept[i] = malloc(1000); /* <LEAK> */
}

__attribute__((noinline)) static void pass(void)
{
    void *volatile p = malloc(1200); /* <TEMPORARY> */
    free(p);
}

__attribute__((noinline)) static void grow(int i)
{
    grown[i] = malloc(4008); /* <GROWTH> */
}

int main(void)
{
    /* Freed, and not temporary: by how many were freed the estimate of these is not bounded then. */
    for (int i = 0; i < 2000; i++)
        others[i] = malloc(24);
    for (int i = 0; i < 2000; i++)
        free(others[i]);
    for (int i = 0; i < 5000; i++)
        pass();
    for (int i = 0; i < 3000; i++)
        leak(i);
    for (int step = 0; step < 60; step++) {
        memshim_begin("step");
        for (int i = 0; i < 3; i++)
            grow(3 * step + i);
        memshim_end();
    }
    for (int i = 0; i < 50; i++)
        held[i] = hold(100008);
    for (int i = 0; i < 50; i++)
        free(held[i]);
    memset(kept, 0, sizeof kept);
    memset(grown, 0, sizeof grown);
    return 0;
}
