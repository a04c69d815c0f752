// An exec that ends the shim's writer in the middle of a line, made certain: the line is begun here, and the exec goes past the hooks.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static void churn(int n, size_t size) {
    for (int i = 0; i < n; i++) free(memset(malloc(size), 1, size));
}

int main(int n, char **arg) {
    if (n > 1) {
        churn(3000, 10007);
        return 0;
    }
    churn(2000, 10007);
    int trace = open("trace.jsonl", O_WRONLY | O_APPEND);
    const char *begun = "{\"type\":\"ev\",\"g\":0,\"lane\":0,\"n\":40";
    if (write(trace, begun, strlen(begun)) != (ssize_t)strlen(begun)) return 3;
    close(trace);
    char *next[] = {arg[0], "x", 0};
    syscall(SYS_execve, "/proc/self/exe", next, environ);
    return 4;
}
