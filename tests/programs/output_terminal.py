"""Runs `memshim run --phase-on` on a terminal, as a person would, and prints what came of it.

usage: output_terminal.py MEMSHIM OUT CASE
"""
import fcntl, os, pty, re, select, signal, struct, sys, termios, time

MEMSHIM, OUT, CASE = sys.argv[1:4]
RUN = [MEMSHIM, "run", "-q", "-o", OUT, "--phase-on", "^Phase (\\w+)", "--"]


class Screen:
    """A process whose controlling terminal is ours."""

    def __init__(self, command, size=(31, 77)):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            time.sleep(0.05)
            os.execvp(command[0], command)
        self.resize(size)
        self.said = b""

    def resize(self, size):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def until(self, words, limit=10):
        end = time.time() + limit
        while words not in self.said:
            left = end - time.time()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                sys.exit(f"{words!r} did not come: {self.said!r}")
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                piece = b""
            if not piece:
                sys.exit(f"{words!r} did not come: {self.said!r}")
            self.said += piece
        before, _, self.said = self.said.partition(words)
        return before + words

    def rest(self):
        try:
            while piece := os.read(self.fd, 65536):
                self.said += piece
        except OSError:
            pass
        return self.said

    def type(self, keys):
        os.write(self.fd, keys)

    def end(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def program(text):
    return RUN + [sys.executable, "-c", "import os, signal, sys, termios, time\n" + text]


def as_without(text):
    """What the program prints on a terminal, watched; says whether that, and how it ended, is as without memshim."""
    plain, watched = [Screen(command) for command in (program(text)[len(RUN):], program(text))]
    said = watched.rest(), watched.end()
    alone = plain.rest(), plain.end()
    print("as without", said == alone, flush=True)
    return said[0], alone[0]


# Two processes and two threads of a third write to one terminal, by its stdout and its stderr.
WRITERS = """
import threading
print(os.isatty(0), os.isatty(1), os.isatty(2), os.ttyname(1) == os.ttyname(2), flush=True)
def writers(work, names):
    first, second, *threads = names
    children = []
    for name in (first, second):
        children.append(os.fork())
        if children[-1] == 0:
            work(name)
            os._exit(0)
    threads = [threading.Thread(target=work, args=(name,)) for name in threads]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert [os.waitpid(c, 0)[1] for c in children] == [0, 0]
"""

if CASE == "bytes":
    s = Screen(program("""
print(os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size(1), os.get_terminal_size(2))
os.write(1, b'Phase one\\n'); os.write(2, b'to stderr\\n'); os.write(1, b'a\\r\\tb\\x1b[1mc\\n\\x00\\xff')
"""))
    print(s.rest())
    print(s.end())
elif CASE == "turns":
    # One after the other in a ring, so that the order of all is known: lines, and lines that one begins and the next one ends.
    said, alone = as_without(WRITERS + """
ring = [os.pipe() for _ in range(4)]
os.write(ring[0][1], b't')
def work(n):
    for i in range(120):
        os.read(ring[n][0], 1)
        first = 1 + (n + i) % 2
        os.write(first, b'se t%d_%d\\t\\0\\n' % (n, i)); os.write(3 - first, b'Phase %d_%d and more\\n' % (n, i)); os.write(first, b'\\x1b[3%dmPha' % n)
        os.write(ring[(n + 1) % 4][1], b't')
writers(work, range(4))
""")
    sys.stdout.buffer.write(said)
elif CASE == "writers":
    # At once: the order of each is known, and that of all is the terminal's.
    text = WRITERS + """
def work(n):
    for i in range(150):
        os.write(1, b'Phase %s%d <%s %d>\\n' % (n, i, n, i)); os.write(2, b'Phase '); os.write(1 + i % 2, b'x%s%d <x%s %d>\\n' % (n, i, n, i))
writers(work, (b'a', b'b', b'c', b'd'))
"""
    plain = Screen(program(text)[len(RUN):])
    alone = plain.rest(), plain.end()
    watched = Screen(program(text))
    said = watched.rest(), watched.end()
    print("as many of each byte, and as it ended, as without", sorted(said[0]) == sorted(alone[0]), said[1] == alone[1], flush=True)
    sys.stdout.buffer.write(said[0])
elif CASE == "buffers":
    # What a program keeps back is what it keeps back on a terminal: unfinished lines, in Python and in C.
    said, alone = as_without("""
import ctypes
c = ctypes.CDLL(None)
print('a'); os.write(2, b'b\\n'); sys.stdout.write('c'); os.write(2, b'd\\n'); print(sys.stdout.line_buffering)
sys.stdout.flush()
c.printf(b'e\\n'); os.write(2, b'f\\n'); c.printf(b'g'); os.write(2, b'h\\n')
""")
    print(said)
elif CASE == "slow":
    # So much a terminal takes that nobody reads; with half as much again, whoever hands it on waits, and the program does not.
    ours, theirs = pty.openpty()
    os.set_blocking(theirs, False)
    room = refused = 0
    while refused < 10:
        try:
            room += os.write(theirs, b"x" * 4096)
            refused = 0
        except BlockingIOError:
            # The kernel hands on to the reader's side by a thread of its own, which makes room again.
            refused += 1
            time.sleep(0.005)
    printed, tell = os.pipe()
    os.set_inheritable(tell, True)
    s = Screen(program(f"""
after = open('after', 'w', 1)
def say(name):
  os.write(1, b'Phase %s_%d\\n' % (name, time.monotonic_ns())); print(time.monotonic_ns(), file=after)
say(b'one')
for _ in range({room * 3 // 2} // 4096): os.write(1, b'x' * 4096)
time.sleep(0.05)
os.write(1, b'\\n'); say(b'two')
time.sleep(0.03)
os.write({tell}, b'x')
"""))
    os.read(printed, 1)
    s.rest()
    print(s.end())
elif CASE == "size":
    s = Screen(program("""
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'size %d %d\\n' % tuple(os.get_terminal_size(1))))
print('ready', flush=True)
sys.stdin.readline()
"""))
    s.until(b"ready")
    s.resize((40, 123))
    s.until(b"size 123 40")
    s.type(b"\n")
    s.rest()
    print(s.end())
elif CASE == "interrupt":
    s = Screen(program("""
try:
    print('ready', flush=True)
    # Often: a signal just before a sleep begins is looked at when that ends.
    for _ in range(200): time.sleep(0.1)
except KeyboardInterrupt: print('goodbye', flush=True); sys.exit(7)
"""))
    s.until(b"ready")
    s.type(b"\x03")
    s.until(b"goodbye")
    s.rest()
    print(s.end())
elif CASE == "raw":
    # A full-screen program asks for raw keys by the descriptor it writes to.
    s = Screen(program("""
old = termios.tcgetattr(1)
new = termios.tcgetattr(1)
new[3] &= ~(termios.ECHO | termios.ICANON)
termios.tcsetattr(1, termios.TCSANOW, new)
print('ready', flush=True)
print('key', os.read(0, 1), flush=True)
termios.tcsetattr(1, termios.TCSANOW, old)
print('restored', flush=True)
time.sleep(0.2)
"""))
    before = termios.tcgetattr(s.fd)
    s.until(b"ready")
    print("echo", bool(termios.tcgetattr(s.fd)[3] & termios.ECHO))
    s.type(b"x")
    print(s.until(b"key b'x'").split(b"\r\n")[-1])
    s.until(b"restored")
    s.rest()
    print("as before", termios.tcgetattr(s.fd)[:4] == before[:4])
    print(s.end())
elif CASE == "jobs":
    s = Screen(["bash", "--norc", "--noprofile", "-i"])
    s.type(b"PS1='$ '\n")
    run = " ".join(RUN).replace("^Phase (\\w+)", "'^Phase (\\w+)'")
    s.type(f"{run} sh -c 'echo rea''dy; sleep 30; echo over'\n".encode())
    s.until(b"ready\r\n")
    # A shell that is just starting a program by vfork does not stop, here as anywhere.
    time.sleep(0.3)
    s.type(b"\x1a")
    s.until(b"Stopped")
    s.type(b"jobs\n")
    s.until(b"Stopped")
    s.type(b"fg\n")
    s.until(b"sleep 30")
    time.sleep(0.3)
    s.type(b"\x03")
    s.type(b"echo code $?\n")
    print(s.until(b"code 130"). endswith(b"code 130"))
    s.type(b"exit\n")
    s.rest()
    print(s.end())
else:
    sys.exit("no such case")
