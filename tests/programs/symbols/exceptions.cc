// Exceptions, cancellation and virtual calls through functions that are phases.
#include "shapes.h"
#include <cstdio>
#include <pthread.h>
#include <unistd.h>
using namespace shapes;
extern "C" int call(int (*f)(int), int n);

static int rethrows(int n) {
    try {
        return falls(n);
    } catch (failure &) {
        throw;
    }
}

static void *waits(void *) {
    call([](int) { for (;;) pause(); return 0; }, 0);
    return nullptr;
}

int main() {
    int caught = 0;
    for (int i = 0; i < 3; i++) {
        try {
            falls(i);
        } catch (const failure &f) {
            caught += (int)f.why.size();
        }
    }
    try {
        call(rethrows, 1);
    } catch (...) {
        caught += 1;
    }
    caught += catches(2);
    std::printf("caught %d\n", caught);
    shape plain(3);
    const shape &seen = plain;
    shape *made = new shape(4);
    std::printf("area %g %g %d\n", seen.area(2), made->area(0.5), made->size());
    delete made;
    std::vector<long> numbers;
    std::printf("filled %zu\n", fill(numbers, 1000));
    pthread_t thread;
    void *got;
    pthread_create(&thread, nullptr, waits, nullptr);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, &got);
    std::printf("cancelled %d\n", got == PTHREAD_CANCELED);
    // falls: 0; 1, 0; 2, 1, 0; then 1, 0; then 2, 1, 0.
    std::printf("TRUTH symbols_shapes.so:shapes::falls(int) 11 - -\n");
    std::printf("TRUTH symbols_shapes.so:shapes::stumbles(int) 6 - -\n");
    std::printf("TRUTH symbols_shapes.so:shapes::catches(int) 1 0 -\n");
    std::printf("TRUTH symbols_shapes.so:shapes::shape::size() const 1 0 0\n");
    std::printf("TRUTH symbols_part.so:call 2 - -\n");
}
