# The driver by NVIDIA's own binding: every function comes by cuGetProcAddress. Says what it has copied, in which direction, from and to which memory.
import ctypes, sys
from cuda.bindings import driver


def good(answer):
    code, *rest = answer
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return rest[0] if rest else None


MIB = 1 << 20
good(driver.cuInit(0))
context = good(driver.cuDevicePrimaryCtxRetain(good(driver.cuDeviceGet(0))))
good(driver.cuCtxSetCurrent(context))
device, pinned = good(driver.cuMemAlloc(8 * MIB)), good(driver.cuMemHostAlloc(2 * MIB, 0))
stream = good(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
data, back = bytearray(range(256)) * 400, bytearray(102400)
at = lambda b: ctypes.addressof((ctypes.c_char * len(b)).from_buffer(b))
good(driver.cuMemcpyHtoD(device, at(data), len(data)))
good(driver.cuMemcpyDtoH(at(back), device, len(back)))
assert back == data
for i in range(3):
    good(driver.cuMemcpyHtoDAsync(device, pinned, MIB, stream))
    good(driver.cuMemcpyDtoHAsync(pinned, device, 50000, stream))
good(driver.cuMemsetD8Async(device, 7, 2 * MIB, stream))
pooled = good(driver.cuMemAllocAsync(MIB, stream))
good(driver.cuMemcpyDtoDAsync(pooled, device, MIB, stream))
good(driver.cuStreamSynchronize(stream))
good(driver.cuMemFreeAsync(pooled, stream))
good(driver.cuMemFree(device))
assert driver.cuMemAlloc(1 << 50)[0] == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
address, _ = driver.cuGetProcAddress(b"cuMemAlloc", 12000, 0)[1:]
p = ctypes.c_uint64()
assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(address)(ctypes.addressof(p), 3 * MIB) == 0
good(driver.cuMemFreeHost(pinned))
good(driver.cuStreamDestroy(stream))
print("done")
