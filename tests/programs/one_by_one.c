/* Threads one after another, each with a block of its own. Usage: one_by_one TIMES */
#include "facts.h"
static void *short_life(void *arg) { blocks(1, 9973); return arg; }
int main(int argc, char **argv)
{
    EXPECT(argc == 2);
    for (long left = atol(argv[1]); left > 0; left--) {
        pthread_t thread;
        EXPECT(!pthread_create(&thread, 0, short_life, 0));
        pthread_join(thread, 0);
    }
    return 0;
}
