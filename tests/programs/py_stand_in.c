/* Exports what an interpreter does, says that it is 3.MINOR, and has nothing where frames would be: who looks for them ends it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct type {
    uint64_t references;
    const void *type;
    uint64_t items;
    const char *name;
    uint64_t basic_size;
};

/* As from 3.13 on: a cookie, the version, then where things are. */
struct runtime {
    char cookie[8];
    uint64_t version, words[120];
} _PyRuntime = { "xdebugpy", 0x030000f0 | MINOR << 16, { 0 } };

const uint32_t Py_Version = 0x030000f0 | MINOR << 16;
struct type PyType_Type = { 1, &PyType_Type, 0, "type", 0 }, PyCode_Type = { 1, &PyType_Type, 0, "code", 8 },
            PyUnicode_Type = { 1, &PyType_Type, 0, "str", 8 }, PyBytes_Type = { 1, &PyType_Type, 0, "bytes", 8 };

#define TEXT(n) #n
#define VERSION(n) "3." TEXT(n) ".0 (stand-in)"
const char *Py_GetVersion(void) { return VERSION(MINOR); }
void *PyGILState_GetThisThreadState(void) { abort(); }
void *_PyThreadState_UncheckedGet(void) { abort(); }
void *PyInterpreterState_Head(void) { abort(); }
void *PyInterpreterState_Main(void) { abort(); }

static char *volatile kept[100];

__attribute__((noinline)) static void keep(int i)
{
    kept[i] = memset(malloc(100000), 1, 100000);
}

int main(void)
{
    for (int i = 0; i < 100; i++)
        keep(i);
    return 0;
}
