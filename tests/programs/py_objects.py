"""Allocates objects of known sizes, then does what its argument says. `traced N` prints what tracemalloc has of N records."""
import os
import sys

COUNT, SIZE = 1000, 7000


def plant():
    return [bytes(SIZE) for _ in range(COUNT)]  # <PLANT>


def build(n):
    rows = [{"id": i, "name": "user%d" % i, "tags": [str(i), str(2 * i)], "score": i * 0.5} for i in range(n)]
    text = repr(rows)
    index = {row["name"]: row for row in rows}
    return rows, len(text), index


def threads():
    import threading

    held = []
    all = [threading.Thread(target=lambda: held.append(bytearray(1 << 20))) for _ in range(4)]
    for t in all:
        t.start()
    for t in all:
        t.join()


def interpreters():
    try:
        import _xxsubinterpreters as inner
    except ImportError:
        import _interpreters as inner
    for _ in range(3):
        number = inner.create()
        inner.run_string(number, "kept = [str(i) for i in range(1000)]")
        inner.destroy(number)


def main(what, *more):
    if what in ("records", "traced"):
        held = build(int(more[0]))  # to the end
        if what == "traced":
            # Not `tracemalloc`, which brings in modules.
            import _tracemalloc

            print(*_tracemalloc.get_traced_memory())
            sys.stdout.flush()
        os._exit(0)
    kept = plant()
    if what == "fork":
        pid = os.fork()
        if pid == 0:
            kept.clear()
            more = plant()
            os._exit(0)
        os.waitpid(pid, 0)
    elif what == "tracemalloc":
        import tracemalloc

        tracemalloc.start()
        more = plant()
        tracemalloc.stop()
    elif what == "killed":
        os.kill(os.getpid(), 9)
    elif what == "exit":
        os._exit(0)
    elif what != "plain":
        globals()[what]()


main(*sys.argv[1:])
