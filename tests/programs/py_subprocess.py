"""subprocess in its forms: which descriptors a child sees, environments, shells, groups, a time limit, pipes kept open."""
import os
import subprocess
import sys

seen = subprocess.run(["sh", "-c", "for f in /proc/$$/fd/*; do n=${f##*/}; [ $n -lt 10 ] && printf '%s ' $n; done; true"], stdout=subprocess.PIPE)
print("descriptors", seen.stdout.decode())
print("shell", subprocess.call("exit 29", shell=True))
echoed = subprocess.run(["cat"], input=b"line\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=os.setpgrp)
print("echo", echoed.stdout, echoed.stderr)
try:
    subprocess.run(["sleep", "60"], timeout=0.2, start_new_session=True)
except subprocess.TimeoutExpired:
    print("timed out")
read, write = os.pipe()
subprocess.Popen(["sh", "-c", "printf kept >&%d" % write], pass_fds=[write]).wait()
os.close(write)
print("pipe", os.read(read, 100))
print("empty environment", subprocess.call(["/bin/true"], env={}))
python = subprocess.run([sys.executable, "-S", "-c", "import sys; sys.exit(len(bytearray(3000000)) % 251)"])
print("python", python.returncode)
