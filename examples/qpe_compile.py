#!/usr/bin/env python3
"""Quantum phase estimation of H2: PySCF gives the integrals, PennyLane the circuit, Catalyst compiles it, then it runs many times.

Three phases, each a function: hamiltonian_build, circuit_compile, circuit_execute; each prints `phase NAME`. Compilation needs far more than what
it leaves, and part of it in other processes. Without Catalyst the circuit is only built, and run by PennyLane's own simulator.
Usage: qpe_compile.py [ESTIMATION_WIRES] [TROTTER_STEPS] [CALLS]
"""
import sys

try:
    import numpy as np
    import pennylane as qml
    from pyscf import ao2mo, gto, scf
except ImportError as e:
    sys.exit("qpe_compile.py needs PennyLane and PySCF: pip install pennylane pyscf (%s)" % e)
try:
    import catalyst
except ImportError:
    catalyst = None


def hamiltonian_build():
    """Integrals by PySCF in the basis of its orbitals, then qubit operators by PennyLane."""
    print("phase hamiltonian_build", flush=True)
    molecule = gto.M(atom="H 0 0 0; H 0 0 0.74", basis="sto-3g", verbose=0)
    field = scf.RHF(molecule).run()
    one = field.mo_coeff.T @ field.get_hcore() @ field.mo_coeff
    two = ao2mo.restore(1, ao2mo.kernel(molecule, field.mo_coeff), molecule.nao)
    two = np.swapaxes(two, 1, 3)  # from chemists' order to physicists'
    core = np.array([molecule.energy_nuc()])
    hamiltonian = qml.jordan_wigner(qml.qchem.fermionic_observable(core, one, two))
    coeffs, ops = hamiltonian.terms()
    return np.real(np.array(coeffs)), ops, float(field.e_tot)


def circuit(coeffs, ops, estimation_wires, trotter_steps):
    system = list(range(4))
    estimation = list(range(4, 4 + estimation_wires))
    name = "lightning.qubit" if catalyst else "default.qubit"
    device = qml.device(name, wires=4 + estimation_wires)

    def phase_estimation(time):
        for wire in (0, 1):  # Hartree-Fock: the two lowest spin orbitals
            qml.PauliX(wires=wire)
        for wire in estimation:
            qml.Hadamard(wires=wire)
        # The constant term acts on no wire: its evolution is a phase.
        constant = sum(c for c, op in zip(coeffs, ops) if not op.wires)
        evolution = qml.dot(*zip(*((c, op) for c, op in zip(coeffs, ops) if op.wires)))
        for k, wire in enumerate(estimation):
            steps = trotter_steps * 2 ** (estimation_wires - 1 - k)
            duration = time * 2 ** (estimation_wires - 1 - k)
            qml.ctrl(qml.TrotterProduct(evolution, -duration, n=steps, order=2), control=wire)
            qml.PhaseShift(-constant * duration, wires=wire)
        qml.adjoint(qml.QFT)(wires=estimation)
        return qml.probs(wires=estimation)

    assert all(set(op.wires) <= set(system) for op in ops)
    return qml.QNode(phase_estimation, device)


def circuit_compile(coeffs, ops, estimation_wires, trotter_steps):
    print("phase circuit_compile", flush=True)
    node = circuit(coeffs, ops, estimation_wires, trotter_steps)
    if catalyst:
        node = catalyst.qjit(node)
        node(0.5)  # the first call compiles
    else:
        print("without Catalyst: built, not compiled (pip install pennylane-catalyst)", flush=True)
    return node


def circuit_execute(node, calls):
    print("phase circuit_execute", flush=True)
    for n in range(calls):
        print("step %d" % n, flush=True)
        probabilities = node(0.5)
    return np.asarray(probabilities)


def main():
    estimation_wires = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    trotter_steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    calls = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    coeffs, ops, energy = hamiltonian_build()
    node = circuit_compile(coeffs, ops, estimation_wires, trotter_steps)
    probabilities = circuit_execute(node, calls)
    print("phase end", flush=True)
    print("Hartree-Fock %.6f Ha, %d terms; most likely phase %d of %d, sum %.6f" % (energy, len(ops), probabilities.argmax(), len(probabilities), probabilities.sum()))


if __name__ == "__main__":
    main()
