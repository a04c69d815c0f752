/* A plugin: is opened and closed, calls the library, and a function that it and the library have both. */
#include "part.h"
#include <stdlib.h>
/* The library of the program comes first. */
int same_name(int n) { return n + 1000; }
int plugin_run(int n) {
    free(keep(1000));
    return same_name(n);
}
