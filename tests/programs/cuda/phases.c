/* Two stages of a GPU program, each told of as a phase. */
#include "driver.h"
#include "../../../include/memshim.h"

#define MIB (1ull << 20)

static int stages(char **args)
{
    driver(args);
    context(0);
    Ptr kept, scratch, pinned;
    char *h = map_anon(4 * MIB);
    memshim_begin("load");
    OKAY(cuMemAlloc_v2, &kept, (size_t)(4 * MIB));
    OKAY(cuMemcpyHtoD_v2, kept, h, (size_t)(3 * MIB));
    memshim_end();
    memshim_begin("compute");
    for (int i = 0; i < 2; i++) {
        OKAY(cuMemAlloc_v2, &scratch, (size_t)((10 + i) * MIB));
        OKAY(cuMemAllocHost_v2, &pinned, (size_t)(2 * MIB));
        OKAY(cuMemcpyHtoD_v2, scratch, pinned, (size_t)(MIB));
        OKAY(cuMemcpyDtoH_v2, h, kept, (size_t)(2 * MIB));
        OKAY(cuMemFreeHost, pinned);
        OKAY(cuMemFree_v2, scratch);
    }
    memshim_end();
    memshim_begin("store");
    OKAY(cuMemcpyDtoH_v2, h, kept, (size_t)(4 * MIB));
    OKAY(cuMemFree_v2, kept);
    memshim_end();
    return 0;
}

int main(int n, char **args)
{
    return n > 1 && !strcmp(args[1], "stages") ? stages(args + 2) : 2;
}
