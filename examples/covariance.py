#!/usr/bin/env python3
"""A small job as many are: it reads, it builds a dense matrix, it works on it, it writes; its peak is in the middle.

With numpy it is a covariance of simulated samples; without numpy the same on lists, smaller. Usage: covariance.py [SIZE]
"""
import sys

try:
    import numpy
except ImportError:
    numpy = None


def samples(size):
    if numpy is not None:
        return numpy.random.default_rng(7).normal(size=(size, size // 2))
    state, rows = 7, []
    for _ in range(size):
        row = []
        for _ in range(size // 2):
            state = (state * 1103515245 + 12345) % 2147483648
            row.append(state / 1073741824.0 - 1.0)
        rows.append(row)
    return rows


def covariance(rows):
    if numpy is not None:
        centred = rows - rows.mean(axis=1, keepdims=True)
        return centred @ centred.T / (rows.shape[1] - 1)
    centred = []
    for row in rows:
        mean = sum(row) / len(row)
        centred.append([x - mean for x in row])
    return [[sum(map(float.__mul__, a, b)) / (len(a) - 1) for b in centred] for a in centred]


def smoothed(matrix, rounds):
    """Makes a temporary of the matrix's size each round: what a peak is made of."""
    for _ in range(rounds):
        if numpy is not None:
            matrix = (matrix + matrix.T) * 0.5
        else:
            matrix = [[(matrix[i][j] + matrix[j][i]) * 0.5 for j in range(len(matrix))] for i in range(len(matrix))]
    return matrix


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else (2000 if numpy is not None else 160)
    rows = samples(size)
    matrix = smoothed(covariance(rows), 5)
    trace = float(numpy.trace(matrix)) if numpy is not None else sum(matrix[i][i] for i in range(len(matrix)))
    print("size %d, trace %.6f (%s)" % (size, trace, "numpy" if numpy is not None else "lists"))


if __name__ == "__main__":
    main()
