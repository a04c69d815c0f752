// A library that is loaded and unloaded again and again; two of them differ in their frames, but not in where their code lies.
#include <string.h>
static volatile long sum;
__attribute__((noinline)) static long inner(void (*call)(int), int n) {
    char room[SIZE];
    memset(room, n, sizeof room);
    call(n);
    return room[n] + sum++;
}
long part(void (*call)(int), int n) {
    char room[SIZE / 2];
    memset(room, n, sizeof room);
    long r = inner(call, n) + room[1];
    return r + inner(call, n + 1);
}
