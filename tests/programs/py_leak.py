"""A thousand steps that keep a kilobyte each, beside a cache that fills while warming up; `small`: as sixteen small objects, `none`: that keep nothing."""

import sys

kept = []
cache = {}


def leak():
    if "small" in sys.argv:
        # A pair takes 64 bytes with what the collector keeps before it, up to 3.7 72 or more.
        kept.extend((i, leak) for i in range(16))
    elif "none" not in sys.argv:
        kept.append(bytearray(1023))


def remember(i):
    cache[i % 50] = cache.get(i % 50) or bytearray(10_000)


def step(i):
    remember(i)
    leak()
    return len(bytearray(5000))


for i in range(1000):
    step(i)
