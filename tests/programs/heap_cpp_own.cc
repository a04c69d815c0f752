// A program with its own operator new and delete (a header before each block): the shim may not call them nor mix with them.
#include "facts.h"
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

struct Header { size_t size, mark; };
static long alive;
static void *take(size_t size)
{
    auto *h = static_cast<Header *>(malloc(size + sizeof(Header)));
    if (!h) return nullptr;
    *h = { size, 0x5eed };
    alive++;
    return h + 1;
}
static void give(void *p)
{
    if (!p) return;
    auto *h = static_cast<Header *>(p) - 1;
    EXPECT(h->mark == 0x5eed);
    h->mark = 0;
    alive--;
    free(h);
}
void *operator new(size_t size)
{
    while (true) {
        if (void *p = take(size)) return p;
        auto handler = std::get_new_handler();
        if (!handler) throw std::bad_alloc();
        handler();
    }
}
void *operator new[](size_t size) { return operator new(size); }
void *operator new(size_t size, const std::nothrow_t &) noexcept { return take(size); }
void operator delete(void *p) noexcept { give(p); }
void operator delete[](void *p) noexcept { give(p); }
void operator delete(void *p, size_t) noexcept { give(p); }
void operator delete[](void *p, size_t) noexcept { give(p); }

static int handled;
static void last_resort() { handled++; std::set_new_handler(nullptr); }

int main()
{
    long before = alive;
    for (int i = 0; i < 120; i++) { char *p = static_cast<char *>(opaque(new char[10007 - sizeof(Header)])); delete[] p; }
    std::set_new_handler(last_resort);
    volatile size_t absurd = static_cast<size_t>(1) << 61;
    bool thrown = false;
    try { delete[] static_cast<char *>(opaque(new char[absurd])); } catch (const std::bad_alloc &) { thrown = true; }
    EXPECT(thrown && handled == 1 && !::operator new(absurd, std::nothrow));
    { std::vector<std::string> v(300, std::string(90, 'x')); try { throw std::runtime_error(v[7]); } catch (const std::exception &) {} }
    line("TRUTH size=10007 allocs=120 frees=120");
    line("own blocks alive %ld", alive - before);
}
