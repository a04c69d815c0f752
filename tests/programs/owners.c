/* Holds, leaks and passes memory at lines that are marked. Sizes are such that glibc's usable size is the requested one. */
#include <stdlib.h>
#include <string.h>

static void *held[50], *kept[3000];

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
    void *volatile p = malloc(5000); /* <TEMPORARY> */
    free(p);
}

int main(void)
{
    for (int i = 0; i < 1000; i++)
        pass();
    for (int i = 0; i < 3000; i++)
        leak(i);
    for (int i = 0; i < 50; i++)
        held[i] = hold(100008);
    for (int i = 0; i < 50; i++)
        free(held[i]);
    memset(kept, 0, sizeof kept);
    return 0;
}
