#!/usr/bin/env python3
"""As latencies.c, by functions: two threads, 200 jittered times each; the nanoseconds within each function and around its call."""
import random
import threading
import time

TOOK = []
now = time.monotonic_ns


def rest(seconds, took):
    begin = now()
    time.sleep(seconds)
    took.append(now() - begin)


def work(seconds, took):
    begin = now()
    time.sleep(0.0002)
    around = now()
    rest(seconds, took)
    took.append(now() - around)
    took.append(now() - begin)


def thread(number):
    jitter = random.Random(number)
    for _ in range(200):
        took = []
        around = now()
        work(0.0005 + jitter.random() * 0.002, took)
        took.append(now() - around)
        TOOK.append(took)


other = threading.Thread(target=thread, args=(1,))
other.start()
thread(0)
other.join()
for inner_rest, outer_rest, inner_work, outer_work in TOOK:
    print("work %d %d\nrest %d %d" % (inner_work, outer_work, inner_rest, outer_rest))
