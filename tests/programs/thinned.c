/* Many small blocks, of which all but one or two a page go, page by page; then others come, small and large, between those that are left. */
#include "facts.h"

enum { MANY = 600000, MORE = 150000 };
static void *blocks_of[MANY], *more[MORE];

int main(void)
{
    long kept = 0, small = 0;
    for (int i = 0; i < MANY; i++) blocks_of[i] = opaque(malloc(57));
    // 51 on each page.
    for (int i = 0; i < MANY; i++) {
        if (i % 40 == 0) kept++;
        else free(blocks_of[i]);
    }
    for (int i = 0; i < MORE; i++) {
        int large = i % 7 == 0;
        small += !large;
        more[i] = opaque(malloc(large ? 9001 : 73));
    }
    for (int i = 0; i < MORE; i++) free(more[i]);
    line("TRUTH size=57 allocs=%d frees=%ld leaked=%ld", MANY, MANY - kept, kept);
    line("TRUTH size=73 allocs=%ld frees=%ld leaked=0", small, small);
    line("TRUTH size=9001 allocs=%ld frees=%ld leaked=0", MORE - small, MORE - small);
    return 0;
}
