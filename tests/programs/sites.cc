// Code with known lines, for traces made by tests: labels say where. It is not run.
#include <cstdlib>

#define HERE(label) asm volatile(".globl " #label "\n" #label ":")

namespace deep {
struct Box {
    void fill(int n);
};
}

static inline __attribute__((always_inline)) void *inlined(int n) {
    void *p = malloc(n);
    HERE(in_inlined);
    return p;
}

__attribute__((noinline)) void deep::Box::fill(int n) {
    free(inlined(n));
    HERE(in_fill);
    asm volatile("" ::"r"(n));
}

__attribute__((noinline)) static void hidden(int n) {
    deep::Box().fill(n);
    HERE(in_hidden);
    asm volatile("" ::"r"(n));
}

int main(int argc, char **) {
    hidden(argc);
    HERE(in_main);
    return 0;
}

extern "C" __attribute__((noinline)) void _PyEval_EvalFrameDefault() {
    hidden(1);
    HERE(in_eval);
}
