# For `scripts/gpu-check`: a product of JAX. Says what came out.
import jax, jax.numpy as np
x = jax.device_put(np.ones((1024, 1024)))
print('EXPECT jax', float((x @ x).sum()), jax.__version__, jax.devices()[0].platform)
