"""Phases of a Python program for memshim. Without memshim every call does nothing.

    from memshim import phase, step, mark

    with phase("assemble"):
        matrix = assemble()

    @phase("solve")
    def solve(matrix): ...

    for batch in step("train", batches):
        ...

    mark("converged")

Phases nest by thread. Of a generator or coroutine that is decorated only the call that makes it is a phase: use `with` inside it instead,
around what does not yield or await.
"""

import functools
import os

__all__ = ["active", "mark", "phase", "step"]


def _functions():
    # The shim is loaded before the program, or not at all: then its functions are among those of the process. ctypes is only worth its
    # import where they can be.
    if "memshim" not in os.environ.get("LD_PRELOAD", ""):
        return None
    try:
        import ctypes

        process = ctypes.CDLL(None)
        functions = process.memshim_phase_begin, process.memshim_phase_end, process.memshim_mark
    except (ImportError, OSError, AttributeError):
        return None
    functions[0].argtypes = functions[2].argtypes = [ctypes.c_char_p]
    for function in functions:
        function.restype = None
    return functions


_shim = _functions()
#: Whether memshim records this process.
active = _shim is not None


class phase:
    """A named interval: a context manager, and a decorator of functions."""

    __slots__ = ("_name",)

    def __init__(self, name):
        self._name = str(name).encode("utf-8", "replace").split(b"\0")[0]

    def __enter__(self):
        if _shim is not None:
            _shim[0](self._name)
        return self

    def __exit__(self, *_):
        if _shim is not None:
            _shim[1]()
        return False

    def __call__(self, function):
        if _shim is None:
            return function

        @functools.wraps(function)
        def phased(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return phased


def step(name, items):
    """Iterates over `items`; each turn of the loop is one phase of that name."""
    if _shim is None:
        yield from items
        return
    turn = phase(name)
    for item in items:
        with turn:
            yield item


def mark(name):
    """Something happens now."""
    if _shim is not None:
        _shim[2](str(name).encode("utf-8", "replace").split(b"\0")[0])
