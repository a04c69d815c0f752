/* Allocates 100,000 bytes and as many as the calls of its own that it is in: `deep CALLS...`. */
#include <stdlib.h>

static char *volatile kept;

__attribute__((noinline)) static int down(int calls, int all)
{
    if (calls > 1)
        return down(calls - 1, all) + 1;
    kept = malloc(100000 + all);
    return 1;
}

int main(int n, char **arg)
{
    for (int i = 1; i < n; i++)
        if (down(atoi(arg[i]), atoi(arg[i])) != atoi(arg[i]))
            return 1;
    return 0;
}
