/* Prints the offsets of an interpreter by its headers: a field of the shim's `Fields` and its offset a line. What a version does not have is not printed. */
#include "../pyframes/headers.h"

int main(void)
{
    say("version", PY_VERSION_HEX >> 16);
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
    SAY("inlined_function", _PyInterpreterFrame, f_func);
    SAY("inlined_first_local", _PyInterpreterFrame, localsplus);
    SAY("inlined_function_code", PyFunctionObject, func_code);
    SAY("inlined_arguments", PyCodeObject, co_argcount);
    SAY("inlined_named_arguments", PyCodeObject, co_kwonlyargcount);
    SAY("inlined_all_locals", PyCodeObject, co_nlocalsplus);
    SAY("inlined_exceptions", PyCodeObject, co_exceptiontable);
    if (offsetof(_PyInterpreterFrame, is_entry) + 4 > offsetof(_PyInterpreterFrame, localsplus)) say("inlined frames have no room for a mark", 0);
    SAY("inlined_traces", _PyCFrame, use_tracing);
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
    say("type", sizeof(PyTypeObject));
    return 0;
}
