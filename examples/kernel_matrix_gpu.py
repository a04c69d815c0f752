#!/usr/bin/env python3
"""A kernel matrix |<a|b>|^2 of two sets of states, in tiles: on a GPU with CuPy or PyTorch where there is one, else with NumPy.

States go to the device once, each tile comes back; on a GPU the tiles take turns on two streams. Each stage is a function and prints
`phase NAME`, each tile `step N`. Usage: kernel_matrix_gpu.py [STATES] [QUBITS] [TILE]
"""
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("kernel_matrix_gpu.py needs NumPy: pip install numpy (and CuPy or PyTorch for a GPU)")


class OnNumPy:
    name = "NumPy, no GPU"

    def put(self, a):
        return a

    def tile(self, n, a, b):
        return np.abs(a @ b.conj().T) ** 2

    def get(self, tile, out):
        out[...] = tile


class OnCuPy:
    def __init__(self):
        import cupy

        self.cp = cupy
        self.name = "CuPy on %s" % cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

    def put(self, a):
        return self.cp.asarray(a)

    def tile(self, n, a, b):
        with self.streams[n % 2]:
            return self.cp.abs(a @ b.conj().T) ** 2, self.streams[n % 2]

    def get(self, tile, out):
        values, stream = tile
        out[...] = values.get(stream=stream)
        stream.synchronize()


class OnTorch:
    def __init__(self):
        import torch

        self.torch = torch
        if not torch.cuda.is_available():
            raise ImportError("no GPU")
        self.name = "PyTorch on %s" % torch.cuda.get_device_name(0)
        self.streams = [torch.cuda.Stream() for _ in range(2)]

    def put(self, a):
        on_device = self.torch.from_numpy(a).cuda()
        self.torch.cuda.synchronize()
        return on_device

    def tile(self, n, a, b):
        with self.torch.cuda.stream(self.streams[n % 2]):
            return (a @ b.conj().T).abs() ** 2, self.streams[n % 2]

    def get(self, tile, out):
        values, stream = tile
        with self.torch.cuda.stream(stream):
            out[...] = values.cpu().numpy()


def backend():
    for kind in (OnCuPy, OnTorch):
        try:
            return kind()
        except Exception:  # not installed, or no GPU for it
            continue
    return OnNumPy()


def states(count, qubits, seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, 2**qubits)) + 1j * rng.normal(size=(count, 2**qubits))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    return a


def prepare_states(count, qubits):
    print("phase prepare_states", flush=True)
    return states(count, qubits, 1), states(count, qubits, 2)


def upload(on, a, b):
    print("phase upload", flush=True)
    return on.put(a), on.put(b)


def kernel_tiles(on, a, b, count, tile):
    print("phase kernel_tiles", flush=True)
    kernel = np.empty((count, count))
    n = 0
    for i in range(0, count, tile):
        for j in range(0, count, tile):
            print("step %d" % n, flush=True)
            on.get(on.tile(n, a[i : i + tile], b[j : j + tile]), kernel[i : i + tile, j : j + tile])
            n += 1
    return kernel


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    qubits = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    tile = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    on = backend()
    print(on.name)
    a, b = prepare_states(count, qubits)
    kernel = kernel_tiles(on, *upload(on, a, b), count, tile)
    print("phase end", flush=True)
    print("%d states of %d qubits: mean overlap %.9f" % (count, qubits, kernel.mean()))


if __name__ == "__main__":
    main()
