"""Allocates 100,000 bytes and as many as the calls of its own that it is in, each from Python and then each by way of C: `deep.py CALLS...`."""
import sys

sys.setrecursionlimit(100_000)


def down(calls, size):
    return bytearray(size) if calls == 1 else down(calls - 1, size)


def by_c(calls, size):
    return bytearray(size) if calls == 1 else next(map(by_c, [calls - 1], [size]))


for calls in map(int, sys.argv[1:]):
    kept = down(calls, 99_999 + calls), by_c(calls, 199_999 + calls)
