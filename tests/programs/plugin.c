/* The libraries of plugins.c, one for each define. */
#include "facts.h"
#if defined CONSTRUCTOR
static void *worker(void *arg) { blocks(60, 9973); free(opaque(realloc(opaque(calloc(3, 33)), 5003))); return arg; }
__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    blocks(40, 9973);
    EXPECT(!pthread_create(&thread, 0, worker, 0));
    pthread_join(thread, 0);
}
#elif defined STORAGE
static __thread char wide[6000];
static __thread int value = 5;
int touch(int i) { wide[i * 31 % 6000]++; return value; }
#elif defined RIVAL
static long count;
static char *at_start;
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
void *malloc(size_t size)
{
    if (!next_malloc) next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    if (size == 9973) __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    return next_malloc(size);
}
void free(void *p)
{
    if (!next_free) next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_free(p);
}
long rival_saw(void) { return count; }
__attribute__((constructor)) static void start(void) { at_start = malloc(222); }
__attribute__((destructor)) static void end(void) { free(at_start); }
#else
#ifndef SIZE
#define SIZE 17011
#endif
__attribute__((noinline)) void *grab(void) { char *p = malloc(SIZE); p[0] = 1; return p; }
void *grow(void *p, size_t size) { return realloc(p, size); }
void drop(void *p) { free(p); }
#endif
