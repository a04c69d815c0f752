/* Asks for more than it touches: 60 MiB of heap, nothing of it touched, and a map of 100 MiB, 40 of it touched; that is the resident peak. Then a map
   of 200 MiB in its place, which is not touched. */
#include "facts.h"
int main(void)
{
    void *volatile block = malloc(60 << 20);
    char *map = map_anon(100 << 20);
    memset(map, 1, 40 << 20);
    usleep(300000);
    free(block);
    EXPECT(!munmap(map, 100 << 20));
    map_anon(200 << 20);
    return 0;
}
