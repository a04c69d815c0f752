/* Touches so many MiB and, with HOW, then starts another of it and waits. Usage: touches MIB [fork|vfork|spawn OTHER_MIB] */
#include "facts.h"
int main(int argc, char **argv)
{
    size_t length = (size_t)atol(argv[1]) << 20;
    memset(map_anon(length), 1, length);
    if (argc < 4) return 0;
    char *other[] = { argv[0], argv[3], 0 };
    pid_t child = -1;
    if (!strcmp(argv[2], "spawn")) EXPECT(!posix_spawn(&child, "/proc/self/exe", 0, 0, other, environ));
    else child = strcmp(argv[2], "vfork") ? fork() : vfork();
    EXPECT(child >= 0);
    if (!child) { execv("/proc/self/exe", other); _exit(97); }
    int status = ended(child);
    /* Whoever looks from outside does so ten times a second. */
    usleep(300000);
    return status;
}
