# Numba's arrays on the device: no kernel is compiled. Says what came back.
import numpy
from numba import cuda

MIB = 1 << 20
stream = cuda.stream()
host = numpy.arange(MIB // 8, dtype=numpy.float64)
pinned = cuda.pinned_array(MIB // 4, dtype=numpy.float32)
pinned[:] = 3
one = cuda.to_device(host)
print("pageable", bool((one.copy_to_host() == host).all()))
two = cuda.to_device(pinned, stream=stream)
back = cuda.pinned_array(MIB // 4, dtype=numpy.float32)
two.copy_to_host(back, stream=stream)
stream.synchronize()
print("pinned", float(back.sum()))
three = cuda.device_array(2 * MIB, dtype=numpy.uint8)
three[: MIB].copy_to_device(one.view(numpy.uint8))
print("module", cuda.__name__)
