#!/usr/bin/env python3
"""An array of JAX on the processor, made by the marked line: not by a thread of XLA's, on which no line of the script is."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp

jax.config.update("jax_cpu_enable_async_dispatch", False)
line = jnp.arange(6144.0)
held = jnp.outer(line, line).block_until_ready()  # <HELD>
print("held %d, sum %.6g" % (held.nbytes, float(jax.jit(lambda a: a[1].sum())(held))))
