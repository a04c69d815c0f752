// Four threads hold big blocks at the same instant, for so short that nobody looks: no count tells of all at once, the events do.
#include "facts.h"

enum { THREADS = 4, BLOCKS = 24, SIZE = 1 << 20 };
static pthread_barrier_t turn;

static void *holder(void *arg)
{
    void *held[BLOCKS];
    pthread_barrier_wait(&turn);
    for (int i = 0; i < BLOCKS; i++) held[i] = opaque(malloc(SIZE));
    pthread_barrier_wait(&turn);
    for (int i = 0; i < BLOCKS; i++) free(held[i]);
    return arg;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&turn, 0, THREADS);
    for (long i = 0; i < THREADS; i++) EXPECT(!pthread_create(&threads[i], 0, holder, 0));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return 0;
}
