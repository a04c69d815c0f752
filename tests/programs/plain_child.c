/* Says who it is. Built static and made setuid, it is what no preload reaches. */
#include "facts.h"
int main(int argc, char **argv)
{
    (void)argc;
    free(opaque(malloc(111)));
    line("%s runs as %d", strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0], (int)geteuid());
    return 6;
}
