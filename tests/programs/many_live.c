// Holds as many blocks as there is room for, gives each another size, frees them; prints how many there were.
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 2000000 };
static void *held[MOST];

int main(void)
{
    long n = 0;
    while (n < MOST && (held[n] = malloc(24))) n++;
    // Room for the stream and for the blocks to come.
    for (int i = 0; i < 20000; i++) free(held[--n]);
    for (long i = 0; i < n; i++) {
        void *other = realloc(held[i], 20);
        if (other) held[i] = other;
    }
    for (long i = 0; i < n; i++) free(held[i]);
    printf("%ld\n", n);
    return 0;
}
