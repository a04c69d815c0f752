// Allocation and free in what runs when a thread ends: C++ thread_local destructors, then pthread key destructors, in rounds.
#include "facts.h"
static pthread_key_t keys[4];
struct Turns { int left, key; };
static Turns turns[4] = { { 3, 0 }, { 3, 1 }, { 3, 2 }, { 3, 3 } };
static void at_end(void *value)
{
    auto *turn = static_cast<const Turns *>(value);
    static const Turns once[4] = { { 1, 0 }, { 1, 1 }, { 1, 2 }, { 1, 3 } }, twice[4] = { { 2, 0 }, { 2, 1 }, { 2, 2 }, { 2, 3 } };
    blocks(1, 9973);
    if (turn->left > 1) pthread_setspecific(keys[turn->key], turn->left == 3 ? &twice[turn->key] : &once[turn->key]);
}
struct Held {
    char *block = static_cast<char *>(malloc(21001));
    ~Held() { free(block); blocks(3, 9973); }
};
static void *worker(void *arg)
{
    static thread_local Held held;
    held.block[1] = 1;
    for (auto &t : turns) pthread_setspecific(keys[t.key], &t);
    return arg;
}
int main()
{
    for (auto &k : keys) pthread_key_create(&k, at_end);
    for (int round = 0; round < 40; round++) {
        pthread_t three[3];
        for (auto &t : three) EXPECT(!pthread_create(&t, nullptr, worker, nullptr));
        for (auto &t : three) pthread_join(t, nullptr);
    }
    line("TRUTH size=9973 allocs=1800 frees=1800");
    line("TRUTH size=21001 allocs=120 frees=120");
}
