"""Holds the shim's walk against `sys._getframe()` in all kinds of frames. usage: frames.py LIBRARY [TIMES]

Ends with `N compared`; the first difference ends it with status 1."""
import asyncio, ctypes, functools, gc, os, random, sys, threading, types

# Up to 3.11 only who holds the lock is known to be in a subinterpreter; CDLL lets go of it, PyDLL does not.
lib = (ctypes.PyDLL if __name__ == "subinterpreter" else ctypes.CDLL)(sys.argv[1])


class Row(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint32), ("index", ctypes.c_uint32), ("entry", ctypes.c_uint32), ("line", ctypes.c_uint32)]


lib.frames_walk.restype = ctypes.c_size_t
lib.frames_walk.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
lib.frames_asked.restype = ctypes.c_uint64
DEPTH, QUALIFIED, INLINED = 256, sys.version_info >= (3, 11), sys.version_info >= (3, 11)
compared = 0
lock = threading.Lock()


def walk(fresh=0):
    rows = (Row * 300)()
    n = lib.frames_walk(ctypes.addressof(rows), 300, fresh)
    return rows[:n]


def text(code, which):
    room = ctypes.create_string_buffer(5000)
    lib.frames_code(code, which, room, 5000)
    return room.value


def as_bytes(s):
    out = b""
    for c in s:
        n = ord(c)
        out += bytes([n & 0xFF]) if 0xDC80 <= n <= 0xDCFF else b"?" if 0xD800 <= n <= 0xDFFF else c.encode()
    return out


def chain(f):
    found = []
    while f is not None:
        c = f.f_code
        found.append((as_bytes(c.co_filename), as_bytes(c.co_qualname if QUALIFIED else c.co_name), c.co_firstlineno, f.f_lineno or 0))
        f = f.f_back
    return found


def told(rows):
    return [(text(r.code, 0), text(r.code, 1), lib.frames_code(r.code, 0, ctypes.create_string_buffer(5000), 5000), r.line) for r in rows]


def check(label="", fresh=0):
    global compared
    rows, want = walk(fresh), chain(sys._getframe())
    rows = rows[1:]
    cut = bool(rows) and rows[-1].code == 0
    if cut:
        assert rows[-1].index == 0, (label, "broken beyond", len(rows), len(want))
        rows = rows[:-1]
        shims = sum(r.entry for r in rows) if sys.version_info >= (3, 12) else 0
        assert DEPTH - 65 <= len(rows) + shims + 1 <= DEPTH + 1, (label, len(rows), shims)
        want = want[: len(rows)]
    got = told(rows)
    if got != want:
        print("different:", label, "fresh" if fresh else "", len(got), len(want))
        for n in range(max(len(got), len(want))):
            g, w = (x[n] if n < len(x) else None for x in (got, want))
            print("  " if g == w else "! ", g, w)
        sys.stdout.flush()
        os._exit(1)
    if not cut:
        assert rows[-1].entry == 1, label
    if not INLINED:
        assert all(r.entry == 1 for r in rows), label
    with lock:
        compared += 1
    return rows


def both(label=""):
    check(label), check(label, 1), check(
        label
    )


def plain(n=3):
    if n:
        return plain(n - 1)
    rows = check("plain")
    # Both are Python: called without a new run of the interpreter's loop from 3.11 on.
    assert rows[1].entry == (not INLINED), "an inlined call"
    both("plain")


