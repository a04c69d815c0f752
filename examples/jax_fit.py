#!/usr/bin/env python3
"""Least squares with JAX: residuals, their Jacobian, Gauss-Newton steps; and one recompilation, by data of another length.

The first fit compiles, the second runs what is compiled, the third has 600 points instead of 500 and compiles anew: the mistake that is easily
made and hard to see. Each stage prints `phase NAME`. With JAX_LOG_COMPILES=1 JAX says itself what it compiles. Usage: jax_fit.py [STEPS]
"""
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError:
    sys.exit("jax_fit.py needs JAX: pip install jax")


def model(params, t):
    height, rate, floor = params
    return floor + height * jnp.exp(-rate * t)


def residuals(params, t, y):
    return model(params, t) - y


@jax.jit
def gauss_newton_step(params, t, y):
    r = residuals(params, t, y)
    jacobian = jax.jacfwd(residuals)(params, t, y)
    return params - jnp.linalg.solve(jacobian.T @ jacobian + 1e-6 * jnp.eye(3), jacobian.T @ r), jnp.sum(r * r)


def data(points):
    t = np.linspace(0.0, 4.0, points, dtype=np.float32)
    noise = np.random.default_rng(points).normal(scale=0.01, size=points).astype(np.float32)
    return jnp.asarray(t), jnp.asarray(2.0 * np.exp(-1.3 * t) + 0.5 + noise)


def fit(name, points, steps):
    print("phase %s" % name, flush=True)
    t, y = data(points)
    params = jnp.array([1.0, 1.0, 0.0], dtype=jnp.float32)
    for _ in range(steps):
        params, cost = gauss_newton_step(params, t, y)
    print("%d points: height %.2f, rate %.2f, floor %.2f, cost %.3f" % (points, *params, cost), flush=True)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    fit("first_fit", 500, steps)
    fit("second_fit", 500, steps)
    fit("recompiled_fit", 600, steps)
    print("phase end", flush=True)
    print("compiled %d times" % gauss_newton_step._cache_size(), flush=True)


if __name__ == "__main__":
    main()
