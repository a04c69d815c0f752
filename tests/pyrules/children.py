"""Forks inside a function, and starts processes in two ways; each runs functions of its own."""
import multiprocessing
import os


def solve(n):
    return [n]


def forks():
    pid = os.fork()
    if pid == 0:
        solve(1)
        return True
    os.waitpid(pid, 0)
    return False


def work(n):
    for i in range(n):
        solve(i)


if __name__ == "__main__":
    if forks():
        os._exit(0)
    for way in "fork", "spawn":
        p = multiprocessing.get_context(way).Process(target=work, args=(3,))
        p.start()
        p.join()
        assert p.exitcode == 0
