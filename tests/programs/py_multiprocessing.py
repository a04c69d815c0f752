"""Pools by every start method, shared memory, a worker that leaves without a goodbye."""
import multiprocessing
import os
import sys


def cube(x):
    return len(bytearray(120000)) * 0 + x**3


def leave(value):
    value.value = 9
    os._exit(13)


if __name__ == "__main__":
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, sum(pool.map(cube, range(400))), flush=True)
    context = multiprocessing.get_context("fork")
    shared = context.Value("i", 0)
    child = context.Process(target=leave, args=(shared,))
    child.start()
    child.join()
    print("shared", shared.value, "exit", child.exitcode)
    if sys.version_info >= (3, 8):
        from multiprocessing import shared_memory

        memory = shared_memory.SharedMemory(create=True, size=70000)
        memory.buf[69999] = 3
        print("shared memory", memory.buf[69999])
        memory.close()
        memory.unlink()
