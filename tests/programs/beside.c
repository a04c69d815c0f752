/* Holds memory until it is told to go: `beside MIB READY GO [close]`. Makes the file READY, waits for the file GO. `close`: closes every
   descriptor but the standard ones first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    size_t bytes = strtoul(argv[1], 0, 10) << 20;
    char *block = malloc(bytes);
    memset(block, 1, bytes);
    if (argc > 4)
        for (int fd = 3; fd < 4096; fd++) close(fd);
    close(open(argv[2], O_CREAT | O_WRONLY, 0600));
    while (access(argv[3], F_OK)) usleep(1000);
    free(block);
    return 0;
}
