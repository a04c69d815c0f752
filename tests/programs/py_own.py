"""Loads many modules, compiles and runs much Python, with THREADS threads; then says what of its memory is of which kind: py_own.py FILE THREADS"""
import asyncio, ast, csv, decimal, email.mime.text, glob, http.client, json, os, sys, tarfile, threading, unittest, xml.dom.minidom

trees = [ast.parse(open(f, encoding="utf-8").read()) for f in sorted(glob.glob(os.path.dirname(os.__file__) + "/a*.py"))[:10]]
threads = [threading.Thread(target=lambda: [bytearray(1000) for _ in range(1000)]) for _ in range(int(sys.argv[2]))]
for t in threads:
    t.start()
for t in threads:
    t.join()

kinds = {"anonymous": 0, "library": 0, "spool": 0}
of = ""
for line in open("/proc/self/smaps"):
    words = line.split()
    if not words[0].endswith(":"):
        of = words[5] if len(words) > 5 else ""
    elif words[0] == "Anonymous:":
        kinds["anonymous"] += int(words[1]) * 1024
    elif words[0] == "Rss:" and of.endswith("libmemshim.so"):
        kinds["library"] += int(words[1]) * 1024
    elif words[0] == "Rss:" and of.endswith(".spool"):
        kinds["spool"] += int(words[1]) * 1024
json.dump(kinds, open(sys.argv[1], "w"))
