/* Touches 32 MiB and ends at once: in order, or, with an argument, by SIGKILL. Shorter than any interval. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    size_t n = 32 << 20;
    char *p = malloc(n);
    memset(p, argc, n);
    if (argc > 1) kill(getpid(), SIGKILL);
    return p[n / 2] - argc;
}
