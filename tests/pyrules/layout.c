/* Prints the offsets of an interpreter by its headers: a field of the shim's `Fields` and its offset a line. What a version does not have is not printed. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX < 0x03080000
#include <internal/pystate.h>
#elif PY_VERSION_HEX < 0x03090000
#include <internal/pycore_pystate.h>
#else
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#if PY_VERSION_HEX >= 0x030c0000
#include <internal/pycore_instruments.h>
#endif
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#else
#include <code.h>
#endif

#define SAY(name, type, field) printf("%s %zd\n", name, (ssize_t)offsetof(type, field))

int main(void)
{
    printf("version %d\n", PY_VERSION_HEX >> 16);
#if PY_VERSION_HEX < 0x030b0000
    SAY("code", PyFrameObject, f_code);
    SAY("globals", PyFrameObject, f_globals);
    SAY("locals", PyFrameObject, f_locals);
#if PY_VERSION_HEX < 0x030a0000
    SAY("stack_top", PyFrameObject, f_stacktop);
#else
    SAY("state", PyFrameObject, f_state);
#endif
#else
#if PY_VERSION_HEX < 0x030d0000
    SAY("code", _PyInterpreterFrame, f_code);
#else
    SAY("code", _PyInterpreterFrame, f_executable);
#endif
    SAY("globals", _PyInterpreterFrame, f_globals);
    SAY("locals", _PyInterpreterFrame, f_locals);
    SAY("frame_object", _PyInterpreterFrame, frame_obj);
    SAY("owner", _PyInterpreterFrame, owner);
    printf("generator_state %zd\n", (ssize_t)offsetof(PyGenObject, gi_frame_state) - (ssize_t)offsetof(PyGenObject, gi_iframe));
#endif
#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000
    SAY("calls_left", PyThreadState, recursion_remaining);
    SAY("calls", PyThreadState, recursion_limit);
#endif
#if PY_VERSION_HEX >= 0x030c0000
    SAY("monitoring", PyCodeObject, _co_monitoring);
    SAY("return_tools", _PyCoMonitoringData, active_monitors.tools[PY_MONITORING_EVENT_PY_RETURN]);
#endif
    SAY("flags", PyCodeObject, co_flags);
    SAY("constants", PyCodeObject, co_consts);
    SAY("name", PyCodeObject, co_name);
    SAY("filename", PyCodeObject, co_filename);
    SAY("first_line", PyCodeObject, co_firstlineno);
    SAY("eval_frame", PyInterpreterState, eval_frame);
    SAY("interpreter", PyThreadState, interp);
    SAY("items", PyTupleObject, ob_item);
    SAY("type_name", PyTypeObject, tp_name);
    SAY("type_size", PyTypeObject, tp_basicsize);
    SAY("type_dealloc", PyTypeObject, tp_dealloc);
    printf("type %zu\n", sizeof(PyTypeObject));
    return 0;
}
