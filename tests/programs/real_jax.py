#!/usr/bin/env python3
"""An array of JAX on the processor, made by the marked line."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp

line = jnp.arange(6144.0)
held = jnp.outer(line, line).block_until_ready()  # <HELD>
print("held %d, sum %.6g" % (held.nbytes, float(jax.jit(lambda a: a[1].sum())(held))))
