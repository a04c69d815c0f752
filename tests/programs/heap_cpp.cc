// The C++ runtime's own operators, in every form the standard names: each call is one allocation of what was asked for.
#include "facts.h"
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

static constexpr size_t PLAIN = 13001, ARRAY = 14009, QUIET = 15013, ALIGNED = 16033;
struct alignas(128) Wide { char bytes[384]; };

int main(int n, char **)
{
    for (int i = 0; i < 50; i++) {
        ::operator delete(opaque(::operator new(PLAIN)));
        ::operator delete(opaque(::operator new(PLAIN)), PLAIN);
        ::operator delete[](opaque(::operator new[](ARRAY)));
        ::operator delete[](opaque(::operator new[](ARRAY)), ARRAY);
        ::operator delete(opaque(::operator new(QUIET, std::nothrow)), std::nothrow);
        ::operator delete[](opaque(::operator new[](QUIET, std::nothrow)), std::nothrow);
        std::align_val_t align{256};
        void *a = opaque(::operator new(ALIGNED, align));
        EXPECT(reinterpret_cast<uintptr_t>(a) % 256 == 0);
        ::operator delete(a, align);
        ::operator delete[](opaque(::operator new[](ALIGNED, align, std::nothrow)), align, std::nothrow);
    }
    auto wide = std::make_unique<Wide>();
    EXPECT(reinterpret_cast<uintptr_t>(wide.get()) % 128 == 0);
    // Without an argument: some allocators end the program where they should throw.
    if (n == 1) {
        volatile size_t absurd = static_cast<size_t>(1) << 62;
        bool thrown = false;
        try { (void)opaque(::operator new(absurd)); } catch (const std::bad_alloc &) { thrown = true; }
        EXPECT(thrown && !opaque(::operator new(absurd, std::nothrow)));
    }
    size_t total = 0;
    { std::vector<std::string> words; for (int i = 0; i < 500; i++) words.emplace_back(200, 'w'); for (auto &w : words) total += w.size(); }
    line("TRUTH size=%zu allocs=100 frees=100", PLAIN);
    line("TRUTH size=%zu allocs=100 frees=100", ARRAY);
    line("TRUTH size=%zu allocs=100 frees=100", QUIET);
    line("TRUTH size=%zu allocs=100 frees=100", ALIGNED);
    line("letters %zu", total);
}
