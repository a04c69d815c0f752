"""One cached function of Numba for three types, one of them twice, and one that is never cached."""
import numpy as np
from numba import njit


@njit(cache=True)
def total(values, scale):
    return values.sum() * scale


@njit
def uncached(values):
    return values.max()


for dtype in (np.float64, np.float32, np.int64, np.float64):
    print(float(total(np.ones(5, dtype), 2)), float(uncached(np.ones(5, dtype))), flush=True)
