"""Holds, keeps and passes memory at lines that are marked; ends without freeing what it keeps."""
import os


def hold(n):
    return bytearray(n - 1)  # <PEAK>


class Keeper:
    def __init__(self):
        self.kept = [None] * 3000

    def keep(self, i):
        self.kept[i] = bytearray(999)  # <LEAK>


def pass_by():
    bytearray(4999)  # <TEMPORARY>


keeper = Keeper()
for _ in range(1000):
    pass_by()
for i in range(3000):
    keeper.keep(i)
held = [hold(100008) for _ in range(50)]
del held
os._exit(0)
