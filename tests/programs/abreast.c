// Phases of one thread while others allocate small blocks. A lock around each call makes their order known, so that of each phase it is known to the
// byte what was live when it began, when it ended, and at most meanwhile. A line for each: name, these three by requested size, and by usable. What
// the others do is drawn, from the first argument on.
#include "../../include/memshim.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 3, HELD = 200, ROUNDS = 20 };
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t meet;
static long live[2], most[2];
static atomic_int over;

static void *take(size_t n) {
    pthread_mutex_lock(&turn);
    void *p = malloc(n);
    live[0] += n;
    live[1] += malloc_usable_size(p);
    for (int by = 0; by < 2; by++)
        if (live[by] > most[by]) most[by] = live[by];
    pthread_mutex_unlock(&turn);
    return p;
}

static void give(void *p, size_t n) {
    pthread_mutex_lock(&turn);
    live[0] -= n;
    live[1] -= malloc_usable_size(p);
    free(p);
    pthread_mutex_unlock(&turn);
}

struct said {
    char name[16];
    long begin[2], end[2], most[2];
};

static void begin(struct said *s) {
    pthread_mutex_lock(&turn);
    memshim_begin(s->name);
    memcpy(s->begin, live, sizeof live);
    memcpy(most, live, sizeof live);
    pthread_mutex_unlock(&turn);
}

static void end(struct said *s) {
    pthread_mutex_lock(&turn);
    memshim_end();
    memcpy(s->end, live, sizeof live);
    memcpy(s->most, most, sizeof most);
    pthread_mutex_unlock(&turn);
}

static void *worker(void *seed) {
    unsigned long r = (unsigned long)seed * 7919 + 1;
    void *held[HELD] = {0};
    size_t sizes[HELD] = {0};
    pthread_barrier_wait(&meet);
    while (!atomic_load(&over)) {
        r = r * 6364136223846793005ul + 1442695040888963407ul;
        int i = (r >> 33) % HELD;
        if (held[i]) {
            give(held[i], sizes[i]);
            held[i] = 0;
        } else {
            sizes[i] = 16 + (r >> 40) % 2000;
            held[i] = take(sizes[i]);
        }
    }
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    for (int i = 0; i < HELD; i++)
        if (held[i]) give(held[i], sizes[i]);
    return 0;
}

int main(int n, char **arg) {
    long seed = n > 1 ? atol(arg[1]) * WORKERS : 0;
    static struct said all[ROUNDS + 2];
    pthread_t threads[WORKERS];
    pthread_barrier_init(&meet, 0, WORKERS + 1);
    for (long i = 0; i < WORKERS; i++) pthread_create(&threads[i], 0, worker, (void *)(seed + i));
    pthread_barrier_wait(&meet);
    for (int round = 0; round < ROUNDS; round++) {
        struct said *s = &all[round];
        sprintf(s->name, "round %d", round);
        begin(s);
        void *kept = take(1000 + round), *large = take(300000);
        for (int i = 0; i < 2000; i++) give(take(100 + i % 900), 100 + i % 900);
        give(large, 300000);
        (void)kept;
        end(s);
    }
    atomic_store(&over, 1);
    pthread_barrier_wait(&meet);
    // The others wait: from a while on that is known.
    struct timespec rest = {0, 300000000};
    nanosleep(&rest, 0);
    struct said *alone = &all[ROUNDS], *once = &all[ROUNDS + 1];
    strcpy(alone->name, "alone");
    begin(alone);
    for (int i = 0; i < 2000; i++) give(take(100 + i % 900), 100 + i % 900);
    take(12345);
    end(alone);
    nanosleep(&rest, 0);
    strcpy(once->name, "given back");
    begin(once);
    pthread_barrier_wait(&meet);
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], 0);
    end(once);
    for (struct said *s = all; s < all + ROUNDS + 2; s++)
        printf("%s/%ld/%ld/%ld/%ld/%ld/%ld\n", s->name, s->begin[0], s->end[0], s->most[0], s->begin[1], s->end[1], s->most[1]);
    return 0;
}
