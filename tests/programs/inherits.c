/* A child inherits 100 blocks, frees 40 of them, and keeps 25 of its own. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    static void *blocks[100];
    for (int i = 0; i < 100; i++) blocks[i] = malloc(10007);
    if (!fork()) {
        for (int i = 0; i < 40; i++) free(blocks[i]);
        for (int i = 0; i < 25; i++) blocks[i] = malloc(90001);
        _exit(blocks[0] == 0);
    }
    wait(0);
    for (int i = 0; i < 100; i++) free(blocks[i]);
    return 0;
}
