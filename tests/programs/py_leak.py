"""A thousand steps that keep a kilobyte each, beside a cache that fills while warming up."""

kept = []
cache = {}


def leak():
    kept.append(bytearray(1023))


def remember(i):
    cache[i % 50] = cache.get(i % 50) or bytearray(10_000)


def step(i):
    remember(i)
    leak()
    return len(bytearray(5000))


for i in range(1000):
    step(i)
