/* 600 blocks of 1,044,000 bytes, each of which the C library maps: 255 pages from one to the next. Then none. */
#include "facts.h"

enum { BLOCKS = 600 };

int main(void)
{
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = opaque(malloc(1044000));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    printf("%ld\n", (long)(blocks[1] - blocks[0]));
    return 0;
}
