"""NUTS (nutpie) and bridge sampling: a peer of tempering for the evidence, in plain NumPy."""

from dataclasses import dataclass

import numba
import numpy as np
from numba import types
from scipy.special import logsumexp

from benchmarks.private import DENSITY, MATRIX, VECTOR


@numba.njit(types.void(DENSITY, MATRIX, VECTOR), nogil=True)
def log_density(density, xs, out):  # type: ignore[no-untyped-def]
    """Log of prior times likelihood at every row of `xs`, into `out`."""
    values = np.empty(2)
    grads = np.empty((2, xs.shape[1]))
    for i in range(xs.shape[0]):
        density.code(xs[i], values, grads, density.data)
        out[i] = values[0] + values[1]


@dataclass(frozen=True)
class Bridge:
    """Log evidence by bridge sampling with its stated error, in nats."""

    log_z: float
    error: float
    iterations: int


def autocorrelation_time(chains: np.ndarray) -> float:
    """Sum of autocorrelations from lag -inf to inf of a scalar, shape (chain, draw).

    Cut at the first negative sum of two neighbors (Geyer 1992), chains averaged.
    """
    n = chains.shape[1]
    centered = chains - chains.mean()
    size = 2 ** int(np.ceil(np.log2(2 * n)))
    spectrum = np.abs(np.fft.rfft(centered, size, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=1)[:, :n].mean(axis=0) / n
    if not covariance[0] > 0.0:
        return 1.0
    rho = covariance / covariance[0]
    pairs = rho[0 : n - n % 2 : 2] + rho[1 : n - n % 2 : 2]
    negative = np.flatnonzero(pairs < 0.0)
    end = negative[0] if negative.size else pairs.size
    return float(max(2.0 * pairs[:end].sum() - 1.0, 1.0 / n))


def normal_log_density(x: np.ndarray, mean: np.ndarray, cholesky: np.ndarray) -> np.ndarray:
    """Log density of a multivariate normal at the rows of `x`."""
    scaled = np.linalg.solve(cholesky, (x - mean).T)
    log_det = np.log(np.diag(cholesky)).sum()
    return -0.5 * (scaled**2).sum(axis=0) - log_det - 0.5 * mean.size * np.log(2.0 * np.pi)


def bridge(
    draws: np.ndarray, density: object, rng: np.random.Generator, max_iterations: int = 1000
) -> Bridge:
    """Estimate log Z from posterior draws by the optimal bridge of Meng & Wong (1996).

    A multivariate normal is fitted to the first half of each chain; the bridge uses the second
    half and as many draws of the normal. The stated error is the relative one of
    Frühwirth-Schnatter (2004), with the autocorrelation of the draws.

    Parameters
    ----------
    draws : array, shape (chain, draw, d)
        Posterior draws, unconstrained.
    density : compiled density of a `Path`
    rng : numpy.random.Generator
    max_iterations : int, default 1000
    """
    n_chains, n_draws, dim = draws.shape
    fit = draws[:, : n_draws // 2].reshape(-1, dim)
    kept = np.ascontiguousarray(draws[:, n_draws // 2 :].reshape(-1, dim))
    mean, cholesky = fit.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(fit.T)))
    proposed = mean + rng.normal(size=kept.shape) @ cholesky.T
    log_target = np.empty(len(kept)), np.empty(len(proposed))
    log_density(density, kept, log_target[0])
    log_density(density, proposed, log_target[1])
    ratio_kept = log_target[0] - normal_log_density(kept, mean, cholesky)
    ratio_proposed = log_target[1] - normal_log_density(proposed, mean, cholesky)
    ratio_proposed[np.isnan(ratio_proposed)] = -np.inf

    n_effective = len(kept) / autocorrelation_time(ratio_kept.reshape(n_chains, -1))
    share = n_effective / (n_effective + len(proposed))
    log_z, iterations = float(np.median(ratio_kept)), 0
    for _ in range(max_iterations):
        iterations += 1
        old = log_z
        log_z = float(
            logsumexp(ratio_proposed - _log_mixture(ratio_proposed, share, old))
            - np.log(len(proposed))
            - logsumexp(-_log_mixture(ratio_kept, share, old))
            + np.log(len(kept))
        )
        if abs(log_z - old) < 1e-10:
            break
    on_proposed = np.exp(ratio_proposed - _log_mixture(ratio_proposed, share, log_z))
    on_kept = np.exp(log_z - _log_mixture(ratio_kept, share, log_z))
    time = autocorrelation_time(on_kept.reshape(n_chains, -1))
    variance = on_proposed.var() / on_proposed.mean() ** 2 / len(proposed)
    variance += time * on_kept.var() / on_kept.mean() ** 2 / len(kept)
    return Bridge(log_z, float(np.sqrt(variance)), iterations)


def _log_mixture(ratio: np.ndarray, share: float, log_z: float) -> np.ndarray:
    """Log of share * exp(ratio) + (1 - share) * exp(log_z)."""
    return np.logaddexp(np.log(share) + ratio, np.log1p(-share) + log_z)
