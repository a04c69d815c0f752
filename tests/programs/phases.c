// Phases by the header, nested, repeated, on two threads, with a child and with sleeps; says of each what it knows of it, by requested and by usable
// size. `drawn SEED`: begins, ends, allocations and frees as they are drawn.
#include "../../include/memshim.h"
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct record {
    char path[128];
    int count;
    int64_t first[2], most[2], persistent[2], transient[2];
    double inner, outer; // its time at least, and at most
};
struct open {
    struct record *of;
    int64_t begin[2], peak[2];
    double before, after;
};
static struct record records[64];
static int known;
static const char *const sizes[] = {"", "usable_"};
static struct open stacks[2][8];
static int depth[2];
static int64_t live[2];
static __thread int me;
static pthread_barrier_t turn;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *take(size_t n) {
    char *p = malloc(n);
    memset(p, 1, n);
    live[0] += n;
    live[1] += malloc_usable_size(p);
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < depth[i]; d++)
            for (int by = 0; by < 2; by++)
                if (live[by] > stacks[i][d].peak[by]) stacks[i][d].peak[by] = live[by];
    return p;
}

static void give(void *p, size_t n) {
    live[0] -= n;
    live[1] -= malloc_usable_size(p);
    free(p);
}

static void begin(const char *name) {
    struct open *o = &stacks[me][depth[me]];
    char path[128] = "";
    if (depth[me]) snprintf(path, sizeof path, "%s/", o[-1].of->path);
    strcat(path, name);
    int i = 0;
    while (i < known && strcmp(records[i].path, path)) i++;
    if (i == known) {
        strcpy(records[known++].path, path);
        memcpy(records[i].first, live, sizeof live);
    }
    *o = (struct open){&records[i], {live[0], live[1]}, {live[0], live[1]}, now(), 0};
    depth[me]++;
    memshim_begin(name);
    o->after = now();
}

static void end(void) {
    struct open *o = &stacks[me][--depth[me]];
    struct record *r = o->of;
    double before = now();
    memshim_end();
    r->inner += before - o->after;
    r->outer += now() - o->before;
    r->count++;
    for (int by = 0; by < 2; by++) {
        int64_t most = o->peak[by] - (live[by] > o->begin[by] ? live[by] : o->begin[by]);
        if (o->peak[by] > r->most[by]) r->most[by] = o->peak[by];
        if (most > r->transient[by]) r->transient[by] = most;
        r->persistent[by] += live[by] - o->begin[by];
    }
}

// Turns: 1 main opened "shared", 2 the worker has held and passed 3 MB in "other", 3 main has ended.
static void *worker(void *p) {
    me = 1;
    pthread_barrier_wait(&turn);
    begin("other");
    void *a = take(3000000), *b = take(90000);
    give(a, 3000000);
    end();
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    give(b, 90000);
    return p;
}

static void say(void) {
    for (int i = 0; i < known; i++) {
        struct record *r = &records[i];
        printf("{\"path\":\"%s\",\"count\":%d,\"inner\":%.9f,\"outer\":%.9f", r->path, r->count, r->inner, r->outer);
        for (int by = 0; by < 2; by++)
            printf(",\"%sabove\":%ld,\"%spersistent\":%ld,\"%stransient\":%ld", sizes[by], (long)(r->most[by] - r->first[by]),
                   sizes[by], (long)r->persistent[by], sizes[by], (long)r->transient[by]);
        printf("}\n");
    }
}

static unsigned drawn(uint64_t *state, unsigned below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

// Blocks from 16 bytes to 512 KiB, small ones as often as large ones, up to three phases deep.
static void draw(uint64_t state) {
    enum { HELD = 300 };
    static const char *const names[] = {"red", "green", "blue"};
    static void *held[HELD];
    static size_t bytes[HELD];
    for (int turn = 0; turn < 20000; turn++) {
        unsigned what = drawn(&state, 100), i = drawn(&state, HELD);
        if (what < 3) {
            if (depth[me] < 3) begin(names[i % 3]);
        } else if (what < 6) {
            if (depth[me]) end();
        } else if (held[i]) {
            give(held[i], bytes[i]);
            held[i] = 0;
        } else {
            unsigned least = 16u << drawn(&state, 15);
            held[i] = take(bytes[i] = least + drawn(&state, least));
        }
    }
    while (depth[me]) end();
}

int main(int n, char **arg) {
    static char out[16384];
    setvbuf(stdout, out, _IOFBF, sizeof out);
    if (n > 2 && !strcmp(arg[1], "drawn")) {
        draw(strtoul(arg[2], 0, 10));
        say();
        return 0;
    }
    pthread_t other;
    pthread_barrier_init(&turn, 0, 2);
    pthread_create(&other, 0, worker, 0);
    void *kept[64];

    begin("build");
    void *base = take(1000001);
    for (int i = 0; i < 3; i++) {
        begin("part");
        void *p = take(500000 + i);
        kept[i] = take(1000 + i);
        give(p, 500000 + i);
        end();
    }
    end();

    begin("shared");
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    void *c = take(70000);
    end();
    give(c, 70000);
    pthread_barrier_wait(&turn);
    pthread_join(other, 0);

    for (int i = 0; i < 40; i++) {
        begin("step");
        void *p = take(100000 + (i % 3) * 10000);
        kept[3 + i] = take(2048);
        give(p, 100000 + (i % 3) * 10000);
        usleep(i == 30 ? 60000 : 2000);
        end();
    }
    for (int i = 0; i < 3; i++) give(kept[i], 1000 + i);

    begin("free");
    give(base, 1000001);
    end();
    memshim_instant("halfway");

    begin("map");
    char *m = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 1, 8 << 20);
    munmap(m, 4 << 20);
    end();

    begin("child");
    if (n > 1) {
        if (!fork()) {
            char *big = malloc(24 << 20);
            memset(big, 1, 24 << 20);
            memshim_begin("in the child");
            free(big);
            memshim_end();
            _exit(0);
        }
        wait(0);
    }
    end();
    memshim_phase("block") memshim_instant("inside");
    if (n > 1 && !strcmp(arg[1], "kill")) {
        begin("never ends");
        take(123456);
        depth[0] = 0;
        fflush(stdout);
    }
    say();
    if (n > 1 && !strcmp(arg[1], "kill")) {
        fflush(stdout);
        usleep(20000);
        kill(getpid(), 9);
    }
    return 0;
}
