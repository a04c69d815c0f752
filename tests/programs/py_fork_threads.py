"""fork while other threads are deep in native code that allocates; the children exec, leave at once, or go on."""
import hashlib
import os
import threading
import warnings
import zlib

warnings.simplefilter("ignore")
running = True


def work():
    data = os.urandom(150000)
    while running:
        hashlib.sha256(zlib.decompress(zlib.compress(data, 1))).digest()


threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
ends = {}
for turn in range(45):
    child = os.fork()
    if not child:
        if turn % 3 == 0:
            os.execv("/bin/true", ["true"])
        if turn % 3 == 1:
            os._exit(3)
        [bytearray(1500) for _ in range(1500)]
        os._exit(4)
    status = os.waitpid(child, 0)[1]
    end = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    ends[end] = ends.get(end, 0) + 1
running = False
for thread in threads:
    thread.join()
print(sorted(ends.items()))
