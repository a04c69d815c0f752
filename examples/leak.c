/* Loses one block in a hundred. `memshim run -- ./leak && memshim analyze trace.jsonl` says how many, and how big.
   cc -O1 -o leak leak.c */
#include <stdlib.h>
#include <string.h>

int main(void)
{
    for (int i = 0; i < 10000; i++) {
        char *block = malloc(4000);
        if (!block) return 1;
        memset(block, i, 4000);
        if (i % 100) free(block);
    }
    return 0;
}
