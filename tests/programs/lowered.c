// A phase that is over before recording is lowered, and one after that needs so many bytes; what the first left is freed after, what leaks is
// asked for after.
#include "../../include/memshim.h"
#include <stdlib.h>

static char *volatile kept;
static char *volatile leaked;

int main(int n, char **arg) {
    size_t late = n > 1 ? strtoul(arg[1], 0, 10) : 2000000;
    memshim_begin("early");
    char *volatile a = malloc(1000001);
    kept = malloc(300000);
    free(a);
    memshim_end();
    for (int i = 0; i < 300000; i++) {
        char *volatile p = malloc(i % 1000 + 1);
        free(p);
    }
    memshim_begin("late");
    a = malloc(late);
    free(kept);
    free(a);
    memshim_end();
    leaked = malloc(700000);
    return 0;
}
