"""Coroutines of many tasks, in an order that is always the same; prints how often each went on, as phases are counted.

Blocks are known to the byte: they are asked of malloc. `sleep(0)` gives way for one turn of the loop and allocates nothing there.
"""
import asyncio
import collections
import os
import sys

ran = collections.Counter()
kept = [None] * 100
UNIT = 1_000_000


def block(n):
    return bytearray(n - 1)


async def holds(turns):
    """Holds a block while it waits, and needs half of one more each time that it goes on."""
    ran["holds"] += 1
    a = block(UNIT)
    for _ in range(turns):
        await asyncio.sleep(0)
        ran["holds"] += 1
        b = block(UNIT // 2)
        del b
    return len(a)


async def keeps(i):
    """Leaves the same behind each time that it is on."""
    ran["keeps"] += 1
    kept[2 * i] = block(5000)
    await asyncio.sleep(0)
    ran["keeps"] += 1
    kept[2 * i + 1] = block(5000)


async def inner(n):
    ran["inner"] += 1
    a = block(n)
    await asyncio.sleep(0)
    ran["inner"] += 1
    return len(a)


async def outer(n):
    ran["outer"] += 1
    a = block(n)
    # Each turn of the inner one is one of the outer one as well.
    b = await inner(2 * n)
    ran["outer"] += 1
    return len(a) + b


async def gives_up(future):
    """Is cancelled while it waits, cleans up, and lets the cancellation go on."""
    ran["gives_up"] += 1
    a = block(UNIT)
    try:
        await future
    finally:
        ran["gives_up"] += 1
        a = None
        kept[50] = block(30_000)


async def goes_on(future):
    """Is cancelled while it waits, and does not mind."""
    ran["goes_on"] += 1
    a = block(UNIT)
    try:
        await future
    except asyncio.CancelledError:
        ran["goes_on"] += 1
        b = block(2 * UNIT)
        a = None
        await asyncio.sleep(0)
        ran["goes_on"] += 1
        return len(b)


async def fails(n):
    ran["fails"] += 1
    await asyncio.sleep(0)
    ran["fails"] += 1
    kept[51] = block(n)
    raise KeyError(n)


async def numbers(n):
    """An asynchronous generator: gives way to the loop and to who asks it."""
    ran["numbers"] += 1
    a = block(UNIT)
    for i in range(n):
        await asyncio.sleep(0)
        ran["numbers"] += 1
        yield i
        ran["numbers"] += 1
        a = None
        a = block(UNIT)


async def adds(n):
    ran["adds"] += 1
    total = 0
    async for i in numbers(n):
        total += i
    # It was on with each turn of the loop that the generator waited for.
    ran["adds"] += n
    return total


async def stops_early():
    ran["stops_early"] += 1
    it = numbers(10)
    await it.__anext__()
    ran["stops_early"] += 1
    await it.aclose()
    # It is told to leave where it gave its number.
    ran["numbers"] += 1


class Lock:
    async def __aenter__(self):
        ran["Lock.__aenter__"] += 1
        self.held = block(UNIT)
        await asyncio.sleep(0)
        ran["Lock.__aenter__"] += 1

    async def __aexit__(self, *what):
        ran["Lock.__aexit__"] += 1
        self.held = None


async def holds_lock():
    async with Lock():
        kept[52] = block(10_000)


async def never_ends(future):
    ran["never_ends"] += 1
    a = block(UNIT)
    try:
        await future
    finally:
        ran["never_ends"] += 1
        del a


async def group():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sibling())
        tasks.create_task(breaks())


async def sibling():
    ran["sibling"] += 1
    a = block(UNIT)
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        ran["sibling"] += 1
        a = None
        raise


async def breaks():
    ran["breaks"] += 1
    await asyncio.sleep(0)
    ran["breaks"] += 1
    raise ValueError


async def at_once(n):
    """Begins inside of who makes its task, where the loop does so."""
    ran["at_once"] += 1
    kept[53] = block(n)
    await asyncio.sleep(0)
    ran["at_once"] += 1


def solve(n):
    ran["solve"] += 1
    return len(block(n))


async def main():
    loop = asyncio.get_event_loop()
    for future in asyncio.as_completed([holds(3) for _ in range(4)]):
        assert await future == UNIT - 1
    assert await asyncio.gather(*[keeps(i) for i in range(12)]) == [None] * 12
    await asyncio.gather(outer(100_000), outer(100_000))

    for function in gives_up, goes_on:
        task = loop.create_task(function(loop.create_future()))
        await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError) or result == 2 * UNIT - 1, result
        task = result = None

    results = await asyncio.gather(fails(20_000), holds(0), return_exceptions=True)
    assert isinstance(results[0], KeyError) and results[1] == UNIT - 1
    results = None

    assert await adds(4) == 6
    await stops_early()
    await holds_lock()

    if sys.version_info >= (3, 11):
        try:
            await group()
        except BaseException as all:
            assert isinstance(all.exceptions[0], ValueError)
            all = None
    for _ in range(5):
        await loop.run_in_executor(None, solve, 50_000)
    if hasattr(asyncio, "eager_task_factory"):
        loop.set_task_factory(asyncio.eager_task_factory)
    await asyncio.gather(at_once(40_000))

    # Thrown away while it waits: it is told to leave.
    it = never_ends(loop.create_future())
    it.send(None)
    del it


if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main())
    loop.close()
    for name in sorted(ran):
        print(name, ran[name])
    sys.stdout.flush()
    # As a killed program leaves it: what is open stays open.
    os._exit(0)
