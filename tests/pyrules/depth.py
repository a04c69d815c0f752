"""Goes as deep as an interpreter can whose calls need no stack, on a large stack and on a small one."""
import sys
import threading


def rec(n):
    return rec(n - 1) if n else 0


def solve(n):
    return n


sys.setrecursionlimit(10**6)
deepest = 100_000 if sys.version_info >= (3, 11) else 1_000
print(rec(deepest))
for i in range(5):
    solve(i)


def thread():
    rec(deepest // 10)
    solve(1)


threading.stack_size(256 * 1024)
for _ in range(2):
    t = threading.Thread(target=thread)
    t.start()
    t.join()
