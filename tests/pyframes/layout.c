/* Prints the layout of an interpreter by its headers: a field of the shim's `Layout` and its offset a line; from 3.13 on `word` lines with what the interpreter says
   of itself. What a version does not have is not printed. */
#include "headers.h"

int main(void)
{
    say("version", PY_VERSION_HEX >> 16);
    SAY("thread_id", PyThreadState, thread_id);
#if PY_VERSION_HEX < 0x030b0000
    SAY("top", PyThreadState, frame);
    SAY("previous", PyFrameObject, f_back);
    SAY("code", PyFrameObject, f_code);
    SAY("instr", PyFrameObject, f_lasti);
#else
    SAY("previous", _PyInterpreterFrame, previous);
    SAY("qualname", PyCodeObject, co_qualname);
    SAY("start", PyCodeObject, co_code_adaptive);
    say("code_size", offsetof(PyCodeObject, co_code_adaptive));
#if PY_VERSION_HEX < 0x030d0000
    SAY("top", PyThreadState, cframe);
    SAY("cframe_current", _PyCFrame, current_frame);
    SAY("cframe_previous", _PyCFrame, previous);
    SAY("stack_chunk", PyThreadState, datastack_chunk);
    SAY("stack_top", PyThreadState, datastack_top);
    SAY("code", _PyInterpreterFrame, f_code);
    SAY("instr", _PyInterpreterFrame, prev_instr);
#else
    SAY("top", PyThreadState, current_frame);
    SAY("code", _PyInterpreterFrame, f_executable);
    SAY("instr", _PyInterpreterFrame, instr_ptr);
    const uint64_t *words = (const uint64_t *)&_PyRuntime;
    for (int i = 0; i < 96; i++) printf("word %llu\n", (unsigned long long)words[i]);
#endif
#if PY_VERSION_HEX < 0x030c0000
    SAY("entry", _PyInterpreterFrame, is_entry);
    if (offsetof(_PyInterpreterFrame, owner) != offsetof(_PyInterpreterFrame, is_entry) + 1) say("entry and owner are apart", 0);
#else
    SAY("owner", _PyInterpreterFrame, owner);
#if PY_VERSION_HEX < 0x030e0000
    say("shim_owner", FRAME_OWNED_BY_CSTACK);
#else
    say("shim_owner", FRAME_OWNED_BY_INTERPRETER);
#endif
#endif
#endif
    SAY("filename", PyCodeObject, co_filename);
    SAY("name", PyCodeObject, co_name);
    SAY("firstlineno", PyCodeObject, co_firstlineno);
#if PY_VERSION_HEX < 0x030b0000
    say("code_size", sizeof(PyCodeObject));
#endif
#if PY_VERSION_HEX < 0x030a0000
    SAY("lines", PyCodeObject, co_lnotab);
    SAY("stamp", PyCodeObject, co_lnotab);
#else
    SAY("lines", PyCodeObject, co_linetable);
#if PY_VERSION_HEX >= 0x030c0000
    SAY("stamp", PyCodeObject, co_version);
#else
    SAY("stamp", PyCodeObject, co_linetable);
#endif
#endif
#if PY_VERSION_HEX < 0x03090000
    SAY("finalizing", _PyRuntimeState, finalizing);
#else
    SAY("finalizing", _PyRuntimeState, _finalizing);
#endif
    SAY("object_type", PyObject, ob_type);
    SAY("unicode_length", PyASCIIObject, length);
    SAY("unicode_state", PyASCIIObject, state);
    say("unicode_ascii", sizeof(PyASCIIObject));
    say("unicode_compact", sizeof(PyCompactUnicodeObject));
    SAY("bytes_size", PyBytesObject, ob_base.ob_size);
    SAY("bytes_data", PyBytesObject, ob_sval);
    PyASCIIObject o = {0};
    o.state.kind = 1;
    unsigned state = *(unsigned *)&o.state;
    say("unicode_kind_bit", __builtin_ctz(state));
    o.state.kind = 0, o.state.compact = 1;
    if (*(unsigned *)&o.state != state << 3) say("compact is elsewhere", 0);
    o.state.compact = 0, o.state.ascii = 1;
    if (*(unsigned *)&o.state != state << 4) say("ascii is elsewhere", 0);
    return 0;
}
