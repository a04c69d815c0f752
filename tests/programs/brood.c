/* A family that writes much: `brood CHILDREN TIMES`. Parent and children each allocate TIMES blocks of many sizes from many places
   (a tree of calls), and free most of them. Children run side by side, and some of them exec another image. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned seed = 1;
static unsigned roll(void) { return seed = seed * 1103515245 + 12345, seed >> 8; }
static void *kept[64];

__attribute__((noinline)) static void one(void)
{
    unsigned at = roll() % 64;
    free(kept[at]);
    kept[at] = malloc(1 + roll() % 5000);
}
__attribute__((noinline)) static int a(int deep);
__attribute__((noinline)) static int b(int deep);
__attribute__((noinline)) static int c(int deep);
static int step(int deep)
{
    if (deep == 0) return one(), 1;
    switch (roll() % 3) {
    case 0: return a(deep - 1) + 1;
    case 1: return b(deep - 1) + 2;
    default: return c(deep - 1) + 3;
    }
}
static int a(int deep) { return step(deep) + 1; }
static int b(int deep) { return step(deep) + 2; }
static int c(int deep) { return step(deep) + 3; }

int main(int argc, char **argv)
{
    int children = atoi(argv[1]), times = atoi(argv[2]), sum = 0;
    seed += getpid();
    for (int i = 0; i < children; i++)
        if (!fork()) {
            if (i % 4 == 3) execl(argv[0], argv[0], "0", argv[2], (char *)0);
            seed += getpid();
            for (int k = 0; k < times; k++) sum += step(10);
            exit(0);
        }
    for (int k = 0; k < times; k++) sum += step(10);
    while (wait(0) > 0) ;
    return sum == 0;
}
