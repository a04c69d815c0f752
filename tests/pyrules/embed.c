/* Python in a library that is opened late, begun and ended twice, with a thread of the program's own that comes to it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static void *library;
static int (*run)(const char *);

static void *thread(void *unused)
{
    int (*ensure)(void) = dlsym(library, "PyGILState_Ensure");
    void (*release)(int) = dlsym(library, "PyGILState_Release");
    int state = ensure();
    run("solve(2)\nsolve(3)");
    release(state);
    return unused;
}

int main(int argc, char **argv)
{
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : 0;
    if (!library) {
        puts(dlerror());
        return 1;
    }
    void (*begin)(int) = dlsym(library, "Py_InitializeEx");
    int (*end)(void) = dlsym(library, "Py_FinalizeEx");
    void *(*save)(void) = dlsym(library, "PyEval_SaveThread");
    void (*restore)(void *) = dlsym(library, "PyEval_RestoreThread");
    run = dlsym(library, "PyRun_SimpleString");
    for (int i = 0; i < 2; i++) {
        begin(0);
        run("def solve(n): return [n]\nsolve(1)");
        void *state = save();
        pthread_t t;
        pthread_create(&t, 0, thread, 0);
        pthread_join(t, 0);
        restore(state);
        printf("ended %d\n", end());
    }
    return 0;
}
