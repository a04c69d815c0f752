# The driver by ctypes, as Python programs that have no binding do it.
import ctypes, os, sys

cuda = ctypes.CDLL(os.environ["PROGRAM_DIR"] + "/libcuda.so.1")
say = lambda *words: print(*words, flush=True)
say("init", cuda.cuInit(0))
context, p = ctypes.c_void_p(), ctypes.c_uint64()
say("context", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context))
say("alloc", cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(6 << 20)))
data = bytearray(range(256)) * 4096
buffer = (ctypes.c_char * len(data)).from_buffer(data)
say("copy", cuda.cuMemcpyHtoD_v2(p, buffer, ctypes.c_size_t(len(data))))
back = ctypes.create_string_buffer(len(data))
say("back", cuda.cuMemcpyDtoH_v2(back, p, ctypes.c_size_t(len(data))), back.raw == bytes(data))
say("free", cuda.cuMemFree_v2(p), cuda.cuMemFree_v2(ctypes.c_uint64(99)))
say("missing", hasattr(cuda, "cuNothing"))
say("self", hasattr(ctypes.CDLL(None), "cuMemAlloc_v2"))