def callbacks():
    entries = []
    def key(x):
        entries.append(check("key")[1].entry)
        return x
    sorted([3, 1, 2], key=key), list(map(key, [1, 2])), functools.reduce(lambda a, b: key(b), [1, 2, 3]), max([1], key=lambda x: both("lambda") or 1)
    assert entries[0] == 1, "entered from C"
    class Odd:
        def __getattr__(self, name): both("getattr"); return 1
        def __add__(self, other): both("add"); return 2
        def __iter__(self): both("iter"); yield 1
        def __len__(self): both("len"); return 1
        def __del__(self): both("del")
        def __hash__(self): both("hash"); return 1
        def __enter__(self): both("enter")
        def __exit__(self, *a): both("exit")
        @property
        def p(self): both("property"); return 1
        @classmethod
        def c(cls): both("classmethod")
    o = Odd()
    o.x, o + 1, list(o), len(o), {o: 1}, o.p, o.c(), functools.partial(both, "partial")()
    with o: both("with")
    del o
    # The same instruction of the same frame enters by C and without.
    def turn(): entered.append(check("turn")[1].entry)
    for entered in [[]]:
        for f in (turn, functools.partial(turn), turn, functools.partial(turn)): f()
        assert not INLINED or entered == [0, 1, 0, 1], entered


def generators():
    def inner():
        both("generator"); got = yield 1
        both("generator again"); yield got
        [both("comprehension") for _ in range(2)], {both("set") for _ in range(2)}, list(both("expression") for _ in range(2))
    def outer():
        both("outer")
        yield from inner()
        both("outer end")
    g = outer()
    for _ in g: both("between")
    h = outer(); next(h)
    def elsewhere(): h.send(2)
    elsewhere()
    try: h.throw(KeyError)
    except KeyError: both("handler")
    finally: both("finally")
    def closing():
        try: yield
        finally: both("closing")
    c = closing(); next(c); c.close()
    c = closing(); next(c); del c


def coroutines():
    async def leaf(n):
        both("coroutine"); await asyncio.sleep(0); both("coroutine again"); return n
    async def numbers():
        for i in range(3):
            both("async generator"); yield i; await asyncio.sleep(0)
    class Manager:
        async def __aenter__(self): both("aenter")
        async def __aexit__(self, *a): both("aexit")
    async def main():
        await leaf(1)
        await asyncio.gather(*[leaf(i) for i in range(5)])
        async for i in numbers(): both("async for")
        async with Manager(): both("async with")
        [both("async comprehension") async for i in numbers()]
        await asyncio.get_event_loop().run_in_executor(None, both, "executor")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main()), loop.close()


def threads():
    def run(n):
        for i in range(5): plain(n), generators()
    ts = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    [t.start() for t in ts], [t.join() for t in ts]


def recursion(limit=900):
    def down(n):
        if n % 37 == 0: check("down")
        if n % 100 == 0: check("down", 1)
        if n: down(n - 1)
        if n % 41 == 0: check("up")
    def by_c(n):
        if n % 5 == 0: check("by C")
        if n: list(map(by_c, [n - 1]))
        if n % 7 == 0: check("by C up")
    down(limit), by_c(60)


def sources():
    spaces = {"check": check, "both": both}
    exec("both('exec')\n\nboth('exec')\nclass A:\n  both('class')\n  def f(self): both('method')\nA().f()\neval('both(\"eval\")')", spaces)
    # Code objects come and go: the same address, another name or file.
    for i in range(400): exec(compile("check('reuse')", "<file %d>" % i, "exec"), spaces)
    for i in range(400):
        exec(compile("check('reuse')", "<file %d>" % (i % 90), "exec"), spaces)
        exec(compile("def f%d():\n%s check('reuse')\nf%d()" % (i, "\n" * (i % 7), i), "<f>", "exec"), spaces)
    for name in ("<\u00fcber>", "/tmp/\udcff\udc80x/\U0001f600.py", "\u5909\u6570", "\ud800", "x" * 4000):
        exec(compile("def g\u00f6():\n both('names')\ngö()\ndef \u5909\u6570(): both('names')\n\u5909\u6570()\n(lambda: both('lambda'))()", name, "exec"), spaces)
    class Meta(type):
        def __new__(m, name, bases, space): both("metaclass"); return type.__new__(m, name, bases, space)
        def __call__(cls): both("type call"); return type.__call__(cls)
    class B(metaclass=Meta):
        x = [both("in class") for _ in range(2)]
        def __init_subclass__(cls): both("subclass")
        def __init__(self): both("init")
    class C(B):
        def __init__(self): super().__init__(); both("super")
    C()
    gc.callbacks.append(lambda *a: both("gc")), gc.collect(), gc.callbacks.pop()
    sys.settrace(lambda f, *a: None), both("traced"), sys.settrace(None)
    (both(
        "lines"
    ), [
        1,
        both("lines")])


