/* Keeps N blocks: populations COUNT LOW HIGH HOW [SIGNAL]
   even: sizes even between LOW and HIGH; log: their logarithms are; two: LOW and HIGH in turn. With -left, all but every 40th are freed. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;

static double fraction(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / (double)(1ull << 53);
}

int main(int argc, char **argv) {
    if (argc < 5)
        return 2;
    size_t count = strtoull(argv[1], NULL, 10);
    double low = strtod(argv[2], NULL), high = strtod(argv[3], NULL);
    void **kept = malloc(count * sizeof *kept);
    for (size_t i = 0; i < count; i++) {
        double size = low + (high - low) * fraction();
        if (strncmp(argv[4], "log", 3) == 0)
            size = low * pow(high / low, fraction());
        if (strncmp(argv[4], "two", 3) == 0)
            size = i % 2 ? high : low;
        if ((kept[i] = malloc((size_t)size)) == NULL)
            return 3;
    }
    if (strstr(argv[4], "-left") != NULL)
        for (size_t i = 0; i < count; i++)
            if (i % 40)
                free(kept[i]);
    if (argc > 5)
        raise(atoi(argv[5]));
    return 0;
}
