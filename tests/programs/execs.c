/* New images: exec, vfork and posix_spawn, from main and from threads, with environments, folders and names gone strange. */
#include "facts.h"

static int image(char **args) { blocks(atoi(args[0]), 9973); return 0; }

__attribute__((noinline)) static int by_vfork(const char *path)
{
    volatile unsigned long guard[6];
    for (int i = 0; i < 6; i++) guard[i] = 0xabcdefUL * (i + 1);
    pid_t child = vfork();
    if (!child) { execl(path, path, (char *)0); _exit(126); }
    int rc = ended(child);
    for (int i = 0; i < 6; i++) EXPECT(guard[i] == 0xabcdefUL * (i + 1));
    return rc;
}
static int vforks(char **args)
{
    (void)args;
    int good = 0, missing = 0;
    for (int i = 0; i < 120; i++) {
        blocks(3, 9973);
        good += by_vfork("/bin/true") == 0;
        missing += by_vfork("/no/such/program") == 126;
    }
    line("TRUTH size=9973 allocs=360 frees=360");
    line("ran %d, failed %d", good, missing);
    return 0;
}

static int ran, absent, failed;
static void *spawner(void *arg)
{
    char *yes[] = { "true", 0 }, *code[] = { "sh", "-c", "exit 37", 0 };
    for (int i = 0; i < 30; i++) {
        pid_t child;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addclosefrom_np(&actions, 3);
        if (!posix_spawn(&child, "/bin/true", &actions, 0, yes, environ)) __atomic_fetch_add(&ran, ended(child) == 0, 5);
        __atomic_fetch_add(&absent, posix_spawn(&child, "/no/such/program", &actions, 0, yes, environ) == ENOENT, 5);
        if (!posix_spawnp(&child, "sh", 0, 0, code, environ)) __atomic_fetch_add(&failed, ended(child) == 37, 5);
        posix_spawn_file_actions_destroy(&actions);
        blocks(10, 9973);
    }
    return arg;
}
static int spawns(char **args)
{
    (void)args;
    pthread_t three[3];
    for (int i = 0; i < 3; i++) EXPECT(!pthread_create(&three[i], 0, spawner, 0));
    for (int i = 0; i < 3; i++) pthread_join(three[i], 0);
    line("TRUTH size=9973 allocs=900 frees=900");
    line("ran %d, absent %d, failed %d", ran, absent, failed);
    return 0;
}

static void *endless(void *arg) { for (;;) free(opaque(malloc(130))); return arg; }
static void *execing(void *arg) { blocks(1500, 9973); AGAIN("image-last"); return arg; }
static int image_last(char **args)
{
    (void)args;
    blocks(2500, 9973);
    line("TRUTH size=9973 allocs=5000 frees=5000");
    return 0;
}
static int from_thread(char **args)
{
    (void)args;
    pthread_t thread;
    blocks(1000, 9973);
    for (int i = 0; i < 3; i++) EXPECT(!pthread_create(&thread, 0, endless, 0));
    EXPECT(!pthread_create(&thread, 0, execing, 0));
    pthread_join(thread, 0);
    return 97;
}

/* Six images of one process, one after another. */
static int relay(char **args)
{
    int left = args[0] ? atoi(args[0]) : 5;
    blocks(200, 9973);
    if (!left) { line("TRUTH size=9973 allocs=1200 frees=1200"); return 0; }
    char next[8];
    snprintf(next, sizeof next, "%d", left - 1);
    AGAIN("relay", next);
    return 97;
}

/* A failed exec leaves the process as it was, and traced. */
static int failing(char **args)
{
    (void)args;
    blocks(100, 9973);
    for (int i = 0; i < 20; i++) { errno = 0; execl("/no/such/program", "x", (char *)0); EXPECT(errno == ENOENT); }
    char *argv[] = { "x", 0 };
    errno = 0; execvp("no-such-program-at-all", argv); EXPECT(errno == ENOENT);
    errno = 0; execve("/etc/passwd", argv, environ); EXPECT(errno == EACCES);
    blocks(100, 9973);
    line("TRUTH size=9973 allocs=200 frees=200");
    return 0;
}

