"""Takes 60 MiB, gives them back, starts a process that takes 30; prints what the kernel says was its most."""
import subprocess
import sys
import time

time.sleep(0.4)
block = bytearray(60 << 20)
block[::4096] = b"x" * (60 << 8)
time.sleep(0.4)
del block
subprocess.run([sys.executable, "-c", "import time\nb = bytearray(30 << 20)\nb[::4096] = b'x' * (30 << 8)\ntime.sleep(0.5)"], check=True)
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) * 1024, flush=True)
time.sleep(0.3)
