#!/usr/bin/env python3
"""Molecular dynamics of a copper crystal with ASE: many steps of one kind, each to be as quick as the last and to leave nothing behind.

Each step prints `step N`, each stage `phase NAME`. Usage: md_steps.py [STEPS] [CELLS] [leak]
With `leak` a list keeps every step's forces: what the verdict on growth a step is for.
"""
import sys

try:
    import ase.build
    import ase.calculators.emt
    import ase.md.verlet
    import ase.units
except ImportError:
    sys.exit("md_steps.py needs ASE: pip install ase")

import numpy as np

KEPT = []


def build(cells):
    print("phase build", flush=True)
    atoms = ase.build.bulk("Cu", cubic=True).repeat((cells, cells, cells))
    atoms.calc = ase.calculators.emt.EMT()
    spread = np.sqrt(atoms.get_masses() * ase.units.kB * 300)[:, None]
    atoms.set_momenta(spread * np.random.default_rng(7).normal(size=(len(atoms), 3)))
    return atoms


def first_forces(atoms):
    print("phase first_forces", flush=True)
    return atoms.get_forces()


def md_step(dynamics, atoms, leak):
    dynamics.run(1)
    if leak:
        KEPT.append(atoms.get_forces().copy())


def trajectory(atoms, steps, leak):
    print("phase trajectory", flush=True)
    dynamics = ase.md.verlet.VelocityVerlet(atoms, timestep=2 * ase.units.fs)
    for n in range(steps):
        print("step %d" % n, flush=True)
        md_step(dynamics, atoms, leak)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    cells = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    atoms = build(cells)
    first_forces(atoms)
    before = atoms.get_total_energy()
    trajectory(atoms, steps, "leak" in sys.argv[3:])
    print("phase end", flush=True)
    print("%d atoms, %d steps: energy kept to %.1e eV an atom" % (len(atoms), steps, abs(atoms.get_total_energy() - before) / len(atoms)))


if __name__ == "__main__":
    main()
