"""numpy: arrays over the allocator and over maps, views, a worker thread and results that must not change."""
import threading

import numpy

a = numpy.arange(1500000, dtype=numpy.float64).reshape(1000, 1500)
b = (a @ a.T[:, :40]).sum()
del a
results = []
threads = [threading.Thread(target=lambda: results.append(float(numpy.ones((500, 500)).dot(numpy.ones(500)).sum()))) for _ in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
numpy.lib.format.open_memmap("array.npy", mode="w+", dtype="i4", shape=(700, 700))[:] = 3
print("%.6e" % b, results, int(numpy.load("array.npy", mmap_mode="r").sum()))
