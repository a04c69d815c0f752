/* A library whose functions take and give all that can be handed over. */
#define _GNU_SOURCE
#include "part.h"
#include <errno.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

double mix(long a, double x, long b, double y, long c, double z, long d, double u, long e, double v, long f, double w, long g, double p,
           long h, double q, long i, double r, long j, double s, double t, double o) {
    long n = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
    return n + x + 2 * y + 3 * z + 4 * u + 5 * v + 6 * w + 7 * p + 8 * q + 9 * r + 10 * s + 11 * t + 12 * o;
}
long double longer(long double a, int n, long double b) { return a / n + b; }
struct pair swap(struct pair p) { return (struct pair){p.b, p.a}; }
struct big scale(struct big b, long by) {
    for (int i = 0; i < 24; i++) b.v[i] *= by;
    return b;
}
long sum(struct huge h, struct pair p, struct huge g) {
    long n = 0;
    for (int i = 0; i < 60; i++) n += h.v[i] * i + h.v[219 - i] + g.v[i] * 3 + g.v[219 - i];
    return n + p.a * 1000 + p.b;
}
int say(char *to, size_t len, const char *format, ...) {
    va_list all;
    va_start(all, format);
    int n = vsnprintf(to, len, format, all);
    va_end(all);
    return n;
}
void *keep(size_t n) { return malloc(n); }
void work(size_t n) { free(malloc(n)); }
int down(int n) { return n <= 0 ? 0 : up(n - 1) + 1; }
int up(int n) { return n <= 0 ? 0 : down(n - 1) + 1; }
void leave(jmp_buf *to, int value) { longjmp(*to, value); }
int call(int (*f)(int), int n) { return f(n); }
int sets_errno(int expected) {
    int was = errno;
    errno = 77;
    return was == expected;
}
void exits_thread(void) { pthread_exit((void *)7); }
int forks(void) { return fork(); }
int spawns(const char *path) {
    int status = 0;
    pid_t child = vfork();
    if (child == 0) {
        work(100);
        execl(path, path, (char *)0);
        _exit(9);
    }
    waitpid(child, &status, 0);
    return status;
}
void never_called(void) {}
int same_name(int n) { return n + 1; }
/* Two versions of one name, as the C library has them. */
__asm__(".symver renewed_old,renewed@ONE");
__asm__(".symver renewed_new,renewed@@TWO");
int renewed_old(int n) { return n - 1000; }
int renewed_new(int n) { return n + 1; }
function table[2] = {down, up};
function address_of_down(void) { return down; }

__attribute__((target("avx"))) __m256d add4(__m256d a, __m256d b, double c) { return a + b + c; }
__attribute__((target("avx512f"))) __m512d add8(__m512d a, __m512d b, double c) { return a + b + c; }

__attribute__((target("avx"), noinline)) static int wide4(void) {
    volatile __m256d a = {1, 2, 3, 4}, b = {10, 20, 30, 40};
    __m256d c = add4(a, b, 0.5), kept = add4(c, c, 0);
    return c[0] == 11.5 && c[1] == 22.5 && c[2] == 33.5 && c[3] == 44.5 && kept[3] == 89;
}
__attribute__((target("avx512f"), noinline)) static int wide8(void) {
    volatile __m512d a = {1, 2, 3, 4, 5, 6, 7, 8}, b = {10, 20, 30, 40, 50, 60, 70, 80};
    __m512d c = add8(a, b, 0.5);
    return c[0] == 11.5 && c[3] == 44.5 && c[4] == 55.5 && c[7] == 88.5;
}
int wide(void) {
    int n = 0;
    if (__builtin_cpu_supports("avx")) n += wide4() ? 1 : 100;
    if (__builtin_cpu_supports("avx512f")) n += wide8() ? 2 : 100;
    return n;
}
