/* A system that refuses one of memshim's calls with an error, from before the program's start or from its middle on.
   Usage: refuses before|late|child POINT ERROR TIMES; `PRELOAD` is what LD_PRELOAD is to be for the program itself.
   It allocates TIMES blocks of 9973 bytes before and after the middle; with `child` a forked child makes the second half. */
#include "facts.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

/* A call, and the bits of an argument by which it is told from others of its kind: those of `mask` must be `bits`. */
static const struct point { const char *name; int call, argument; unsigned mask, bits; } points[] = {
    { "trace", SYS_openat, 2, O_CREAT | O_APPEND, O_CREAT | O_APPEND },
    { "spool", SYS_openat, 2, O_CREAT | O_APPEND, O_CREAT },
    { "link", SYS_linkat, 0, 0, 0 },
    { "length", SYS_ftruncate, 0, 0, 0 },
    { "room", SYS_fallocate, 0, 0, 0 },
    { "more-room", SYS_fallocate, 2, ~0xfffu, 14 << 20 }, /* of the first threads' lanes: a spool with a header and nothing else */
    { "write", SYS_writev, 0, 0, 0 },
    { "folder", SYS_mkdir, 0, 0, 0 },
    { "aside", SYS_renameat2, 0, 0, 0 },
};

static void refuse(const char *name, int error)
{
    const struct point *p = points;
    while (strcmp(p->name, name)) EXPECT(++p < points + sizeof points / sizeof *points);
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, p->call, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * p->argument),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, p->mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, p->bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof rules / sizeof *rules, rules };
    EXPECT(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    EXPECT(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

int main(int argc, char **argv)
{
    EXPECT(argc == 5);
    int error = atoi(argv[3]);
    long times = atol(argv[4]);
    if (getenv("PRELOAD")) {
        if (!strcmp(argv[1], "before")) refuse(argv[2], error);
        setenv("LD_PRELOAD", getenv("PRELOAD"), 1);
        unsetenv("PRELOAD");
        execv("/proc/self/exe", argv);
        return 97;
    }
    blocks(times, 9973);
    if (strcmp(argv[1], "before")) refuse(argv[2], error);
    pid_t child = strcmp(argv[1], "child") ? -1 : fork();
    if (child <= 0) blocks(times, 9973);
    if (child > 0) EXPECT(ended(child) == 0);
    line("%s: all there", child ? "program" : "child");
    return 0;
}
