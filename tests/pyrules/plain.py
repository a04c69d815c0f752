"""Functions of every kind that are no generators, called in every way; prints what they see, then how often each ran."""
import collections
import dis
import functools
import io
import inspect
import marshal
import re
import sys
import threading
import traceback

ran = collections.Counter()


def none():
    ran["none"] += 1


def given(a, b=2, /, c=3, *rest, d, e=5, **more):
    ran["given"] += 1
    return a, b, c, rest, d, e, more


def cells(a, *rest, b=1):
    ran["cells"] += 1

    def inner(c):
        nonlocal a
        ran["cells.<locals>.inner"] += 1
        a += c
        return a, b, rest

    return inner


def one_line(text):
    ran["one_line"] += 1
    try: return int(text)
    except ValueError: return None


def tries(n):
    try:
        ran["tries"] += 1
        with io.StringIO() as to:
            return fails(n) if n else to.write("x")
    except ValueError as e:
        return str(e)
    finally:
        ran["tries"] += 0


def fails(n):
    ran["fails"] += 1
    raise ValueError(n)


def lazily(n):
    """The interpreter's own errors are made objects of only where somebody wants to see them."""
    ran["lazily"] += 1
    return {}[n]


def deep(n):
    ran["deep"] += 1
    return deep(n - 1) if n else [f.function for f in inspect.stack()]


def sinks(n):
    return sinks(n - 1) if n else None


def looks():
    ran["looks"] += 1
    here = sys._getframe()
    back, seen = here, []
    while back:
        seen.append((back.f_code.co_name, back.f_lineno, back.f_lasti))
        back = back.f_back
    return sorted(locals()), seen, here


class Shape:
    made = 0

    def __init__(self, n):
        ran["Shape.__init__"] += 1
        super().__init__()
        self.n = n

    @property
    def twice(self):
        ran["Shape.twice"] += 1
        return 2 * self.n

    def __getitem__(self, i):
        ran["Shape.__getitem__"] += 1
        return self.n + i

    @classmethod
    def of(cls, n):
        ran["Shape.of"] += 1
        return cls(n)

    def __del__(self):
        ran["Shape.__del__"] += 1


def arguments_go(data):
    ran["arguments_go"] += 1
    data = None
    return len(died)


class Dies:
    def __del__(self):
        died.append(self)


died = []


def raises_in(call, *arguments):
    try:
        return call(*arguments)
    except Exception:
        return traceback.format_exc().splitlines()


def shown(function):
    code, to = function.__code__, io.StringIO()
    dis.dis(function, file=to)
    return [hash(code) == hash(code.replace()), code == code.replace(), code.co_code, marshal.dumps(code, 2), list(dis.findlinestarts(code)), re.sub("0x[0-9a-f]+", "", to.getvalue())]


def once(i):
    seen = [none(), given(1, d=4), given(1, 2, 3, 4, 5, d=6, f=7), given(*[1, 2], **{"d": 8, "c": 9})]
    inner = cells(1, 2, b=3)
    seen += [inner(4), inner(5), one_line("7"), one_line("x"), tries(0), tries(1), deep(3)]
    seen += [raises_in(fails, 1), raises_in(lazily, "key"), raises_in(given), raises_in(given, 1)]
    shape = Shape.of(3)
    seen += [shape.twice, shape[1], list(map(one_line, "12")), functools.reduce(lambda a, b: Shape(a)[b], [1, 2, 3]), sorted([3, 1, 2], key=one_line)]
    names, frames, here = looks()
    seen += [names, frames, sorted(here.f_locals)]
    if sys.version_info[:2] == (3, 11):
        seen += [arguments_go(Dies()), len(died)]
    return seen


if __name__ == "__main__":
    before = [shown(f) for f in (none, given, cells, one_line, tries, Shape.__init__)]
    first = once(0)
    for i in range(1, 30):
        again = once(i)
    assert first[:20] == again[:20]
    print(first, again, sep="\n")
    after = [shown(f) for f in (none, given, cells, one_line, tries, Shape.__init__)]
    assert before == after
    print(after)
    threads = [threading.Thread(target=lambda: [none() for _ in range(1000)]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    try:
        sys.setrecursionlimit(200)
        sinks(1000)
    except RecursionError as e:
        print("too deep", len(traceback.extract_tb(e.__traceback__)), str(e)[:40])
    sys.setrecursionlimit(1000)
    print("--")
    for name in sorted(ran):
        print(name, ran[name])
