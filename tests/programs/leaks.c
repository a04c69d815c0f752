// A thousand steps, each of which makes and frees blocks of many sizes; with `keep` each leaves a kilobyte behind.
#include "../../include/memshim.h"
#include <stdlib.h>
#include <string.h>

enum { STEPS = 1000, BLOCKS = 40, KEPT = 1024 };
static void *kept[STEPS];

static void step(int n, int keep) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = 16 + (n * 7919 + i * 104729) % 20000;
        blocks[i] = malloc(size);
        memset(blocks[i], 1, size);
    }
    if (keep) kept[n] = malloc(KEPT);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

int main(int count, char **args) {
    int keep = count > 1 && !strcmp(args[1], "keep");
    for (int n = 0; n < STEPS; n++) {
        memshim_begin("step");
        step(n, keep);
        memshim_end();
    }
    // What a global holds and gives back at the end has leaked all the same.
    for (int n = 0; n < STEPS; n++) free(kept[n]);
    return 0;
}
