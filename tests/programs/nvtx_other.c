// Another injection library, which another profiler would set: counts its calls, gives levels and handles of its own.
#include <stdint.h>
#include <stdio.h>

typedef void (*function)(void);
static int pushes, pops, level, ranges, domains;

static int push(const char *text) {
    pushes++;
    return level++;
}
static int push_event(const void *event) {
    return push(0);
}
static int pop(void) {
    pops++;
    return --level;
}
static uint64_t start(const char *text) {
    return 7000 + ranges++;
}
static uint64_t domain_start(void *domain, const void *event) {
    return start(0);
}
static void *create(const char *name) {
    domains++;
    return (void *)0xabcd00;
}
static void *registered(void *domain, const char *text) {
    static uintptr_t handle = 0xbeef00;
    int known = !domain || domain == (void *)0xabcd00;
    void *given = known ? (void *)handle : 0;
    handle += known ? 16 : 0;
    return given;
}

int InitializeInjectionNvtx2(const void *(*export)(uint32_t)) {
    struct {
        unsigned long size;
        int (*tables)(uint32_t, function ***, unsigned *);
    } const *callbacks = export(1);
    function **table;
    unsigned size;
    callbacks->tables(1, &table, &size);
    *table[9] = (function)push;
    *table[8] = (function)push_event;
    *table[11] = (function)pop;
    *table[5] = (function)start;
    callbacks->tables(5, &table, &size);
    *table[2] = (function)domain_start;
    *table[12] = (function)create;
    *table[10] = (function)registered;
    return 1;
}

__attribute__((destructor)) static void said(void) {
    printf("other: pushes %d pops %d ranges %d domains %d\n", pushes, pops, ranges, domains);
}
