/* An interpreter that comes and goes: started and ended three times, with threads of C that enter and leave it and allocate in between, and interpreters inside. */
#include <Python.h>
#include <pthread.h>

static const char *work = "def f(n):\n return [str(i) * 200 for i in range(n)] if n < 5 else f(n - 1)\nf(20)\nexec('f(3)')\nlist(map(f, range(9)))\n";

static void allocate(void)
{
    for (int i = 1; i < 50; i++) free(malloc(i * 100));
}

static void *visit(void *unused)
{
    for (int i = 0; i < 20; i++) {
        allocate();
        PyGILState_STATE s = PyGILState_Ensure();
        PyRun_SimpleString(work);
        Py_BEGIN_ALLOW_THREADS
        allocate();
        Py_END_ALLOW_THREADS
        PyGILState_Release(s);
    }
    allocate();
    return unused;
}

int main(void)
{
    for (int turn = 0; turn < 3; turn++) {
        allocate();
        Py_Initialize();
#if PY_VERSION_HEX < 0x03090000
        PyEval_InitThreads();
#endif
        pthread_t threads[4];
        PyThreadState *own = PyEval_SaveThread();
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, visit, NULL);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        PyEval_RestoreThread(own);
        PyThreadState *inner = Py_NewInterpreter();
        PyRun_SimpleString(work);
        Py_BEGIN_ALLOW_THREADS
        allocate();
        Py_END_ALLOW_THREADS
        Py_EndInterpreter(inner);
        allocate();
        PyThreadState_Swap(own);
        PyRun_SimpleString(work);
        Py_Finalize();
        allocate();
    }
    puts("done");
    return 0;
}
