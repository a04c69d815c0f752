/* Fills its trace to the cap, and starts a child only then, which does as much. Usage: after_cap TIMES */
#include "facts.h"
#include <sys/wait.h>
static void work(long times)
{
    // Large enough to be an event each in fast mode too, in which a trace goes on from three quarters of the cap.
    for (long i = 0; i < times; i++) free(opaque(malloc(65536 + i * 7919 % 4096)));
}
int main(int argc, char **argv)
{
    long times = argc > 1 ? atol(argv[1]) : 0;
    work(times);
    // What is read is written within a second.
    sleep(2);
    pid_t child = fork();
    if (!child) {
        work(times);
        sleep(2);
        return 0;
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
