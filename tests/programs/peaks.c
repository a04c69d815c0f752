// Peaks between two looks of the writer: small blocks with much slack and blocks mapped singly, all gone again at once.
// peaks [ROUNDS]: prints the most bytes that were asked for and live at once.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 10000, BIG = 50, BIG_SIZE = 200000 };
static void *small[SMALL], *big[BIG];

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < SMALL; i++) small[i] = malloc(1);
        for (int i = 0; i < BIG; i++) big[i] = malloc(BIG_SIZE);
        for (int i = 0; i < BIG; i++) free(big[i]);
        for (int i = 0; i < SMALL; i++) free(small[i]);
        // One block of the same usable size: the highest level is not the one with the most blocks.
        void *one = malloc(4096);
        free(one);
    }
    char line[64];
    int n = snprintf(line, sizeof line, "peak %d\n", SMALL + BIG * BIG_SIZE);
    return write(1, line, n) == n ? 0 : 1;
}
