/* A program on NVIDIA's own runtime, shared or linked in; the prototypes are its documented ones. On a driver that is not NVIDIA's the runtime
   gives up when it sets itself up, which is its right: what is said here must be the same whoever listens. */
#include "../facts.h"

int cudaRuntimeGetVersion(int *version);
int cudaDriverGetVersion(int *version);
int cudaGetDeviceCount(int *count);
int cudaMalloc(void **p, size_t n);
int cudaGetLastError(void);

static int all(char **args)
{
    int runtime = 0, driver = 0, count = -1;
    void *p = 0;
    int r = cudaRuntimeGetVersion(&runtime);
    line("version of the runtime: %d, %d", r, runtime);
    r = cudaDriverGetVersion(&driver);
    line("version of the driver: %d, %d", r, driver);
    r = cudaGetDeviceCount(&count);
    line("devices: %d, %d", r, count);
    r = cudaMalloc(&p, 1 << 20);
    line("memory: %d, %s", r, p ? "some" : "none");
    line("last error: %d", cudaGetLastError());
    return 0;
}

MODES({"all", all})
