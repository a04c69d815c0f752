# A stand-in for CuPy, for tests only: its names, and the order in which its pool calls the driver and counts, on the driver of our own.
from cupy import cuda

_default_memory_pool = cuda.MemoryPool()
cuda.set_allocator(_default_memory_pool.malloc)


def get_default_memory_pool():
    return _default_memory_pool
