// A C++ program of NVIDIA's own headers of NVTX 3 (of PyPI's nvidia-nvtx-cu12), as their documentation has it: ranges by scope and by handle, of
// functions, in domains, with registered strings and attributes; C's functions too.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvtx3.hpp>
#include <thread>

struct solver {
    static constexpr char const *name{"solver"};
};
struct matvec {
    static constexpr char const *message{"matvec"};
};

static char *kept[8];

static char *touched(size_t n) {
    return static_cast<char *>(memset(malloc(n), 1, n));
}

__attribute__((noinline)) static void assemble() {
    NVTX3_FUNC_RANGE();
    kept[0] = touched(1000000);
}

__attribute__((noinline)) static void multiply() {
    NVTX3_FUNC_RANGE_IN(solver);
    free(touched(700000));
}

int main() {
    {
        nvtx3::scoped_range outer{"outer"};
        assemble();
        for (int i = 0; i < 2; i++) {
            nvtx3::event_attributes attributes{nvtx3::registered_string_in<solver>::get<matvec>(), nvtx3::rgb{1, 2, 3}, nvtx3::payload{42}};
            nvtx3::scoped_range_in<solver> range{attributes};
            free(touched(3000000));
            multiply();
        }
        nvtx3::mark("a mark");
    }
    // Of no thread: begun here, ended there.
    nvtx3::unique_range handed{"handed on"};
    kept[1] = touched(500000);
    std::thread([range = std::move(handed)]() mutable { nvtx3::unique_range ends{std::move(range)}; }).join();

    nvtxEventAttributes_t event = {};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_UNICODE;
    event.message.unicode = L"breit \u00fc";
    nvtxRangePushEx(&event);
    free(touched(200000));
    nvtxRangePop();
    nvtxRangeId_t id = nvtxRangeStartA("by C");
    free(touched(400000));
    nvtxRangeEnd(id);
    nvtxMarkA("C's mark");
    puts("done");
    return 0;
}
