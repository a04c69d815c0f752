#!/usr/bin/env python3
"""Frames of pandas put together: what is held is one array, made by the marked line."""
import numpy as np
import pandas as pd

frame = pd.DataFrame(np.arange(400_000.0).reshape(-1, 8), columns=list("abcdefgh"))
held = pd.concat([frame] * 25, ignore_index=True)  # <HELD>
print("held %d, sum %.6g" % (held.to_numpy().nbytes, held["a"].sum()))
