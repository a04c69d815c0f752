"""Makes and leaves frames of all kinds as fast as it can."""


def deep(n):
    return deep(n - 1) if n else [g for g in numbers(5)]


def numbers(n):
    for i in range(n):
        yield i


class Thing:
    def __init__(self):
        self.x = list(map(lambda q: q + 1, range(5)))

    def __add__(self, other):
        return 1


for i in range(40000):
    deep(5)
    Thing() + Thing()
    sorted([3, 1, 2], key=lambda x: -x)
    if i % 100 == 0:
        exec("def h(): return %d\nh()" % i)
print("done")
