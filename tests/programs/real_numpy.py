#!/usr/bin/env python3
"""The sum of two arrays of NumPy, made by the marked line."""
import numpy as np

ones = np.ones(2_000_000)
held = np.add(ones, ones)  # <HELD>
print("held %d, sum %.6g" % (held.nbytes, held.sum()))
