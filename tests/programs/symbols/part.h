/* What the library of the tests of native functions as phases exports. */
#include <setjmp.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
struct pair { double a; long b; };
struct big { long v[24]; };
struct huge { long v[220]; };
double mix(long a, double x, long b, double y, long c, double z, long d, double u, long e, double v, long f, double w, long g, double p,
           long h, double q, long i, double r, long j, double s, double t, double o);
long double longer(long double a, int n, long double b);
struct pair swap(struct pair p);
struct big scale(struct big b, long by);
long sum(struct huge h, struct pair p, struct huge g);
int say(char *to, size_t len, const char *format, ...);
void *keep(size_t n);
void work(size_t n);
int down(int n);
int up(int n);
void leave(jmp_buf *to, int value);
int call(int (*f)(int), int n);
int sets_errno(int expected);
void exits_thread(void);
int forks(void);
int spawns(const char *path);
void never_called(void);
int renewed(int n);
typedef int (*function)(int);
function address_of_down(void);
/* With 32 and 64 bytes a vector: whether the processor has them, and what they give. */
int wide(void);
extern function table[2];
#ifdef __cplusplus
}
#endif
