"""The pool: blocks from the driver are kept when arrays go, by their sizes. What is in use is counted before the driver is asked: of the real
one no step of Python lies between the two."""
import ctypes
import os
import threading

driver = ctypes.CDLL(os.environ["PROGRAM_DIR"] + "/libcuda.so.1")
_thread_local = threading.local()
_current_allocator = None


class MemoryPointer:
    def __init__(self, pool, ptr, size):
        self.pool, self.ptr, self.size = pool, ptr, size

    def __del__(self):
        self.pool._free(self)


class SingleDeviceMemoryPool:
    def __init__(self):
        self._blocks, self._in_use_bytes, self._total_bytes = {}, 0, 0

    def malloc(self, size):
        free = self._blocks.setdefault(size, [])
        self._in_use_bytes += size
        if not free:
            self._total_bytes += size
            p = ctypes.c_uint64()
            assert driver.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)) == 0
            free.append(p.value)
        return MemoryPointer(self, free.pop(), size)

    def _free(self, pointer):
        self._in_use_bytes -= pointer.size
        self._blocks[pointer.size].append(pointer.ptr)

    def used_bytes(self):
        return self._in_use_bytes

    def total_bytes(self):
        return self._total_bytes


class MemoryPool:
    def __init__(self):
        self._pools = [SingleDeviceMemoryPool(), SingleDeviceMemoryPool()]

    def _device_pool(self):
        device = ctypes.c_int()
        assert driver.cuCtxGetDevice(ctypes.byref(device)) == 0
        return self._pools[device.value]

    def malloc(self, size):
        return self._device_pool().malloc(size)

    def used_bytes(self):
        return self._device_pool().used_bytes()

    def total_bytes(self):
        return self._device_pool().total_bytes()


def set_allocator(allocator=None):
    global _current_allocator
    _current_allocator = allocator


def get_allocator():
    allocator = getattr(_thread_local, "allocator", None)
    return allocator if allocator is not None else _current_allocator


def alloc(size):
    return get_allocator()(size)