def switching():
    """Calls of all kinds one in the other, by chance."""
    chance = random.Random(1)
    def step(n):
        if n <= 0: return check("step", chance.random() < 0.2)
        for _ in range(chance.randrange(3)): chance.choice(ways)(n - 1)
        check("step")
    def generator(n):
        step(n); yield 1
        step(n)
    async def coroutine(n): step(n)
    def drive(n):
        try: coroutine(n).send(None)
        except StopIteration: pass
    def kept(n):
        g = generator(n)
        next(g); suspended.append(g)
        if len(suspended) > 5: next(suspended.pop(chance.randrange(5)), None)
    suspended = []
    ways = [step, lambda n: step(n), lambda n: list(map(step, [n])), lambda n: list(generator(n)), drive, kept, lambda n: exec("step(n)", {"step": step, "n": n}), lambda n: [step(n) for _ in [1]]]
    while compared < at_least: step(5)


def greenlets():
    try: from greenlet import greenlet
    except ImportError: return print("skipped: no greenlet")
    def one(n):
        plain(n); other.switch(); both("greenlet"); other.switch()
    def two(n=0):
        deep(3); main.switch()
    def deep(n):
        if n: return list(map(deep, [n - 1]))
        both("greenlet two"); first.switch(); both("greenlet two")
    main = greenlet.getcurrent() if hasattr(greenlet, "getcurrent") else __import__("greenlet").getcurrent()
    for n in range(20):
        first, other = greenlet(one), greenlet(two)
        first.switch(n), both("main"), other.switch() if not other.dead else None
        both("main")


def subinterpreters():
    try: import _xxsubinterpreters as sub
    except ImportError:
        try: import _interpreters as sub
        except ImportError: return print("skipped: no subinterpreters")
    source = "import sys; sys.argv = %r; sys.path = %r\nsource = open(%r).read().split('#' + ' run')[0]\n__name__ = 'subinterpreter'\nexec(compile(source, 'frames', 'exec'))\nplain(), callbacks(), generators()\n" % (sys.argv, sys.path, __file__)
    try: i = sub.create(isolated=False)
    except TypeError:
        try: i = sub.create("legacy")
        except TypeError: i = sub.create()
    # A module's own failure to load there is no matter of ours.
    try: failed = sub.run_string(i, source)
    except Exception as e: failed = e
    if failed is not None: print("subinterpreter:", str(failed)[:200])
    both("after")
    sub.destroy(i)


# run
for line in open("/proc/self/maps"):
    words = line.split()
    if words[2] == "00000000" and "libpython" in words[-1]:
        assert lib.frames_notice(words[-1].encode(), ctypes.c_uint64(1 << 20)) == -1, "nothing is there"
        assert lib.frames_notice(b"/x/libother.so", ctypes.c_uint64(int(words[0].split("-")[0], 16))) == -1, "another library"
        assert lib.frames_notice(words[-1].encode(), ctypes.c_uint64(int(words[0].split("-")[0], 16))) == 1, "the library is not recognised"
assert lib.frames_seek() == 1, "the interpreter is not recognised"
version = ctypes.create_string_buffer(32)
lib.frames_version(version)
# Of one that was loaded late only the name of its file tells.
assert version.value in (sys.version.split()[0].encode(), b"%d.%d" % sys.version_info[:2]), version.value
for case in (plain, callbacks, generators, coroutines, threads, recursion, sources, greenlets, subinterpreters):
    before = compared
    case()
    both(case.__name__)
at_least = compared + (int(sys.argv[2]) if len(sys.argv) > 2 else 3000)
switching()
print(compared, "compared")
