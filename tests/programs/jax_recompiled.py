"""A function that takes a while to compile, called with arrays of the lengths that are given."""
import sys

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def unrolled(x):
    for i in range(40):
        x = jnp.sin(x) * (i + 1) + x @ x
    return x


for n in sys.argv[1:]:
    unrolled(np.ones(int(n), np.float32)).block_until_ready()
