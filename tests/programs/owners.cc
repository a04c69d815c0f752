// Holds, leaks and passes memory, and holds more with each step, at lines that are marked, by operator new, a container and an inlined function.
#include "../../include/memshim.h"
#include <cstddef>
#include <vector>

static char *volatile kept[3000], *volatile grown[180], *volatile others[2000];

struct Holder {
    std::vector<char *> blocks;
    __attribute__((noinline)) void hold(std::size_t n)
    {
        blocks.push_back(new char[n]); // <PEAK>
    }
    ~Holder()
    {
        for (char *b : blocks)
            delete[] b;
    }
};

static inline char *made(std::size_t n)
{
    return new char[n];
}

__attribute__((noinline)) static void leak(int i)
{
    kept[i] = made(1000); // <LEAK>
}

__attribute__((noinline)) static void grow(int i)
{
    grown[i] = made(4008); // <GROWTH>
}

template <typename T> __attribute__((noinline)) void pass(std::size_t n)
{
    T *volatile p = new T[n]; // <TEMPORARY>
    delete[] p;
}

int main()
{
    // Freed, and not temporary: by how many were freed the estimate of these is not bounded then.
    for (int i = 0; i < 2000; i++)
        others[i] = new char[24];
    for (int i = 0; i < 2000; i++)
        delete[] others[i];
    for (int i = 0; i < 5000; i++)
        pass<char>(1200);
    for (int i = 0; i < 3000; i++)
        leak(i);
    for (int step = 0; step < 60; step++) {
        memshim::phase on("step");
        for (int i = 0; i < 3; i++)
            grow(3 * step + i);
    }
    {
        Holder h;
        h.blocks.reserve(50);
        for (int i = 0; i < 50; i++)
            h.hold(100008);
    }
    return 0;
}
