"""One function for three shapes, one of them twice; prints the shapes in the order of its compilations."""
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def three_shapes(x, scale):
    return jnp.sin(x) * scale


@jax.jit
def once(x):
    return x + 1


for n in (3, 5, 7, 5):
    three_shapes(np.ones((n, 2), np.float32), np.float32(2)).block_until_ready()
once(np.int32(3))
print("done", flush=True)