static void *thread_work(void *arg) { blocks(700, 9973); return arg; }
static int bare(char **args) { (void)args; return environ && environ[0] ? 3 : 0; }
static int no_environment(char **args)
{
    (void)args;
    blocks(5000, 9973);
    clearenv();
    environ = 0;
    pthread_t thread;
    EXPECT(!pthread_create(&thread, 0, thread_work, 0));
    pthread_join(thread, 0);
    pid_t child = fork();
    if (!child) { blocks(300, 9973); exit(0); }
    int forked = ended(child);
    child = fork();
    if (!child) { char *argv[] = { "x", "bare", 0 }, *none[] = { 0 }; execve("/proc/self/exe", argv, none); _exit(97); }
    line("TRUTH size=9973 allocs=6000 frees=6000");
    line("forked %d, exec'd %d", forked, ended(child));
    return 0;
}

static int homeless(char **args) { (void)args; char path[4096]; blocks(3000, 9973); return getcwd(path, sizeof path) ? 1 : 0; }
static int no_folder(char **args)
{
    (void)args;
    EXPECT(!mkdir("away", 0755) && !chdir("away") && !rmdir("../away"));
    pid_t child = fork();
    if (!child) { AGAIN("homeless"); _exit(97); }
    line("homeless %d", ended(child));
    return 0;
}

#define ODD "qu\"ote\nline\ttab\\back\xff\xc0.x"
static void copy(const char *from, const char *to)
{
    static char bytes[4 << 20];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0755);
    EXPECT(in >= 0 && out >= 0);
    ssize_t length = read(in, bytes, sizeof bytes);
    EXPECT(length > 0 && write(out, bytes, length) == length);
    close(in); close(out);
}
static int odd_image(char **args)
{
    (void)args;
    prctl(PR_SET_NAME, "n\"\n\\\xfe\x02", 0, 0, 0);
    blocks(150, 9973);
    void *library = dlopen("./lib" ODD, RTLD_NOW);
    EXPECT(library);
    void *(*grab)(void) = (void *(*)(void))dlsym(library, "grab");
    for (int i = 0; i < 50; i++) free(grab());
    line("TRUTH size=9973 allocs=150 frees=150");
    line("TRUTH size=17011 allocs=50 frees=50");
    return 0;
}
static int odd_names(char **args)
{
    (void)args;
    copy("/proc/self/exe", "./" ODD);
    copy(beside("grab-one.so"), "./lib" ODD);
    execl("./" ODD, "ar\"g\n\\0\xfe", "odd-image", (char *)0);
    return 97;
}

static int ranks(char **args)
{
    (void)args;
    pid_t all[8];
    int good = 0;
    for (int i = 0; i < 8; i++) {
        all[i] = fork();
        if (all[i]) continue;
        char rank[8];
        snprintf(rank, sizeof rank, "%d", i);
        setenv("SLURM_PROCID", rank, 1);
        setenv("OMPI_COMM_WORLD_RANK", rank, 1);
        AGAIN("image", "500");
        _exit(97);
    }
    for (int i = 0; i < 8; i++) good += ended(all[i]) == 0;
    line("TRUTH size=9973 allocs=4000 frees=4000");
    line("ranks %d", good);
    return 0;
}

MODES({ "image", image }, { "vfork", vforks }, { "spawn", spawns }, { "from-thread", from_thread }, { "image-last", image_last }, { "relay", relay },
      { "failing", failing }, { "bare", bare }, { "no-environment", no_environment }, { "homeless", homeless }, { "no-folder", no_folder },
      { "odd-image", odd_image }, { "odd-names", odd_names }, { "ranks", ranks })
