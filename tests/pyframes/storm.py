"""Allocates in threads, coroutines, destructors, a fork, deep recursion, and in daemon threads without the lock while the interpreter ends."""
import asyncio, gc, hashlib, os, re, sys, threading, time, zlib


def f(n):
    return [str(i) * 200 for i in range(n)]


def run():
    for i in range(20):
        f(50)
        re.compile("a%d(b|c)*" % i)
        exec("def g():\n return [0]*%d\ng()" % (i * 100))


ts = [threading.Thread(target=run) for _ in range(8)]
[t.start() for t in ts]


async def a():
    await asyncio.sleep(0)
    return bytearray(5000)


async def m():
    await asyncio.gather(*[a() for _ in range(50)])


asyncio.run(m())
[t.join() for t in ts]


class D:
    def __del__(self):
        bytearray(10000)
        f(10)


keep = D()


def daemon():
    data = os.urandom(200000)
    while True:
        zlib.compress(data, 1)
        hashlib.sha256(data).digest()


for _ in range(4):
    threading.Thread(target=daemon, daemon=True).start()
if os.fork() == 0:
    f(100)
    sys.exit(0)
assert os.wait()[1] == 0
gc.collect()
sys.setrecursionlimit(5000)


def deep(n):
    return deep(n - 1) if n else f(10)


deep(2000)
time.sleep(0.05)
print("done")
