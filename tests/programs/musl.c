// A program of another C library: its calls in known numbers, a thread's and a child's among them. Built by musl-gcc.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *memalign(size_t, size_t);
static void *volatile sink;

static void *work(void *arg) {
    for (int i = 0; i < 500; i++) free(sink = malloc(777));
    return arg;
}

static long resident(void) {
    long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2) abort();
    fclose(f);
    return pages * 4096;
}

int main(void) {
    void *p = NULL;
    for (int i = 0; i < 100; i++) {
        unsigned char *z = sink = calloc(10, 101);
        for (int k = 0; k < 1010; k++) if (z[k]) return 2;
        memset(z, 0xff, 1010);
        free(z);
        if (posix_memalign(&p, 64, 333) || (uintptr_t)p % 64) return 3;
        free(p);
        free(sink = aligned_alloc(32, 352));
        free(sink = memalign(128, 444));
        free(sink = realloc(sink = malloc(555), 666));
    }
    if (posix_memalign(&p, 3, 8) == 0) return 4;
    // What nobody touches stays untouched.
    long before = resident();
    void *large = sink = calloc(1, 256 << 20);
    if (!large || resident() - before > 64 << 20) return 5;
    free(large);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL)) return 6;
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 50; i++) free(sink = malloc(888));
        _exit(9);
    }
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 9) return 7;
    puts("alive");
    return 8;
}
