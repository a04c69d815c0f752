// Stacks of threads by size. thread_stacks: 20 threads of 1 MiB and 10 of 256 KiB with another guard live at once, 5 more on memory of the
// program's own; then all end but one; 100 threads of 512 KiB come and go one by one.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_barrier_t meet;
static void *wait_all(void *arg) { pthread_barrier_wait(&meet); pthread_barrier_wait(&meet); return arg; }
static void *nothing(void *arg) { return arg; }
static void *stay(void *arg) { pause(); return arg; }

static pthread_t start(size_t size, size_t guard, void *own, void *(*work)(void *)) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, size);
    if (guard) pthread_attr_setguardsize(&attr, guard);
    if (own && pthread_attr_setstack(&attr, own, size)) abort();
    if (pthread_create(&thread, &attr, work, NULL)) abort();
    pthread_attr_destroy(&attr);
    return thread;
}

int main(void) {
    pthread_t t[35];
    pthread_barrier_init(&meet, NULL, 36);
    for (int i = 0; i < 20; i++) t[i] = start(1 << 20, 0, NULL, wait_all);
    for (int i = 20; i < 30; i++) t[i] = start(256 << 10, 65536, NULL, wait_all);
    for (int i = 30; i < 35; i++) {
        void *own = mmap(NULL, 128 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        t[i] = start(128 << 10, 0, own, wait_all);
    }
    pthread_barrier_wait(&meet);
    usleep(300000);
    pthread_barrier_wait(&meet);
    for (int i = 0; i < 35; i++) pthread_join(t[i], NULL);
    usleep(300000);
    for (int i = 0; i < 100; i++) pthread_join(start(512 << 10, 0, NULL, nothing), NULL);
    start(2 << 20, 0, NULL, stay);
    usleep(300000);
    puts("alive");
    return 0;
}
