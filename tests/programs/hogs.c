// Threads allocate without a pause while the first one ends the process: hogs exit|_exit|exec THREADS
#include "facts.h"
#include <sys/mman.h>

static void *hog(void *arg)
{
    for (;;) free(opaque(malloc(48)));
    return arg;
}

int main(int argc, char **arg)
{
    pthread_t thread;
    (void)argc;
    for (int i = atoi(arg[2]); i > 0; i--) EXPECT(!pthread_create(&thread, 0, hog, 0));
    usleep(150000);
    if (!strcmp(arg[1], "exit")) exit(5);
    if (!strcmp(arg[1], "_exit")) _exit(5);
    execl("/bin/sh", "sh", "-c", "exit 5", (char *)0);
    return 1;
}
