/* Less than a process usually may: limits, sandboxes, other roots, other users, other namespaces. */
#include "facts.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

static void *idle(void *arg) { return arg; }
static void *some(void *arg) { blocks(2000, 9973); return arg; }

static int address_space(char **args)
{
    if (!args[0]) {
        struct rlimit limit = { 200 << 20, 200 << 20 };
        EXPECT(!setrlimit(RLIMIT_AS, &limit));
        AGAIN("address-space", "limited");
        return 97;
    }
    static char *held[512];
    int n = 0;
    errno = 0;
    while (n < 512 && (held[n] = malloc(1 << 20))) held[n++][0] = 1;
    int why = errno;
    for (int i = 0; i < n; i++) free(held[i]);
    char *more = opaque(malloc(1 << 20));
    line("got at least 60 MiB: %s, then ENOMEM: %s, then again: %s", n >= 60 && n < 200 ? "yes" : "no", why == ENOMEM ? "yes" : "no", more ? "yes" : "no");
    return 0;
}

static int file_size(char **args)
{
    (void)args;
    struct rlimit limit = { 49152, 49152 };
    EXPECT(!setrlimit(RLIMIT_FSIZE, &limit));
    blocks(120000, 9973);
    rest_ms(250);
    int file = open("small.txt", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    EXPECT(file >= 0 && write(file, "fits\n", 5) == 5);
    line("alive");
    return 0;
}

static int no_threads(char **args)
{
    if (!args[0]) {
        struct rlimit limit = { 1, 1 };
        EXPECT(!setrlimit(RLIMIT_NPROC, &limit));
        int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        char *argv[] = { "x", "no-threads", "limited", 0 };
        EXPECT(!setresgid(61236, 61236, 61236) && !setresuid(61236, 61236, 61236));
        fexecve(self, argv, environ);
        return 97;
    }
    blocks(15000, 9973);
    pthread_t thread;
    int why = pthread_create(&thread, 0, idle, 0);
    line("TRUTH size=9973 allocs=15000 frees=15000");
    line("a thread: %s", why == EAGAIN ? "EAGAIN" : "other");
    return 0;
}

static int sandbox(char **args)
{
    (void)args;
    blocks(8000, 9973);
    static const int denied[] = { SYS_open, SYS_openat, SYS_openat2, SYS_creat, SYS_stat, SYS_newfstatat, SYS_statx, SYS_readlink, SYS_readlinkat, SYS_getcwd,
                                  SYS_clone, SYS_clone3, SYS_fork, SYS_vfork, SYS_execve, SYS_socket, SYS_kill, SYS_unlink, SYS_rename, SYS_ftruncate };
    enum { N = sizeof denied / sizeof *denied };
    struct sock_filter rules[2 * N + 2];
    int k = 0;
    rules[k++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N; i++) {
        rules[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], 0, 1);
        rules[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    rules[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { k, rules };
    EXPECT(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    EXPECT(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    blocks(32000, 9973);
    errno = 0; EXPECT(open("/etc/passwd", O_RDONLY) == -1 && errno == EPERM);
    line("TRUTH size=9973 allocs=40000 frees=40000");
    return 0;
}

static int other_root(char **args)
{
    (void)args;
    blocks(8000, 9973);
    pthread_t thread;
    EXPECT(!pthread_create(&thread, 0, some, 0)); /* loads what pthread_join may need, before it is out of reach */
    pthread_join(thread, 0);
    EXPECT(!mkdir("cell", 0755) && !chroot("cell") && !chdir("/"));
    blocks(16000, 9973);
    EXPECT(!pthread_create(&thread, 0, some, 0));
    pthread_join(thread, 0);
    pid_t child = fork();
    if (!child) { blocks(2000, 9973); exit(0); }
    int rc = ended(child);
    line("TRUTH size=9973 allocs=30000 frees=30000");
    line("child %d", rc);
    return 0;
}

static volatile int stop;
static void *background(void *arg) { while (!stop) blocks(10, 90); return arg; }
static int other_user(char **args)
{
    (void)args;
    pthread_t thread;
    EXPECT(!pthread_create(&thread, 0, background, 0));
    blocks(7000, 9973);
    EXPECT(!setresgid(61235, 61235, 61235) && !setresuid(61235, 61235, 61235));
    blocks(7000, 9973);
    int threads = 0, changed = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[512], text[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue; /* it has ended meanwhile */
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        if (length <= 0) continue;
        text[length] = 0;
        char *uid = strstr(text, "Uid:");
        threads++;
        changed += uid && atoi(uid + 4) == 61235;
    }
    closedir(folder);
    pid_t child = fork();
    if (!child) { blocks(6000, 9973); exit(0); }
    int rc = ended(child);
    stop = 1;
    pthread_join(thread, 0);
    line("TRUTH size=9973 allocs=20000 frees=20000");
    line("all threads of the new user: %s, child %d", threads >= 2 && threads == changed ? "yes" : "no", rc);
    return 0;
}

/* Three namespaces, in each of which the same program is process 1, all writing to the same place. */
static int namespaces(char **args)
{
    if (args[0]) { blocks(700, 9973); line("process %d", (int)getpid()); return 0; }
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child) {
            EXPECT(!unshare(CLONE_NEWPID));
            pid_t first = fork();
            if (!first) { AGAIN("namespaces", "inner"); _exit(97); }
            _exit(ended(first));
        }
        EXPECT(ended(child) == 0);
    }
    line("TRUTH size=9973 allocs=2100 frees=2100");
    return 0;
}

/* Programs that no preload reaches. */
static int out_of_reach(char **args)
{
    (void)args;
    const char *names[2] = { "static-child", "setuid-child" };
    int rc[2];
    blocks(100, 9973);
    for (int i = 0; i < 2; i++) {
        const char *path = beside(names[i]);
        if (i) EXPECT(!chown(path, 0, 0) && !chmod(path, 04755));
        pid_t child = fork();
        if (!child) { EXPECT(!setresuid(61235, 61235, 61235)); execl(path, names[i], (char *)0); _exit(97); }
        rc[i] = ended(child);
    }
    line("TRUTH size=9973 allocs=100 frees=100");
    line("ended %d %d", rc[0], rc[1]);
    return 0;
}

static int storage(char **args)
{
    (void)args;
    blocks(60000, 9973);
    pid_t child = fork();
    if (!child) { blocks(2000, 61); exit(0); }
    int rc = ended(child);
    line("alive, child %d", rc);
    return 0;
}
/* Takes away the folder its trace goes to while it runs. */
static int folder_removed(char **args)
{
    blocks(3000, 9973);
    char command[4200];
    snprintf(command, sizeof command, "rm -rf '%s'", args[0]);
    char *argv[] = { "sh", "-c", command, 0 }, *none[] = { 0 };
    pid_t child;
    EXPECT(!posix_spawn(&child, "/bin/sh", 0, 0, argv, none) && ended(child) == 0);
    blocks(60000, 9973);
    rest_ms(250);
    child = fork();
    if (!child) { blocks(2000, 61); exit(0); }
    int rc = ended(child);
    line("alive, child %d", rc);
    return 0;
}

MODES({ "address-space", address_space }, { "file-size", file_size }, { "no-threads", no_threads }, { "sandbox", sandbox }, { "other-root", other_root },
      { "other-user", other_user }, { "namespaces", namespaces }, { "out-of-reach", out_of_reach }, { "storage", storage }, { "folder-removed", folder_removed })
