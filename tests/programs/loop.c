/* The same few calls again and again, for counting instructions a call. Usage: loop SHAPE TIMES [abort] */
#include "facts.h"
int main(int argc, char **argv)
{
    long times = argc > 2 ? atol(argv[2]) : 0;
    const char *shape = argc > 1 ? argv[1] : "";
    if (!strcmp(shape, "malloc+free")) for (long i = 0; i < times; i++) free(opaque(malloc(48)));
    else if (!strcmp(shape, "calloc+free")) for (long i = 0; i < times; i++) free(opaque(calloc(3, 16)));
    else if (!strcmp(shape, "malloc+realloc+free")) for (long i = 0; i < times; i++) free(opaque(realloc(opaque(malloc(48)), 72)));
    else return 2;
    if (argc > 3) abort();
    return 0;
}
