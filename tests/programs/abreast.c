// Phases of one thread while others allocate small blocks. A lock around each call makes their order known, so that of each phase it is known to the
// byte what was live when it began, when it ended, and at most meanwhile. A line for each: name, these three.
#include "../../include/memshim.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 3, HELD = 200, ROUNDS = 20 };
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t meet;
static long live, most;
static atomic_int over;

static void *take(size_t n) {
    pthread_mutex_lock(&turn);
    void *p = malloc(n);
    live += n;
    if (live > most) most = live;
    pthread_mutex_unlock(&turn);
    return p;
}

static void give(void *p, size_t n) {
    pthread_mutex_lock(&turn);
    free(p);
    live -= n;
    pthread_mutex_unlock(&turn);
}

struct said {
    char name[16];
    long begin, end, most;
};

static void begin(struct said *s) {
    pthread_mutex_lock(&turn);
    memshim_begin(s->name);
    s->begin = most = live;
    pthread_mutex_unlock(&turn);
}

static void end(struct said *s) {
    pthread_mutex_lock(&turn);
    memshim_end();
    s->end = live;
    s->most = most;
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

int main(void) {
    static struct said all[ROUNDS + 2];
    pthread_t threads[WORKERS];
    pthread_barrier_init(&meet, 0, WORKERS + 1);
    for (long i = 0; i < WORKERS; i++) pthread_create(&threads[i], 0, worker, (void *)i);
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
    for (int i = 0; i < ROUNDS + 2; i++) printf("%s/%ld/%ld/%ld\n", all[i].name, all[i].begin, all[i].end, all[i].most);
    return 0;
}
