/* Burns processor time: `burns OWN_MS CHILD_MS END`. The child burns CHILD_MS and is waited for. END: exit, kill (itself), or exec
   (another image of it, that burns as much and exits). Says what it took by the kernel's own clock. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double spent(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    double begun = spent();
    if (atoi(argv[2])) {
        if (!fork()) {
            while (spent() < atoi(argv[2])) ;
            _exit(0);
        }
        wait(0);
    }
    double from = spent();
    while (spent() - from < atoi(argv[1])) ;
    printf("%.3f\n", spent() - begun);
    fflush(stdout);
    if (!strcmp(argv[3], "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(argv[3], "exec")) execl(argv[0], argv[0], argv[1], argv[2], "exit", (char *)0);
    return 0;
}
