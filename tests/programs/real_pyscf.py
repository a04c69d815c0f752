#!/usr/bin/env python3
"""Integrals of PySCF: all of two electrons, without their symmetry, made by the marked line."""
from pyscf import gto, scf

molecule = gto.M(atom="O 0 0 0; H 0 -0.757 0.587; H 0 0.757 0.587", basis="cc-pvtz", verbose=0)
held = molecule.intor("int2e")  # <HELD>
energy = scf.RHF(gto.M(atom="H 0 0 0; H 0 0 0.74", basis="sto-3g", verbose=0)).kernel()
print("held %d, energy %.6f" % (held.nbytes, energy))
