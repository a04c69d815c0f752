/* What every program of this folder starts from. A program does something whose memory it knows exactly, checks that the
   system behaved, and prints TRUTH lines about itself. Nothing here allocates, so the numbers are the program's own. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* One line to stdout, by write(2). */
__attribute__((format(printf, 1, 2))) static inline void line(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    text[length++] = '\n';
    for (char *at = text; length > 0;) {
        ssize_t done = write(1, at, length);
        if (done <= 0) return;
        at += done;
        length -= done;
    }
}

/* A broken expectation ends the program: no test passes on a system that does not do what the program says. */
#define EXPECT(condition) \
    do { if (!(condition)) { line("broken: %s:%d %s (errno %d)", __FILE__, __LINE__, #condition, errno); _exit(99); } } while (0)

/* What the compiler may not see through: keeps malloc/free pairs in the program. */
static inline void *opaque(void *p) { __asm__ volatile("" : "+r"(p) : : "memory"); return p; }

/* `times` blocks of `size`, each written at both ends and freed. */
static inline void blocks(long times, size_t size)
{
    for (long i = 0; i < times; i++) {
        unsigned char *p = (unsigned char *)opaque(malloc(size));
        EXPECT(p);
        p[0] = 1;
        p[size - 1] = 2;
        free(p);
    }
}

static inline void rest_ms(long ms)
{
    struct timespec left = { ms / 1000, ms % 1000 * 1000000L };
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

/* How a child ended: its exit code, or minus the signal. */
static inline int ended(pid_t child)
{
    int status;
    pid_t got;
    do got = waitpid(child, &status, 0); while (got < 0 && errno == EINTR);
    EXPECT(got == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The number behind a key of /proc/self/status. */
static inline long status_value(const char *key)
{
    char text[8192];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    EXPECT(file >= 0);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    EXPECT(length > 0);
    text[length] = 0;
    char *at = strstr(text, key);
    EXPECT(at);
    return strtol(at + strlen(key) + 1, 0, 10);
}

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)
static inline char *map_anon(size_t length)
{
    char *p = (char *)mmap(0, length, RW, ANON, -1, 0);
    EXPECT(p != MAP_FAILED);
    return p;
}

/* Path of something built beside this program. */
static inline const char *beside(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("PROGRAM_DIR"), name);
    return path;
}

/* This program again, in another mode, in the calling process. */
#define AGAIN(...) execl("/proc/self/exe", "again", __VA_ARGS__, (char *)0)

/* A program has several modes; each is one promise. */
struct mode { const char *name; int (*run)(char **args); };
static inline int run_mode(const struct mode *modes, char **argv)
{
    for (; argv[1] && modes->name; modes++)
        if (!strcmp(modes->name, argv[1])) return modes->run(argv + 2);
    line("no such mode");
    return 98;
}
#define MODES(...) \
    int main(int argc, char **argv) { (void)argc; static const struct mode modes[] = { __VA_ARGS__, { 0, 0 } }; return run_mode(modes, argv); }
