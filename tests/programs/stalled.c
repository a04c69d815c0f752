/* The writer thread is stuck: stopped by a tracer in the middle of a write, while it holds all that is to be read. Usage: stalled [end]
   Goes on allocating until nothing more can be recorded, and then, but with `end`, with a writer that goes on too. */
#include "facts.h"
#include <sys/ptrace.h>
#include <sys/user.h>

/* The thread that is not the program's: 0 there is none. */
static pid_t writer(void)
{
    char list[4096];
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(folder >= 0);
    long length = syscall(SYS_getdents64, folder, list, sizeof list);
    close(folder);
    for (long at = 0; at < length; at += *(unsigned short *)(list + at + 16)) {
        pid_t tid = atoi(list + at + 19);
        if (tid && tid != getpid()) return tid;
    }
    return 0;
}

/* Stops a thread as it begins a write; a child that allocates nothing. */
static void tracer(pid_t tid, int is_stopped, int may_go_on)
{
    int status;
    struct user_regs_struct registers = { 0 };
    if (ptrace(PTRACE_SEIZE, tid, 0, 0) || ptrace(PTRACE_INTERRUPT, tid, 0, 0)) syscall(SYS_exit_group, 77);
    do {
        if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status) || ptrace(PTRACE_GETREGS, tid, 0, &registers)) syscall(SYS_exit_group, 78);
        if (registers.orig_rax == SYS_writev) break;
    } while (!ptrace(PTRACE_SYSCALL, tid, 0, 0));
    char byte = 1;
    if (write(is_stopped, &byte, 1) == 1) (void)!read(may_go_on, &byte, 1);
    ptrace(PTRACE_DETACH, tid, 0, 0);
    syscall(SYS_exit_group, 0);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    int stopped[2], go_on[2];
    EXPECT(!pipe2(stopped, O_CLOEXEC | O_NONBLOCK) && !pipe2(go_on, O_CLOEXEC));
    free(opaque(malloc(1)));
    pid_t tid = writer();
    if (!tid) { line("no writer"); return 0; }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t child = syscall(SYS_fork);
    if (!child) { close(go_on[1]); tracer(tid, stopped[1], go_on[0]); }
    char byte;
    long before = 0;
    while (read(stopped[0], &byte, 1) != 1) {
        if (waitpid(child, 0, WNOHANG) == child) { line("no tracer"); return 0; }
        /* Something to write, and next to nothing in the ring. */
        blocks(1, 9973);
        before++;
        rest_ms(1);
    }
    double begun = seconds();
    blocks(300000, 4001);
    line("before %ld, while it was stuck 300000 in %.1f s", before, seconds() - begun);
    if (argc > 1) { line("ends"); exit(5); }
    EXPECT(write(go_on[1], &byte, 1) == 1 && ended(child) == 0);
    rest_ms(50);
    blocks(1000, 2003);
    line("after 1000");
    return 0;
}
