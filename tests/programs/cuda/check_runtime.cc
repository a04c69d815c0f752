/* For `scripts/gpu-check`: a program in C++ with NVIDIA's runtime linked in, whose bytes, counts and times it knows by itself. It prints them as lines
   `EXPECT what value…`, as check.c does; times are taken by events of its own. The prototypes are the runtime's documented ones, so no toolkit's headers are
   needed. On a machine without a GPU it is linked to the runtime of our own (minirt.c). */
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "minirt.h"

namespace {

constexpr size_t MIB = size_t(1) << 20, BYTES = 64 * MIB;
constexpr int TIMES = 10;

void good(int code, const char *what)
{
    if (code != cudaSuccess) {
        std::printf("%s: %d\n", what, code);
        std::exit(99);
    }
}
#define GOOD(call) good(call, #call)

struct Stream {
    cudaStream_t stream;
    cudaEvent_t from, to;

    Stream()
    {
        GOOD(cudaStreamCreateWithFlags(&stream, 1));
        GOOD(cudaEventCreate(&from));
        GOOD(cudaEventCreate(&to));
    }
    ~Stream()
    {
        GOOD(cudaEventDestroy(from));
        GOOD(cudaEventDestroy(to));
        GOOD(cudaStreamDestroy(stream));
    }
    /* Makes a copy so many times, and says what it moved and how long that took. */
    template <class Copy> void timed(const char *what, size_t bytes, Copy copy)
    {
        double sum = 0;
        for (int i = 0; i < TIMES; i++) {
            float ms = 0;
            GOOD(cudaEventRecord(from, stream));
            GOOD(copy());
            GOOD(cudaEventRecord(to, stream));
            GOOD(cudaEventSynchronize(to));
            GOOD(cudaEventElapsedTime(&ms, from, to));
            sum += ms;
        }
        std::printf("EXPECT copy %s %d %zu %.6f\n", what, TIMES, bytes * TIMES, sum);
    }
};

} // namespace

int main()
{
    void *one, *two, *pinned;
    std::vector<unsigned char> pageable(BYTES, 7);
    GOOD(cudaSetDevice(0));
    GOOD(cudaMalloc(&one, BYTES));
    GOOD(cudaMalloc(&two, BYTES));
    GOOD(cudaHostAlloc(&pinned, BYTES, 0));
    {
        Stream s;
        auto *host = static_cast<unsigned char *>(pinned);
        for (size_t i = 0; i < BYTES; i += 4096)
            host[i] = static_cast<unsigned char>(i >> 12);
        s.timed("H2D pinned", BYTES, [&] { return cudaMemcpyAsync(one, pinned, BYTES, cudaMemcpyHostToDevice, s.stream); });
        s.timed("D2D device", BYTES, [&] { return cudaMemcpyAsync(two, one, BYTES, cudaMemcpyDeviceToDevice, s.stream); });
        s.timed("D2H pageable", BYTES, [&] { return cudaMemcpyAsync(pageable.data(), two, BYTES, cudaMemcpyDeviceToHost, s.stream); });
        for (size_t i = 0; i < BYTES; i += 4096)
            if (pageable[i] != static_cast<unsigned char>(i >> 12))
                good(99, "what came back");
        s.timed("memset device", BYTES, [&] { return cudaMemsetAsync(one, 1, BYTES, s.stream); });
        s.timed("D2H pinned", BYTES, [&] { return cudaMemcpyAsync(pinned, one, BYTES, cudaMemcpyDeviceToHost, s.stream); });
        if (host[0] != 1 || host[BYTES - 1] != 1)
            good(99, "what came back to pinned memory");
    }
    GOOD(cudaFree(two));
    std::printf("EXPECT peak %zu\nEXPECT live %zu\nEXPECT pinned %zu\n", 2 * BYTES, BYTES, BYTES);
    return 0;
}
