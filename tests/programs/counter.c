/* Allocates without end and writes the number of finished pairs of calls of each thread into a shared file, so that whoever kills it
   knows what was complete at any instant before. Thread k asks for 9973 + 2k bytes and counts in word 8k of the file; word 511 is the
   process number. Usage: counter FILE THREADS */
#include "facts.h"
static volatile long *done;
static void *endless(void *arg)
{
    long k = (long)arg;
    for (long n = 1;; n++) {
        char *p = opaque(malloc(9973 + 2 * k));
        p[0] = 1;
        free(p);
        __atomic_store_n(&done[k * 8], n, __ATOMIC_RELEASE);
        if (n % 64 == 0) { struct timespec pause = { 0, 20000 }; nanosleep(&pause, 0); }
    }
    return arg;
}
int main(int argc, char **argv)
{
    EXPECT(argc == 3);
    int file = open(argv[1], O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    EXPECT(file >= 0 && !ftruncate(file, 4096));
    done = mmap(0, 4096, RW, MAP_SHARED, file, 0);
    EXPECT(done != MAP_FAILED);
    done[511] = getpid();
    pthread_t thread;
    for (long k = 1; k < atol(argv[2]); k++) EXPECT(!pthread_create(&thread, 0, endless, (void *)k));
    endless(0);
}
