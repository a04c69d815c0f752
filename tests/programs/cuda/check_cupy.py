# For `scripts/gpu-check`: CuPy's pool, streams, copies, a matrix in tiles. Says what it knows by itself.
import cupy, cupyx, numpy
pool = cupy.get_default_memory_pool()
a = cupy.asarray(numpy.ones(1 << 22))
b = a * 2
for _ in range(200):
    b += 0
total = float(b.sum())
# Timed the way back: on the way there CuPy copies through pinned memory of its own, so that not all is known here.
page = cupyx.empty_pinned(1 << 23, dtype=numpy.float64)
c = cupy.ones(1 << 23)
stream, ms = cupy.cuda.Stream(non_blocking=True), 0.0
cupy.cuda.Device().synchronize()
for _ in range(10):
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    c.get(stream=stream, out=page)
    end.record(stream)
    end.synchronize()
    ms += cupy.cuda.get_elapsed_time(begin, end)
assert (page == 1).all()
print('EXPECT copy D2H pinned', 10, 10 * page.nbytes, ms)
# A matrix in tiles, as a budgeted job works through one that is larger than the device.
tiles, side = 4, 1024
sums, rows = 0.0, numpy.ones((tiles * side, side))
streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
for i in range(tiles):
    with streams[i % 2]:
        t = cupy.asarray(rows[i * side : (i + 1) * side])
        sums += float((t @ t.T).sum())
        del t
print('EXPECT version', 'cupy', cupy.__version__, 'CUDA', cupy.cuda.runtime.runtimeGetVersion())
print('EXPECT cupy', pool.total_bytes(), (8 << 22) + rows.nbytes, total + sums)
