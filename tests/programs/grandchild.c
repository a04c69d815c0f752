/* Allocates 1,000,008 bytes and forks; the child frees them, allocates 200,008 and forks; its child allocates 300,008 and ends. */
#include "facts.h"
#include <sys/wait.h>

static void *volatile kept[3];

static void wait_for(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
}

int main(void)
{
    kept[0] = malloc(1000008);
    pid_t child = fork();
    if (child == 0) {
        free(kept[0]);
        kept[1] = malloc(200008);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            kept[2] = malloc(300008);
            return 0;
        }
        wait_for(grandchild);
        return 0;
    }
    wait_for(child);
    return 0;
}
