/* Allocates as large C programs do: through a function of its own. */
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void *xmalloc(size_t n)
{
    void *p = malloc(n);
    if (!p)
        abort();
    return memset(p, 1, n);
}

__attribute__((noinline)) static char *dbMallocZero(size_t n)
{
    return memset(xmalloc(n), 0, n);
}

static char *kept[2];

__attribute__((noinline)) static void load_table(void)
{
    kept[0] = dbMallocZero(300000);
}

__attribute__((noinline)) static void load_index(void)
{
    kept[1] = xmalloc(100000);
}

int main(void)
{
    load_table();
    load_index();
    return kept[0][5] + kept[1][5] - 1;
}
