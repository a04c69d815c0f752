/* 600 blocks of 1,044,456 bytes side by side, none of which is touched: 255 pages from one to the next. Then none. */
#include "facts.h"
#include <malloc.h>

enum { BLOCKS = 600 };

int main(void)
{
    static char *blocks[BLOCKS];
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = opaque(malloc(1044456));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    printf("%ld\n", (long)(blocks[1] - blocks[0]));
    return 0;
}
