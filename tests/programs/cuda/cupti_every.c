/* A library with the calls by which programs take CUPTI for themselves: each refuses with a code of its own. */
#include <errno.h>
#define REFUSES(name, code) __attribute__((visibility("default"))) int name(void *a, void *b, void *c, void *d) { return errno = 77, code; }
REFUSES(cuptiSubscribe, 39)
REFUSES(cuptiSubscribe_v2, 40)
REFUSES(cuptiActivityRegisterCallbacks, 41)
REFUSES(cuptiActivityRegisterCallbacks_v2, 42)
