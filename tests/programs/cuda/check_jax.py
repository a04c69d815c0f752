# For `scripts/gpu-check`: a product of JAX, a hundred times. Says what came out, and what JAX's own allocator had at most.
import sys, time, jax, jax.numpy as np
device = jax.devices()[0]
if device.platform == 'cpu':
    sys.exit('JAX sees no GPU here')
x = jax.device_put(np.ones((1024, 1024)))
step = jax.jit(lambda a: a @ x / 1024)
step(x).block_until_ready()
ms = []
for _ in range(5):
    begun, y = time.perf_counter(), x
    for _ in range(20):
        y = step(y)
    y.block_until_ready()
    ms.append((time.perf_counter() - begun) * 50)
print('EXPECT version', 'jax', jax.__version__)
print('EXPECT step', min(ms))
print('EXPECT jax', device.memory_stats()['peak_bytes_in_use'], float(y.sum()))
