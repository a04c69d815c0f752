/* Says what it is about to do, waits until whoever reads has seen it, does it. With an argument: does it at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char *line)
{
    static char buffer[256];
    /* Heap events are placed in time by the writer's looks at them, 2 ms apart here. */
    usleep(50000);
    int n = snprintf(buffer, sizeof buffer, "%s\n", line);
    if (write(1, buffer, n) != n) _exit(1);
    usleep(100000);
}

static char *touched(size_t n)
{
    char *p = malloc(n);
    memset(p, 1, n);
    return p;
}

static void at_once(void)
{
    for (int i = 0; i < 20; i++) {
        if (write(1, "at once\n", 8) != 8) _exit(1);
        touched(100000);
        usleep(3000);
    }
}

int main(int n, char **arg)
{
    if (n > 1) {
        at_once();
        return 0;
    }
    say("begin setup");
    char *kept = touched(3000000);
    say("step 1");
    char *a = touched(2000000);
    free(a);
    char *b = touched(1000);
    say("step 2");
    a = touched(5000000);
    free(a);
    char *c = touched(1000);
    say("done setup");
    say("begin finish");
    free(b);
    free(c);
    free(kept);
    say("done finish");
    return 0;
}
