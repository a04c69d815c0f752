/* Maps that children inherit: 144 MiB private and 16 MiB shared, all touched. The child unmaps some, maps some anew, and forks again. */
#include "facts.h"

enum { MIB = 1 << 20 };

static char *touched(size_t length, int flags)
{
    char *p = mmap(0, length, RW, flags | MAP_ANONYMOUS, -1, 0);
    EXPECT(p != MAP_FAILED);
    memset(p, 1, length);
    return p;
}

int main(void)
{
    char *own = touched(144 * MIB, MAP_PRIVATE), *shared = touched(16 * MIB, MAP_SHARED);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child) return ended(child) | (own[0] + shared[0] != 2);
    touched(16 * MIB, MAP_PRIVATE);
    EXPECT(!munmap(own, 80 * MIB));
    EXPECT(!munmap(own + 80 * MIB, 16 * MIB));
    child = fork();
    EXPECT(child >= 0);
    if (child) return ended(child);
    touched(32 * MIB, MAP_PRIVATE);
    return 0;
}
