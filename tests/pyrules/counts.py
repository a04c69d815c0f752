"""Functions of every kind; prints how often each ran on and was left, as phases are counted."""
import asyncio
import collections
import os
import sys
import threading

ran = collections.Counter()


def solve(n):
    ran["solve"] += 1
    return [n]


class SCF:
    def kernel(self, n):
        ran["SCF.kernel"] += 1
        return solve(n)

    class Inner:
        @staticmethod
        def deep(n):
            ran["SCF.Inner.deep"] += 1

            def nested():
                ran["SCF.Inner.deep.<locals>.nested"] += 1
                return [m for m in range(n)]

            return nested()


def numbers(n):
    ran["numbers"] += 1
    for i in range(n):
        yield i
        ran["numbers"] += 1


def catches():
    ran["catches"] += 1
    while True:
        try:
            yield 1
            ran["catches"] += 1
        except ValueError:
            ran["catches"] += 1
            yield 2
            ran["catches"] += 1


def delegates():
    ran["delegates"] += 1
    yield from catches()


def fails():
    ran["fails"] += 1
    raise ValueError("no")


def recursive(n):
    ran["recursive"] += 1
    return recursive(n - 1) if n else 0


async def leaf(n):
    ran["leaf"] += 1
    for _ in range(n):
        await asyncio.sleep(0)
        ran["leaf"] += 1


async def work(n):
    ran["work"] += 1
    await leaf(n)
    ran["work"] += n


def never():
    return 0


def main():
    for i in range(3):
        solve(i)
    SCF().kernel(1)
    SCF.Inner.deep(2)
    assert list(numbers(4)) == [0, 1, 2, 3]
    for _ in range(2):
        try:
            fails()
        except ValueError:
            pass
    recursive(5)
    it = delegates()
    next(it)
    assert it.throw(ValueError) == 2 and next(it) == 1
    it.close()
    # It went on twice, and both were told to leave.
    ran["delegates"] += 2
    ran["catches"] += 1
    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.wait([loop.create_task(work(2)), loop.create_task(work(3))]))
    loop.close()
    threads = [threading.Thread(target=lambda: [solve(i) for i in range(20)]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]


if __name__ == "__main__":
    main()
    for name in sorted(ran):
        print(name, ran[name])
    sys.stdout.flush()
    # As a killed program leaves it: what is open stays open.
    os._exit(0)
