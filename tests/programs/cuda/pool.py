# Arrays from the pool of the stand-in for CuPy; on stdout what the pool says of itself.
import ctypes
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
MIB = 1 << 20
cuda = ctypes.CDLL(os.environ["PROGRAM_DIR"] + "/libcuda.so.1")
contexts = [ctypes.c_void_p(), ctypes.c_void_p()]
cuda.cuInit(0)
for i in (0, 1):
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(contexts[i]), i)
cuda.cuCtxSetCurrent(contexts[0])
import cupy
from cupy.cuda import alloc


def settle():
    """Time, with calls of the driver in it and steps of Python between."""
    host, p = ctypes.create_string_buffer(64), ctypes.c_uint64()
    cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(64))
    for _ in range(40):
        cuda.cuMemcpyHtoD_v2(p, host, ctypes.c_size_t(64))
        time.sleep(0.002)
    cuda.cuMemFree_v2(p)


def pool():
    a, b = alloc(3 * MIB), alloc(4 * MIB)
    settle()
    del b
    c = alloc(MIB)
    settle()
    del a, c
    again = alloc(4 * MIB)
    settle()
    cuda.cuCtxSetCurrent(contexts[1])
    other = alloc(2 * MIB)
    settle()
    cuda.cuCtxSetCurrent(contexts[0])
    p = cupy.get_default_memory_pool()
    print("in use", p.used_bytes(), "of", p.total_bytes(), flush=True)
    del again, other


def threads():
    """Another thread allocates; the main one runs Python meanwhile."""
    def works():
        cuda.cuCtxSetCurrent(contexts[0])
        kept = [alloc(MIB) for _ in range(5)]
        settle()
        del kept

    t = threading.Thread(target=works)
    t.start()
    while t.is_alive():
        time.sleep(0.001)
    print("in use", cupy.get_default_memory_pool().used_bytes(), flush=True)


def own_allocator():
    """Arrays from an allocator that is no pool, then from a pool of the program's own that raises when it is asked."""
    raw = cupy.cuda.memory.SingleDeviceMemoryPool()
    cupy.cuda.set_allocator(lambda size: raw.malloc(size))
    a = alloc(MIB)
    settle()

    class Broken(cupy.cuda.MemoryPool):
        def used_bytes(self):
            raise RuntimeError("nobody is to see this")

    cupy.cuda.set_allocator(Broken().malloc)
    b = alloc(MIB)
    settle()
    print("fine", sys.exc_info()[0], flush=True)
    del a, b


def forks():
    """A child that goes on in Python; the driver does not work there."""
    a = alloc(3 * MIB)
    settle()
    child = os.fork()
    if child == 0:
        print("child", sum(range(1000)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    settle()
    del a
    print("parent", flush=True)


{"pool": pool, "threads": threads, "own_allocator": own_allocator, "forks": forks}[sys.argv[1]]()
