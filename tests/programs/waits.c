/* Children that signals end, waited for by each of the calls; and a thread that is cancelled while it waits. */
#include "facts.h"

static pid_t killed(int signal)
{
    pid_t child = fork();
    if (!child) { blocks(3, 9973); kill(getpid(), signal); _exit(97); }
    EXPECT(child > 0);
    return child;
}

static int all(char **args)
{
    (void)args;
    int status = 0;
    struct rusage usage;
    siginfo_t info;
    pid_t child = killed(SIGTERM);
    EXPECT(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);
    child = killed(SIGKILL);
    EXPECT(wait3(&status, 0, &usage) == child && WTERMSIG(status) == SIGKILL && usage.ru_maxrss > 0);
    child = killed(SIGUSR1);
    EXPECT(wait4(child, &status, 0, &usage) == child && WTERMSIG(status) == SIGUSR1 && usage.ru_maxrss > 0);
    child = killed(SIGUSR2);
    EXPECT(!waitid(P_PID, child, &info, WEXITED | WNOWAIT) && info.si_status == SIGUSR2);
    EXPECT(!waitid(P_PID, child, &info, WEXITED) && info.si_pid == child && info.si_status == SIGUSR2);
    errno = 0;
    EXPECT(wait(0) == -1 && errno == ECHILD);
    /* `wait` is not looked into, and nobody says how the last one ended. */
    child = killed(SIGHUP);
    EXPECT(wait(&status) == child && WTERMSIG(status) == SIGHUP);
    child = killed(SIGALRM);
    EXPECT(waitpid(child, 0, 0) == child);
    line("TRUTH size=9973 allocs=18 frees=18");
    return 0;
}

static int cleaned, ready[2];
static void clean(void *arg) { (void)arg; cleaned = 1; }
static void *waits(void *arg)
{
    int status;
    pthread_cleanup_push(clean, 0);
    EXPECT(write(ready[1], "x", 1) == 1);
    waitpid(*(pid_t *)arg, &status, 0);
    pthread_cleanup_pop(0);
    return 0;
}
static int cancel(char **args)
{
    (void)args;
    char byte;
    EXPECT(!pipe(ready));
    pid_t child = fork();
    if (!child) { pause(); _exit(97); }
    pthread_t thread;
    EXPECT(!pthread_create(&thread, 0, waits, &child));
    EXPECT(read(ready[0], &byte, 1) == 1);
    rest_ms(20);
    EXPECT(!pthread_cancel(thread));
    void *result;
    EXPECT(!pthread_join(thread, &result) && result == PTHREAD_CANCELED && cleaned);
    kill(child, SIGKILL);
    EXPECT(ended(child) == -SIGKILL);
    line("cancelled");
    return 0;
}

MODES({ "all", all }, { "cancel", cancel })
