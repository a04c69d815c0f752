/* File descriptors are the program's: numbers, contents and limits are what they are without a profiler. */
#include "facts.h"

static int clean(const char *name, const char *want)
{
    char bytes[64];
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, bytes, sizeof bytes);
    close(file);
    return length == (ssize_t)strlen(want) && !memcmp(bytes, want, length);
}
static int own_file(const char *stem, int i)
{
    char name[64];
    snprintf(name, sizeof name, "%s%d.txt", stem, i);
    int file = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (file >= 0 && write(file, "ours\n", 5) != 5) _exit(96);
    return file;
}
static int clean_files(const char *stem, int n)
{
    int good = 0;
    for (int i = 0; i < n; i++) { char name[64]; snprintf(name, sizeof name, "%s%d.txt", stem, i); good += clean(name, "ours\n"); }
    return good;
}

static int numbers(char **args)
{
    int third = args[0] ? 1 : 0;
    blocks(500, 150);
    int pair[2], file = open("/dev/null", O_RDONLY);
    EXPECT(!pipe(pair));
    line("open %d, pipe %d %d, dup %d", file, pair[0], pair[1], dup(0));
    if (third) return 0;
    for (int i = 3; i < 7; i++) close(i);
    AGAIN("numbers", "again");
    return 97;
}

static int daemonise(char **args)
{
    (void)args;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    blocks(200, 9973);
    int pair[2];
    EXPECT(!pipe(pair));
    pid_t child = fork();
    if (!child) {
        setsid();
        pid_t daemon = fork();
        if (daemon) { if (write(pair[1], &daemon, sizeof daemon) < 0) _exit(96); _exit(0); }
        for (int i = 0; i < 1024; i++) close(i);
        for (int i = 0; i < 10; i++) own_file("daemon", i);
        blocks(29800, 9973);
        _exit(12);
    }
    pid_t daemon;
    EXPECT(read(pair[0], &daemon, sizeof daemon) == sizeof daemon && ended(child) == 0);
    int rc = ended(daemon);
    line("TRUTH size=9973 allocs=30000 frees=30000");
    line("daemon %d, clean files %d", rc, clean_files("daemon", 10));
    return 0;
}

static int dup_over(char **args)
{
    (void)args;
    blocks(200, 9973);
    int file = own_file("dup", 0);
    for (int i = 3; i < 400; i++) if (i != file) EXPECT(dup2(file, i) == i);
    blocks(29800, 9973);
    rest_ms(250);
    line("TRUTH size=9973 allocs=30000 frees=30000");
    line("clean files %d", clean_files("dup", 1));
    return 0;
}
/* As above, but over the descriptors that are really there, whatever their numbers. */
static int dup_over_open(char **args)
{
    (void)args;
    blocks(200, 9973);
    int file = own_file("dup", 0), found[256], n = 0;
    DIR *folder = opendir("/proc/self/fd");
    EXPECT(folder);
    for (struct dirent *entry; (entry = readdir(folder)) && n < 256;) if (entry->d_name[0] != '.') found[n++] = atoi(entry->d_name);
    int own = dirfd(folder);
    for (int i = 0; i < n; i++) if (found[i] > 2 && found[i] != file && found[i] != own) EXPECT(dup2(file, found[i]) == found[i]);
    closedir(folder);
    blocks(29800, 9973);
    rest_ms(250);
    line("TRUTH size=9973 allocs=30000 frees=30000");
    line("clean files %d", clean_files("dup", 1));
    return 0;
}

static int closed_then_own(const char *stem, int by_libc)
{
    blocks(5000, 9973);
    if (by_libc) closefrom(3); else EXPECT(!syscall(SYS_close_range, 3u, ~0u, 0u));
    int file[24];
    for (int i = 0; i < 24; i++) file[i] = own_file(stem, i);
    blocks(15000, 9973);
    for (int i = 0; i < 24; i++) close(file[i]);
    return clean_files(stem, 24);
}
static int ranges(char **args)
{
    (void)args;
    int here = closed_then_own("parent", 0);
    pid_t child = fork();
    if (!child) _exit(closed_then_own("child", 1));
    int there = ended(child);
    line("TRUTH size=9973 allocs=40000 frees=40000");
    line("clean files %d and %d", here, there);
    return 0;
}

static int small(char **args) { (void)args; blocks(1500, 9973); return 0; }
static int at_limit(char **args)
{
    (void)args;
    struct rlimit limit = { 48, 48 };
    EXPECT(!setrlimit(RLIMIT_NOFILE, &limit));
    int top = -1;
    for (int file; (file = open("/dev/null", O_RDONLY)) >= 0;) top = file;
    EXPECT(errno == EMFILE && top == 47);
    blocks(6000, 9973);
    pid_t child = fork();
    if (!child) { blocks(2500, 9973); _exit(0); }
    int forked = ended(child);
    child = fork();
    if (!child) { close(44); close(45); close(46); AGAIN("small"); _exit(97); }
    line("TRUTH size=9973 allocs=10000 frees=10000");
    line("forked %d, exec'd %d", forked, ended(child));
    return 0;
}

static int none_open(char **args)
{
    (void)args;
    blocks(4000, 9973);
    for (int fd = 0; fd < 3; fd++) if (write(fd, "x", 1) != -1 || errno != EBADF) _exit(10 + fd);
    int file = open("std.txt", O_CREAT | O_RDWR, 0644);
    if (file != 0 || dup(file) != 1 || dup(file) != 2) _exit(20);
    if (write(1, "printed\n", 8) != 8) _exit(21);
    blocks(16000, 9973);
    _exit(0);
}
static int std_closed(char **args)
{
    (void)args;
    pid_t child = fork();
    if (!child) { for (int i = 0; i < 64; i++) close(i); AGAIN("none-open"); _exit(97); }
    int rc = ended(child);
    line("TRUTH size=9973 allocs=20000 frees=20000");
    line("child %d, clean %d", rc, clean("std.txt", "printed\n"));
    return 0;
}

MODES({ "numbers", numbers }, { "daemon", daemonise }, { "dup-over", dup_over }, { "dup-over-open", dup_over_open }, { "ranges", ranges }, { "small", small },
      { "at-limit", at_limit }, { "none-open", none_open }, { "std-closed", std_closed })
