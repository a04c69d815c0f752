"""Real library code in a loop that keeps nothing: `py_steady.py NAME` runs 120 steps of it, `py_steady.py NAME keep` keeps 1,000 bytes of
each; without a name it lists them. Exit status 77: a package it needs is not installed."""
import importlib
import sys

STEPS = 120
WORK = {}


def work(*needs):
    def add(make):
        WORK[make.__name__] = (needs, make)
        return make
    return add


@work("json")
def json_round_trip(json):
    data = {"a": [{"b": i, "c": str(i) * 5} for i in range(300)]}
    return lambda i: json.loads(json.dumps(data))


@work("sqlite3")
def sqlite_memory(sqlite3):
    db = sqlite3.connect(":memory:")
    db.execute("create table t (a integer, b text)")

    def step(i):
        db.executemany("insert into t values (?, ?)", [(k, "x" * 50) for k in range(300)])
        assert db.execute("select count(*) from t").fetchone()[0] == 300
        db.execute("delete from t")
        db.commit()
    return step


@work("re")
def regular_expressions(re):
    text = "alpha 12 beta 345 gamma 6789 " * 200
    return lambda i: re.sub(r"(\w+) (\d+)", r"\2 \1", text)


@work("csv", "io")
def csv_rows(csv, io):
    def step(i):
        out = io.StringIO()
        csv.writer(out).writerows([[k, k * 2, "text"] for k in range(400)])
        return list(csv.reader(io.StringIO(out.getvalue())))
    return step


@work("zlib", "bz2", "lzma")
def compression(zlib, bz2, lzma):
    data = bytes(range(256)) * 100
    return lambda i: [lib.decompress(lib.compress(data)) for lib in (zlib, bz2, lzma)]


@work("xml.etree.ElementTree")
def xml_tree(xml):
    text = "<r>" + "".join("<e a='%d'>text</e>" % k for k in range(300)) + "</r>"
    return lambda i: len(xml.etree.ElementTree.fromstring(text).findall("e"))


@work("ast")
def compiling(ast):
    source = "\n".join("def f%d(a, b=%d):\n    return [a + b for _ in range(a)]" % (k, k) for k in range(40))
    return lambda i: compile(ast.parse(source), "made.py", "exec")


@work("hashlib")
def hashes(hashlib):
    return lambda i: [hashlib.new(name, b"x" * 5000).hexdigest() for name in ("md5", "sha256", "blake2b")]


@work("asyncio")
def event_loop(asyncio):
    async def child(n):
        await asyncio.sleep(0)
        return n

    async def main():
        return await asyncio.gather(*(child(n) for n in range(100)))
    return lambda i: asyncio.run(main())


@work("threading", "queue")
def threads(threading, queue):
    def step(i):
        q = queue.Queue()
        ts = [threading.Thread(target=lambda: [q.put(bytes(100)) for _ in range(50)]) for _ in range(4)]
        [t.start() for t in ts]
        [t.join() for t in ts]
        while not q.empty():
            q.get()
    return step


@work("subprocess")
def children(subprocess):
    return lambda i: subprocess.check_output(["true"]) if i % 10 == 0 else None


@work("pickle")
def pickles(pickle):
    data = [(i, str(i), {i: [i]}) for i in range(500)]
    return lambda i: pickle.loads(pickle.dumps(data))


@work("logging", "io")
def log_records(logging, io):
    def step(i):
        out = io.StringIO()
        handler = logging.StreamHandler(out)
        log = logging.getLogger("steady")
        log.propagate = False
        log.addHandler(handler)
        for k in range(100):
            log.warning("step %d of %s", k, "many")
        log.removeHandler(handler)
    return step


@work("tarfile", "io")
def archives(tarfile, io):
    def step(i):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for k in range(10):
                info = tarfile.TarInfo("f%d" % k)
                info.size = 1000
                tar.addfile(info, io.BytesIO(bytes(1000)))
        out.seek(0)
        return tarfile.open(fileobj=out).getnames()
    return step


@work("decimal", "fractions")
def exact_numbers(decimal, fractions):
    return lambda i: (sum(decimal.Decimal(k) / 7 for k in range(300)), sum(fractions.Fraction(k, 7) for k in range(300)))


@work("socket")
def sockets(socket):
    def step(i):
        a, b = socket.socketpair()
        with a, b:
            a.sendall(bytes(4000))
            return b.recv(4000, socket.MSG_WAITALL)
    return step


@work("html.parser", "urllib.parse")
def web_text(html, urllib):
    page = "<p class='a'>text &amp; more</p>" * 200

    class Parser(html.parser.HTMLParser):
        pass
    return lambda i: (Parser().feed(page), urllib.parse.urlencode({"a": page}))


@work("tempfile", "os")
def files(tempfile, os):
    def step(i):
        with tempfile.TemporaryDirectory() as d:
            for k in range(10):
                with open(os.path.join(d, str(k)), "w") as f:
                    f.write("line\n" * 200)
            return [open(os.path.join(d, n)).read() for n in os.listdir(d)]
    return step


@work("numpy")
def numpy_arrays(np):
    a = np.ones((120, 120))
    return lambda i: np.linalg.svd(a @ a.T + np.eye(120))[1].sum()


@work("scipy.optimize", "numpy")
def scipy_minimum(scipy, np):
    return lambda i: scipy.optimize.minimize(scipy.optimize.rosen, np.zeros(5)).x


@work("pandas", "numpy")
def pandas_groups(pd, np):
    return lambda i: pd.DataFrame({"k": np.arange(2000) % 7, "v": np.ones(2000)}).groupby("k").v.agg(["sum", "mean"])


@work("ase.build", "ase.calculators.emt", "ase.md.verlet", "ase.units")
def ase_dynamics(build, emt, verlet, units):
    atoms = build.bulk("Cu", cubic=True) * (2, 2, 1)
    atoms.rattle(0.05, seed=7)
    atoms.calc = emt.EMT()
    dynamics = verlet.VelocityVerlet(atoms, timestep=2 * units.fs)
    return lambda i: dynamics.run(1)


@work("pyscf.gto", "pyscf.scf")
def pyscf_water(gto, scf):
    def step(i):
        mol = gto.M(atom="O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587", basis="sto-3g", verbose=0)
        return scf.RHF(mol).kernel()
    return step


@work("jax", "jax.numpy")
def jax_step(jax, jnp):
    f = jax.jit(jax.grad(lambda x: jnp.tanh(x @ x.T).sum()))
    x = jnp.ones((60, 60))
    return lambda i: f(x).block_until_ready()


@work("pennylane")
def pennylane_circuit(qml):
    device = qml.device("default.qubit", wires=4)

    @qml.qnode(device)
    def circuit(a):
        for w in range(4):
            qml.RX(a * w, wires=w)
        qml.CNOT(wires=[0, 1])
        return qml.expval(qml.PauliZ(0))
    return lambda i: circuit(0.3)


def main(name, keeps):
    needs, make = WORK[name]
    try:
        modules = [importlib.import_module(n) for n in needs]
    except ImportError as e:
        print(e)
        sys.exit(77)
    # `import a.b` gives a, unless the function is to use the module itself.
    tops = [sys.modules[n.split(".")[0]] if n.split(".")[0] in ("xml", "html", "urllib", "scipy") else m for n, m in zip(needs, modules)]
    body = make(*tops)
    kept = []

    def step(i):
        body(i)
        if keeps:
            kept.append(bytes(1000))

    for i in range(STEPS):
        step(i)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print("\n".join(WORK))
    else:
        main(sys.argv[1], sys.argv[2:] == ["keep"])
