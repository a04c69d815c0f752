/* Signals at any instant: inside the hooks, on small stacks, jumping out, waited for, and the program's own fault handlers. */
#include "facts.h"

static void every_us(long us)
{
    struct itimerval timer = { { 0, us }, { 0, us } };
    EXPECT(!setitimer(ITIMER_REAL, &timer, 0));
}

static volatile int handled;
static void mapping_handler(int signal)
{
    int kept = errno;
    (void)signal;
    if (handled < 300) {
        char *p = mmap(0, 36864, RW, ANON, -1, 0);
        p[10] = 1;
        munmap(p, 36864);
        handled++;
    }
    errno = kept;
}
static int inside_hooks(char **args)
{
    (void)args;
    struct sigaction action = { .sa_handler = mapping_handler, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, 0);
    every_us(250);
    while (handled < 300) for (int i = 0; i < 400; i++) free(opaque(realloc(opaque(malloc(20 + i)), 900)));
    every_us(0);
    line("TRUTH map=36864 maps=300 unmaps=300");
    return 0;
}

static void allocating_handler(int signal)
{
    (void)signal;
    char *p = opaque(malloc(9973));
    p[0] = 1;
    free(p);
    p = mmap(0, 28672, RW, ANON, -1, 0);
    p[1] = 1;
    munmap(p, 28672);
    handled++;
}
static int small_stack(char **args)
{
    (void)args;
    size_t size = ((size_t)sysconf(_SC_MINSIGSTKSZ) + 6144) & ~(size_t)15;
    char *low = map_anon(131072);
    EXPECT(!mprotect(low, 4096, PROT_NONE));
    stack_t other = { .ss_sp = low + 4096, .ss_size = size };
    struct sigaction action = { .sa_handler = allocating_handler, .sa_flags = SA_ONSTACK };
    free(opaque(malloc(50)));
    munmap(map_anon(4096), 4096);
    EXPECT(!sigaltstack(&other, 0) && !sigaction(SIGUSR2, &action, 0));
    for (int i = 0; i < 150; i++) raise(SIGUSR2);
    stack_t now;
    EXPECT(!sigaltstack(0, &now) && now.ss_sp == other.ss_sp && now.ss_size == size);
    line("TRUTH size=9973 allocs=150 frees=150");
    line("TRUTH map=28672 maps=150 unmaps=150");
    line("handled %d", handled);
    return 0;
}

static sigjmp_buf out;
static volatile int may_jump, jumps;
static void jumping_handler(int signal) { (void)signal; if (may_jump && jumps < 250) { jumps++; siglongjmp(out, 1); } }
static int jump_out(char **args)
{
    (void)args;
    char *area = map_anon(2 << 20);
    signal(SIGALRM, jumping_handler);
    every_us(350);
    sigsetjmp(out, 1);
    may_jump = 1;
    while (jumps < 250) {
        munmap(area + 8192, 16384);
        mmap(area + 8192, 16384, RW, ANON | MAP_FIXED, -1, 0);
        mprotect(area, 4096, PROT_READ);
        mprotect(area, 4096, RW);
    }
    may_jump = 0;
    every_us(0);
    blocks(800, 31469);
    line("TRUTH size=31469 allocs=800 frees=800");
    line("jumps %d", jumps);
    return 0;
}

/* Blocked in the only thread of the program: whoever else takes them, steals them or dies of them. */
static int waited_for(char **args)
{
    (void)args;
    static const int which[] = { SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP };
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 5; i++) sigaddset(&set, which[i]);
    sigaddset(&set, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, 0);
    blocks(15000, 9973);
    for (int i = 0; i < 5; i++) kill(getpid(), which[i]);
    kill(getpid(), SIGRTMIN + 2);
    int got = 0;
    for (int i = 0; i < 6; i++) {
        struct timespec limit = { 2, 0 };
        got += sigtimedwait(&set, 0, &limit) > 0;
        blocks(100, 9973);
    }
    line("TRUTH size=9973 allocs=15600 frees=15600");
    line("got %d of 6", got);
    return 0;
}

static int same_mask(void)
{
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    int n = 0;
    for (int s = 1; s < NSIG; s++) n += sigismember(&set, s);
    return n;
}
/* What a program finds at its start and after all kinds of calls: no mask, no handler, no timer, no stack that it did not set. */
static int untouched(char **args)
{
    (void)args;
    int handlers = 0, mask = same_mask();
    blocks(2000, 9973);
    pid_t child = fork();
    if (!child) _exit(same_mask());
    int child_mask = ended(child);
    for (int s = 1; s < NSIG; s++) {
        struct sigaction action;
        if (!sigaction(s, 0, &action)) handlers += action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    }
    struct itimerval timer;
    getitimer(ITIMER_REAL, &timer);
    stack_t stack;
    sigaltstack(0, &stack);
    line("blocked %d, in child %d, after %d, handlers %d, timer %ld, own stack %s", mask, child_mask, same_mask(), handlers,
         (long)timer.it_value.tv_sec, stack.ss_flags & SS_DISABLE ? "no" : "yes");
    return 0;
}

static char *guarded;
static volatile int faults, barriers;
static void fault_handler(int signal, siginfo_t *info, void *context)
{
    (void)signal; (void)context;
    char *at = info->si_addr;
    if (at >= guarded && at < guarded + 4096) { mprotect(guarded, 4096, RW); barriers++; return; }
    faults++;
    siglongjmp(out, 1);
}
static int own_faults(char **args)
{
    (void)args;
    struct sigaction action = { .sa_sigaction = fault_handler, .sa_flags = SA_SIGINFO | SA_NODEFER }, now;
    sigaction(SIGSEGV, &action, 0);
    guarded = mmap(0, 4096, PROT_READ, ANON, -1, 0);
    for (int i = 0; i < 700; i++) {
        if (!sigsetjmp(out, 1)) { blocks(1, 9973); *(volatile int *)opaque((void *)32) = 1; }
        guarded[i] = 1;
        mprotect(guarded, 4096, PROT_READ);
        blocks(1, 9973);
    }
    EXPECT(!sigaction(SIGSEGV, 0, &now) && now.sa_sigaction == fault_handler);
    line("TRUTH size=9973 allocs=1400 frees=1400");
    line("faults %d, barriers %d", faults, barriers);
    return 0;
}

MODES({ "inside-hooks", inside_hooks }, { "small-stack", small_stack }, { "jump-out", jump_out }, { "waited-for", waited_for },
      { "untouched", untouched }, { "own-faults", own_faults })
