"""Interpreters inside, in four threads at once, each with a lock of its own."""
import threading

try:
    import _interpreters as inner
except ImportError:
    import _xxsubinterpreters as inner
source = """
def f(n):
    return [str(i) * 200 for i in range(n)] if n < 5 else f(n - 1)
for k in range(50):
    f(20)
    exec("f(3)")
list(map(f, range(9)))
"""


def run():
    for _ in range(3):
        i = inner.create()
        inner.run_string(i, source)
        inner.destroy(i)


ts = [threading.Thread(target=run) for _ in range(4)]
[t.start() for t in ts]
[t.join() for t in ts]
print("done")
