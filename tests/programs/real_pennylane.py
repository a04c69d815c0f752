#!/usr/bin/env python3
"""A Hamiltonian of PennyLane as a dense matrix, made by the marked line, and a circuit of three of its wires."""
import pennylane as qml

WIRES = 11
terms = [qml.Z(i) @ qml.Z(i + 1) for i in range(WIRES - 1)] + [qml.X(i) for i in range(WIRES)]
held = qml.matrix(qml.dot([0.5] * len(terms), terms), wire_order=range(WIRES))  # <HELD>


@qml.qnode(qml.device("default.qubit", wires=3))
def circuit(angle):
    qml.RX(angle, wires=0)
    qml.CNOT(wires=[0, 1])
    return qml.expval(qml.Z(1))


print("held %d, expected %.6f" % (held.nbytes, circuit(0.5)))
