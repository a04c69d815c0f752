// More threads at once than there are lanes. crowd THREADS: each makes and frees PAIRS blocks of 1000 bytes while all others live, grows a
// block by realloc and keeps one of 2000.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS = 40 };
static pthread_barrier_t all;
static void *kept[8192];
static void *volatile sink;

static void *work(void *arg) {
    pthread_barrier_wait(&all);
    for (int i = 0; i < PAIRS; i++) free(malloc(1000));
    void *p = malloc(10);
    p = realloc(p, 3000);
    free(p);
    *(void **)arg = malloc(2000);
    pthread_barrier_wait(&all);
    return NULL;
}

int main(int argc, char **argv) {
    int n = atoi(argv[1]);
    pthread_t *threads = calloc(n, sizeof *threads);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 16384);
    pthread_barrier_init(&all, NULL, n);
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], &attr, work, &kept[i])) {
            printf("only %d threads\n", i);
            _exit(77);
        }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    // A child of such a program starts anew.
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 10; i++) free(sink = malloc(4321));
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    for (int i = 0; i < n; i++) free(kept[i]);
    free(threads);
    puts(status == 0 ? "alive" : "the child died");
    return 0;
}
