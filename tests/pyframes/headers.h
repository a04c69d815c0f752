/* What the programs that print an interpreter's layout share: its own headers, by version, and how an offset is said. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#if PY_VERSION_HEX < 0x03080000
#include <internal/pystate.h>
#elif PY_VERSION_HEX < 0x03090000
#include <internal/pycore_pystate.h>
#else
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#endif
#if PY_VERSION_HEX >= 0x030c0000
#include <internal/pycore_instruments.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe_structs.h>
#elif PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_code.h>
#else
#include <code.h>
#endif

static void say(const char *name, size_t at) { printf("%s %zu\n", name, at); }
#define SAY(name, type, field) say(name, offsetof(type, field))
