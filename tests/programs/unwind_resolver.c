// A function whose address a resolver decides, which allocates; linked so that the first call looks it up.
#include <stdlib.h>
static void *kept;
static void really(void) { free(kept); }
__attribute__((noinline)) static void *choose(int n) {
    char room[100];
    kept = malloc(n);
    ((volatile char *)room)[n] = 1;
    return really;
}
void *resolve(void) { return choose(50); }
void decided(void) __attribute__((ifunc("resolve")));
__attribute__((noinline)) void call(void) {
    char room[40];
    ((volatile char *)room)[3] = 1;
    decided();
    ((volatile char *)room)[4] = 1;
}
