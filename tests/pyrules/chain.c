/* Another function that evaluates frames: it counts, and passes frames on to the one that was there (PEP 523). */
#include <Python.h>
#if PY_VERSION_HEX < 0x03090000
#error "from 3.9 on"
#endif

static _PyFrameEvalFunction before;
static long count;

#if PY_VERSION_HEX < 0x030b0000
static PyObject *eval(PyThreadState *t, PyFrameObject *f, int throw)
#else
static PyObject *eval(PyThreadState *t, struct _PyInterpreterFrame *f, int throw)
#endif
{
    count++;
    return before(t, f, throw);
}

void install(void)
{
    PyInterpreterState *i = PyInterpreterState_Get();
    before = _PyInterpreterState_GetEvalFrameFunc(i);
    _PyInterpreterState_SetEvalFrameFunc(i, eval);
}

long remove_again(void)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), before);
    return count;
}
