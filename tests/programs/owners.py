"""Holds, keeps and passes memory, and keeps more with each step, at lines that are marked; ends without freeing what it keeps."""
import os


def hold(n):
    return bytearray(n - 1)  # <PEAK>


class Keeper:
    def __init__(self):
        self.kept = [None] * 3000
        self.grown = [None] * 180

    def keep(self, i):
        self.kept[i] = bytearray(999)  # <LEAK>

    def grow(self, i):
        self.grown[i] = bytearray(4007)  # <GROWTH>


def pass_by():
    bytearray(1199)  # <TEMPORARY>


def step(n):
    for i in range(3):
        keeper.grow(3 * n + i)


keeper = Keeper()
for _ in range(5000):
    pass_by()
for i in range(3000):
    keeper.keep(i)
for n in range(60):
    step(n)
held = [hold(100008) for _ in range(50)]
del held
os._exit(0)
