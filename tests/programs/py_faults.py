"""faulthandler, interval timers, wakeup descriptors and exit handlers; a child that dies of SIGSEGV; an exit code of its own."""
import atexit
import signal
import socket
import subprocess
import sys

ticks = 0


def tick(number, frame):
    global ticks
    ticks += 1
    bytearray(7000)


ours, theirs = socket.socketpair()
theirs.setblocking(False)
if sys.version_info >= (3, 7):
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
while ticks < 60:
    [bytes(900) for _ in range(400)]
signal.setitimer(signal.ITIMER_REAL, 0)
signal.set_wakeup_fd(-1)
print("woken", len(ours.recv(65536)) >= 30)
child = subprocess.run([sys.executable, "-S", "-X", "faulthandler", "-c", "import ctypes; ctypes.string_at(16)"], stderr=subprocess.PIPE)
print("child", child.returncode, "reported", b"Segmentation fault" in child.stderr, flush=True)
atexit.register(print, "last words")
atexit.register(lambda: [bytearray(11000) for _ in range(50)])
sys.exit(19)
