/* Blocks of known ages, counted in the allocations of their thread: eleven a round. `ages ROUNDS [kill]`; at its end it may kill itself. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 200, LIVE = 100, HANDED = 4000 };

static void *live[LIVE], *young[2], *middle[28], *old[455], *handed[HANDED];
static unsigned seed = 1;

__attribute__((noinline)) static void pass(void)
{
    void *volatile p = malloc(SIZE); /* <TEMPORARY> */
    free(p);
}

__attribute__((noinline)) static void replace(void **at)
{
    free(*at);
    *at = malloc(SIZE); /* <RANDOM> */
}

__attribute__((noinline)) static void after_21(void **at)
{
    free(*at);
    *at = malloc(SIZE); /* <21> */
}

__attribute__((noinline)) static void after_307(void **at)
{
    free(*at);
    *at = malloc(SIZE); /* <307> */
}

__attribute__((noinline)) static void after_5004(void **at)
{
    free(*at);
    *at = malloc(SIZE); /* <5004> */
}

__attribute__((noinline)) static void grow(void)
{
    void *volatile p = malloc(SIZE); /* <GROWN> */
    p = realloc(p, 2 * SIZE); /* <REALLOC> */
    free(p);
}

__attribute__((noinline)) static void grow_late(void)
{
    void *volatile p = malloc(SIZE); /* <GROWN LATE> */
    pass();
    p = realloc(p, 2 * SIZE); /* <REALLOC LATE> */
    pass();
    free(p);
}

__attribute__((noinline)) static void hand_on(int i)
{
    handed[i] = malloc(SIZE); /* <HANDED> */
}

static void *release(void *unused)
{
    for (int i = 0; i < HANDED; i++)
        free(handed[i]);
    return unused;
}

int main(int argc, char **argv)
{
    int rounds = atoi(argv[1]);
    for (int i = 0; i < rounds; i++) {
        pass();
        seed = seed * 1103515245 + 12345;
        replace(&live[(seed >> 16) % LIVE]);
        after_21(&young[i % 2]);
        after_307(&middle[i % 28]);
        after_5004(&old[i % 455]);
        grow();
        grow_late();
    }
    for (int i = 0; i < HANDED; i++)
        hand_on(i);
    pthread_t thread;
    pthread_create(&thread, NULL, release, NULL);
    pthread_join(thread, NULL);
    if (argc > 2)
        raise(SIGKILL);
    return 0;
}
