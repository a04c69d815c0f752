/* Calls from stacks that look like nothing a debugger expects: fibers, garbage frame pointers, the last bytes of a stack. */
#include "facts.h"
#include <alloca.h>
#include <ucontext.h>

enum { FIBERS = 24, TURNS = 80 };
static ucontext_t hub, fiber[FIBERS];
static int finished[FIBERS];
static void fiber_body(int k)
{
    for (int i = 0; i < TURNS; i++) {
        char *p = opaque(malloc(9973));
        p[5] = k;
        swapcontext(&fiber[k], &hub);
        EXPECT(p[5] == k);
        free(p);
    }
    finished[k] = 1;
}
static int fibers(char **args)
{
    (void)args;
    for (int k = 0; k < FIBERS; k++) {
        char *low = map_anon(20480);
        mprotect(low, 4096, PROT_NONE);
        getcontext(&fiber[k]);
        fiber[k].uc_stack = (stack_t){ .ss_sp = low + 4096, .ss_size = 16384 };
        fiber[k].uc_link = &hub;
        makecontext(&fiber[k], (void (*)(void))fiber_body, 1, k);
    }
    long switches = 0;
    for (int left = 1; left;) {
        left = 0;
        for (int k = 0; k < FIBERS; k++)
            if (!finished[k]) { swapcontext(&hub, &fiber[k]); left += !finished[k]; switches++; }
    }
    line("TRUTH size=9973 allocs=1920 frees=1920 peak_live=24");
    line("switches %ld", switches);
    return 0;
}

#ifdef __x86_64__
static void *with_frame_pointer(size_t size, uintptr_t frame)
{
    void *block;
    __asm__ volatile("push %%rbp\n\tmov %[frame], %%rbp\n\tmov %%rsp, %%rbx\n\tand $-16, %%rsp\n\tcall *%[call]\n\tmov %%rbx, %%rsp\n\tpop %%rbp"
                     : "=a"(block) : "D"(size), [frame] "r"(frame), [call] "r"((void *(*)(size_t))malloc)
                     : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    return block;
}
#else
static void *with_frame_pointer(size_t size, uintptr_t frame) { (void)frame; return malloc(size); }
#endif
static int frame_pointers(char **args)
{
    (void)args;
    char *page = map_anon(8192);
    mprotect(page + 4096, 4096, PROT_NONE);
    uintptr_t self[2] = { (uintptr_t)self, (uintptr_t)&fibers };
    const uintptr_t bad[] = { 0, 3, 64, 0xcafef00d, 0x00007ffffffff000, UINTPTR_MAX, (uintptr_t)1 << 63, (uintptr_t)self, (uintptr_t)self + 3,
                              (uintptr_t)page + 4080, (uintptr_t)page + 4096, (uintptr_t)&fibers };
    for (int i = 0; i < 600; i++) free(with_frame_pointer(9973, bad[i % 12]));
    line("TRUTH size=9973 allocs=600 frees=600");
    return 0;
}

__attribute__((noinline)) static int deeper(int left)
{
    volatile char pad[64];
    pad[left % 64] = 1;
    if (!left) { blocks(40, 9973); return 1; }
    return deeper(left - 1) + (pad[left % 64] - 1);
}
static void *at_the_end(void *low)
{
    char here;
    volatile char *eaten = alloca(&here - (char *)low - 6144);
    eaten[0] = 1;
    /* blocks() would check and print: all of that is more stack than is left */
    for (int i = 0; i < 9; i++) { char *p = opaque(malloc(9973)); p[0] = 1; free(p); }
    return low;
}
static int deep(char **args)
{
    (void)args;
    EXPECT(deeper(50000) == 1);
    char *low = map_anon(4096 + 65536);
    mprotect(low, 4096, PROT_NONE);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    EXPECT(!pthread_attr_setstack(&attr, low + 4096, 65536));
    pthread_t thread;
    free(opaque(malloc(30)));
    EXPECT(!pthread_create(&thread, &attr, at_the_end, low + 4096));
    pthread_join(thread, 0);
    line("TRUTH size=9973 allocs=49 frees=49");
    return 0;
}

MODES({ "fibers", fibers }, { "frame-pointers", frame_pointers }, { "deep", deep })
