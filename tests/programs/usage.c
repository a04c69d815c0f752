// Phases that know what they read, wrote, touched, slept and burnt; says so, with what the kernel counted of this thread meanwhile.
#define _GNU_SOURCE
#include "../../include/memshim.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int zero, null;

struct counted {
    double cpu;
    long faults, slept, other;
};

static double clock_of(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static struct counted counted(void) {
    struct rusage r;
    getrusage(RUSAGE_THREAD, &r);
    return (struct counted){clock_of(CLOCK_THREAD_CPUTIME_ID), r.ru_minflt, r.ru_nvcsw, r.ru_nivcsw};
}

static void burn(double s) {
    double until = clock_of(CLOCK_THREAD_CPUTIME_ID) + s;
    while (clock_of(CLOCK_THREAD_CPUTIME_ID) < until) {}
}

static void sleeps(int n, long ns) {
    struct timespec t = {0, ns};
    while (n--) nanosleep(&t, 0);
}

static void move(long in, long out) {
    static char buffer[1 << 16];
    for (long left = in; left > 0;) left -= read(zero, buffer, left < (long)sizeof buffer ? left : (long)sizeof buffer);
    for (long left = out; left > 0;) left -= write(null, buffer, left < (long)sizeof buffer ? left : (long)sizeof buffer);
}

static void touch(long pages) {
    char *p = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, pages * 4096, MADV_NOHUGEPAGE);
    for (long i = 0; i < pages; i++) p[i * 4096] = 1;
    munmap(p, pages * 4096);
}

static void blocks(int n) {
    static void *held[64];
    for (int i = 0; i < n; i++) {
        free(held[i & 63]);
        held[i & 63] = malloc(16 + (i & 1023));
    }
}

// What a phase did, and what the thread was counted: at least, without its edges, and at most, with them.
struct said {
    const char *name;
    long read, written, pages, sleeps;
    double burnt;
    struct counted inner, outer;
};

static struct counted less(struct counted a, struct counted b) {
    return (struct counted){a.cpu - b.cpu, a.faults - b.faults, a.slept - b.slept, a.other - b.other};
}

static void run(struct said *s, int mallocs) {
    struct counted before = counted();
    memshim_begin(s->name);
    struct counted inside = counted();
    move(s->read, s->written);
    touch(s->pages);
    sleeps(s->sleeps, 1000000);
    burn(s->burnt);
    blocks(mallocs);
    struct counted end = counted();
    memshim_end();
    s->inner = less(end, inside);
    s->outer = less(counted(), before);
}

int main(int n, char **arg) {
    zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    int steps = n > 1 ? atoi(arg[1]) : 0;
    struct said all[] = {
        {"work", 12345678, 7654321, 5000, 200, 0.3},
        {"blocks", 1000, 1, 0, 0, 0.05},
        {"steps", 3 * steps, 5 * steps, 0, steps, 0},
    };
    run(&all[0], 0);
    run(&all[1], 1000000);
    struct counted before = counted(), inside = {0};
    memshim_begin("steps");
    for (int i = 0; i < steps; i++) {
        memshim_begin("step");
        struct counted begun = counted();
        move(3, 5);
        sleeps(1, 300000);
        burn(0.0002);
        struct counted d = less(counted(), begun);
        memshim_end();
        inside = (struct counted){inside.cpu + d.cpu, inside.faults + d.faults, inside.slept + d.slept, inside.other + d.other};
    }
    memshim_end();
    all[2].inner = inside, all[2].outer = less(counted(), before);
    for (int i = 0; i < 3; i++) {
        struct said *s = &all[i];
        printf("{\"name\":\"%s\",\"read\":%ld,\"written\":%ld,\"pages\":%ld,\"sleeps\":%ld,\"burnt\":%g,\"cpu\":[%.6f,%.6f],"
               "\"faults\":[%ld,%ld],\"slept\":[%ld,%ld],\"other\":[%ld,%ld]}\n",
               s->name, s->read, s->written, s->pages, s->sleeps, s->burnt, s->inner.cpu, s->outer.cpu, s->inner.faults, s->outer.faults,
               s->inner.slept, s->outer.slept, s->inner.other, s->outer.other);
    }
    return 0;
}
