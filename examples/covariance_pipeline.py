#!/usr/bin/env python3
"""Covariance -> basis -> Fisher -> spectra on dense matrices, on one of two paths whose memory is known beforehand.

harmonic: modes are projected out of the pixels, and what stays is of the modes' size. pixel-direct: everything stays of the pixels' size.
Each stage is a function of its name and prints `phase STAGE`; what its arrays take by formula stands on the line after (bytes that stay, bytes at
most). The rest of a stage's memory is LAPACK's blocks, Python and its libraries.
Usage: covariance_pipeline.py [harmonic|pixel-direct] [PIXELS]
"""
import sys

try:
    import numpy as np
    from scipy.linalg import cholesky, solve_triangular
except ImportError:
    sys.exit("covariance_pipeline.py needs NumPy and SciPy: pip install numpy scipy")

DOUBLE = 8


def phase(name, stays=0, peak=0):
    print("phase %s" % name, flush=True)
    if peak:
        print("expect %s stays %d peak %d" % (name, stays, peak), flush=True)


def noise_covariance(pixels):
    """A smooth positive matrix, made in place; columns lie together, as LAPACK likes them."""
    cov = np.empty((pixels, pixels), order="F")
    at = np.arange(pixels)
    for j in range(pixels):
        cov[:, j] = np.exp(-np.abs(at - j) / 20.0)
        cov[j, j] += 1.0
    return cov


def signal_covariance(pixels):
    """What the fixed modes add."""
    fixed = np.empty((pixels, pixels), order="F")
    at = np.arange(pixels)
    for j in range(pixels):
        fixed[:, j] = np.cos((at - j) * 0.01) * 1e-3
    return fixed


# ---- both paths


def covariance_setup(pixels):
    read = noise_covariance(pixels)
    return np.array(read, order="F")  # the reader's copy goes, this one stays


# ---- harmonic


def harmonic_basis_setup(cov, modes):
    pixels = len(cov)
    factor = cholesky(cov, lower=True, overwrite_a=True, check_finite=False)  # in place: the covariance becomes its factor
    projector = np.empty((pixels, modes), order="F")  # the modes on the pixels
    for m in range(modes):
        projector[:, m] = np.cos(np.pi * (m + 0.5) * np.arange(pixels) / pixels)
    weighted = np.array(projector, order="F")  # N^-1 V, solved in place
    for lower_trans in (0, 1):
        weighted = solve_triangular(factor, weighted, lower=True, trans=lower_trans, overwrite_b=True, check_finite=False)
    kernel = np.empty((modes, modes))
    np.matmul(projector.T, weighted, out=kernel)  # V^T N^-1 V
    fixed = signal_covariance(pixels)
    between = np.empty((modes, pixels))
    np.matmul(weighted.T, fixed, out=between)
    bias = np.empty((modes, modes))
    np.matmul(between, weighted, out=bias)
    bias += kernel
    return factor, weighted, kernel, bias


def harmonic_fisher_run(kernel, bins):
    """Traces of blocks of the kernel: nothing of any size is made."""
    edges = np.linspace(0, len(kernel), bins + 1).astype(int)
    return np.array([np.trace(kernel[a:b, a:b]) for a, b in zip(edges, edges[1:])])


def harmonic_spectra_run(bias, fisher):
    noise = np.array(bias)
    noise /= fisher.sum()
    return noise


def harmonic(pixels):
    modes, bins = pixels // 2, 6
    pix_sq, mode_sq, mode_pix = pixels**2 * DOUBLE, modes**2 * DOUBLE, modes * pixels * DOUBLE
    basis = pix_sq + mode_pix + 2 * mode_sq
    phase("covariance_setup", pix_sq, 2 * pix_sq)
    cov = covariance_setup(pixels)
    phase("basis_setup", basis, basis + mode_pix + pix_sq + mode_pix)
    factor, weighted, kernel, bias = harmonic_basis_setup(cov, modes)
    del cov  # the factor has its memory
    phase("fisher_run", basis, basis)
    fisher = harmonic_fisher_run(kernel, bins)
    phase("spectra_run", basis + mode_sq, basis + mode_sq)
    noise = harmonic_spectra_run(bias, fisher)
    phase("end")
    return float(fisher.sum()), float(np.trace(noise)), (factor, weighted)


# ---- pixel-direct


def pixel_basis_setup(cov):
    return np.array(cov, order="F"), signal_covariance(len(cov))


def invert(cov, out):
    """C^-1, in `out`."""
    np.copyto(out, cov)
    factor = cholesky(out, lower=True, overwrite_a=True, check_finite=False)
    inverse = np.asfortranarray(np.eye(len(cov)))
    for lower_trans in (0, 1):
        inverse = solve_triangular(factor, inverse, lower=True, trans=lower_trans, overwrite_b=True, check_finite=False)
    np.copyto(out, inverse)
    return out


def derivative(buffer, b):
    """How the covariance changes with parameter b, in a buffer that is made once."""
    at = np.arange(len(buffer))
    for j in range(len(buffer)):
        buffer[:, j] = np.cos((at - j) * 0.02 * (b + 1))
    return buffer


def pixel_fisher_run(noise, params):
    buffer = np.empty_like(noise)
    inverse = invert(noise, np.empty_like(noise))
    products = {}
    for b in range(params):
        products[b] = np.empty_like(noise)
        np.matmul(inverse, derivative(buffer, b), out=products[b])
    fisher = np.array([[0.5 * np.einsum("ij,ji->", products[a], products[b]) for b in range(params)] for a in range(params)])
    return fisher, buffer


def pixel_spectra_run(noise, buffer, bins):
    noise_cov = np.array(noise, order="F")
    inverse = invert(noise, np.empty_like(noise))
    products = []
    for b in range(bins):
        products.append(np.empty_like(noise))
        np.matmul(inverse, derivative(buffer, b), out=products[-1])
    return noise_cov, np.array([np.trace(p) for p in products])


def pixel_direct(pixels):
    params, bins, pix_sq = 6, 3, pixels**2 * DOUBLE
    phase("covariance_setup", pix_sq, 2 * pix_sq)
    cov = covariance_setup(pixels)
    phase("basis_setup", 3 * pix_sq, 3 * pix_sq)
    noise, fixed = pixel_basis_setup(cov)
    phase("fisher_run", 4 * pix_sq, (5 + params) * pix_sq)
    fisher, buffer = pixel_fisher_run(noise, params)
    phase("spectra_run", 5 * pix_sq, (6 + bins) * pix_sq)
    noise_cov, spectra = pixel_spectra_run(noise, buffer, bins)
    phase("end")
    return float(fisher.sum()), float(spectra.sum()), (cov, fixed, noise_cov)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "harmonic"
    pixels = int(sys.argv[2]) if len(sys.argv) > 2 else 1200
    paths = {"harmonic": harmonic, "pixel-direct": pixel_direct}
    if path not in paths:
        sys.exit("covariance_pipeline.py: no path %s: give harmonic or pixel-direct" % path)
    fisher, spectra, _ = paths[path](pixels)
    print("%s, %d pixels: fisher %.6g, spectra %.6g" % (path, pixels, fisher, spectra))


if __name__ == "__main__":
    main()
