"""A daemon closes every descriptor, logs to the lowest one and rotates its log: not a byte in it may be another's."""
import os
import time

read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 1024)
    log = os.open("service.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for number in range(40):
        os.write(1, b"entry %d\n" % number)
        [bytearray(700) for _ in range(3000)]
    os.rename("service.log", "service.log.1")
    os._exit(0)
os.close(write)
os.wait()
os.read(read, 1)
for _ in range(500):
    if os.path.exists("service.log.1"):
        break
    time.sleep(0.05)
with open("service.log.1") as log:
    print("clean", log.read() == "".join("entry %d\n" % number for number in range(40)))
