/* Many threads, each with one block of 50,000 bytes at a time, 60,000 times one after another. */
#include <pthread.h>
#include <stdlib.h>

static void *thread(void *arg)
{
    for (int i = 0; i < 60000; i++) {
        char *block = malloc(50000);
        block[0] = 1;
        free(block);
    }
    return arg;
}

int main(void)
{
    enum { THREADS = 20 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, thread, 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return 0;
}
