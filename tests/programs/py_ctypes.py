"""The C library's allocator called through ctypes: exact counts in the middle of an interpreter's own."""
import ctypes

c = ctypes.CDLL(None)
c.malloc.restype = c.calloc.restype = c.realloc.restype = ctypes.c_void_p
c.malloc.argtypes = [ctypes.c_size_t]
c.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
c.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
c.free.restype = None
for _ in range(25):
    c.free(c.malloc(1100009))
blocks = [c.realloc(c.calloc(1, 1100009), 2300003) for _ in range(12)]
for block in blocks[3:]:
    c.free(block)
print("TRUTH size=1100009 allocs=37 frees=37")
print("TRUTH size=2300003 allocs=12 frees=9 peak_live=12 leaked=3 leaked_bytes=6900009")
