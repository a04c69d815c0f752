/* A child with 52 MiB of its own that is started with an environment of no variables, or with its parent's. */
#include "facts.h"

static char *none[] = { 0 };

/* Long enough for whoever looks from outside. */
static int hold(char **args)
{
    (void)args;
    size_t n = 52 << 20;
    char *p = malloc(n);
    memset(p, 1, n);
    rest_ms(700);
    return p[n / 2] - 1;
}

static int start(const char *how, char **env)
{
    char *argv[] = { "bare", "hold", 0 };
    static char self[4096];
    EXPECT(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    pid_t child = 0;
    if (!strcmp(how, "exec")) execve(self, argv, env);
    if (!strcmp(how, "spawn")) EXPECT(!posix_spawn(&child, self, 0, 0, argv, env));
    if (!strcmp(how, "vfork") && !(child = vfork())) { execve(self, argv, env); _exit(97); }
    if (!strcmp(how, "fork") && !(child = fork())) { execve(self, argv, env); _exit(97); }
    EXPECT(child > 0 && ended(child) == 0);
    line("child %d", child);
    return 0;
}
static int cleared(char **args) { return start(args[0], none); }
static int kept(char **args) { return start(args[0], environ); }
/* Its own variables are gone, and it hands on what it has. */
static int unset(char **args) { clearenv(); return start(args[0], environ); }

/* As large as what it becomes. */
static int grown(char **args)
{
    size_t n = 52 << 20;
    char *p = malloc(n);
    memset(p, 1, n);
    rest_ms(300);
    return start(args[0], none);
}

/* A program that is not there starts nobody. */
static int absent(char **args)
{
    (void)args;
    char *argv[] = { "bare", 0 };
    pid_t child = vfork();
    if (!child) { execve("/no/such/program", argv, none); _exit(96); }
    EXPECT(ended(child) == 96);
    child = fork();
    if (!child) { execve("/no/such/program", argv, none); _exit(96); }
    EXPECT(ended(child) == 96);
    EXPECT(posix_spawn(&child, "/no/such/program", 0, 0, argv, none));
    errno = 0;
    EXPECT(execve("/proc/self/exe", argv, (char **)16) == -1 && errno == EFAULT);
    return 0;
}

MODES({ "hold", hold }, { "cleared", cleared }, { "kept", kept }, { "unset", unset }, { "grown", grown }, { "absent", absent })
