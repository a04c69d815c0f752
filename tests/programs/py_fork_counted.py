"""Python warns of a fork among several threads, of which it counts the kernel's: a program of one thread is told nothing."""
import os
import sys
import time
import warnings

warnings.simplefilter("always")
kept = bytearray(1 << 20)
for depth in range(3):
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0)
        os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(child, 0)
child, terminal = os.forkpty()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
time.sleep(0.1)
# After a while memory is watched again: this much is seen, also though it is given back before the end.
large = bytearray(64 << 20)
large[:: 4096] = b"x" * len(large[:: 4096])
time.sleep(0.4)
del large
print("done", file=sys.stderr)
