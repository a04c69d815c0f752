"""What functions leave behind, in bytes that they ask malloc for; prints it by name."""
kept = []


def block(n):
    return bytearray(n - 1)


def stage(n):
    a, b = block(n), block(2 * n)
    kept.append(block(n // 2))
    both = [a, b]
    return len(both)


def gives(n):
    a = block(n)
    return a


class Noisy:
    def __del__(self):
        inner()


def inner():
    a = block(100_000)
    return len(a)


def noisy():
    first = Noisy()
    a = block(300_000)
    return first is a


def numbers(n):
    a = block(n)
    yield len(a)
    b = block(n)
    return len(b)


async def waits(n):
    a = block(n)
    return len(a)


def raises(n):
    a = block(n)
    raise ValueError(len(a))


for _ in range(3):
    stage(1_000_000)
given = gives(2_000_000)
del given
noisy()
for _ in numbers(500_000):
    pass
try:
    waits(700_000).send(None)
except StopIteration:
    pass
try:
    raises(400_000)
except ValueError as e:
    assert e.__traceback__
