"""Bulk effective sample size of many scalars at once, in arrays."""

import numpy as np

from pymc_tempering.core.cycles import FloatArray

BLOCK = 1 << 18
"""Numbers of one block of scalars, so that a thousand of them need little memory."""

MIN_DRAWS = 4
"""Draws of a chain below which there is no effective sample size."""


def bulk_ess(draws: FloatArray) -> FloatArray:
    """Compute the bulk effective sample size of each scalar, as ArviZ does.

    Ranks of split chains, as normal scores, with Geyer's initial monotone sequence (Vehtari,
    Gelman, Simpson, Carpenter & Bürkner 2021). Ranks make it the same for a variable and each of
    its monotone transforms.

    Parameters
    ----------
    draws : ndarray, shape (chain, draw, d)

    Returns
    -------
    ndarray, shape (d,)
        Not a number below 4 draws a chain; the number of draws where all are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence.bulk_ess import bulk_ess
    >>> draws = np.random.default_rng(1).normal(size=(4, 1000, 2))
    >>> bool(np.all(bulk_ess(draws) > 3500))
    True
    """
    n_chains, n_draws, dim = draws.shape
    if n_draws < MIN_DRAWS:
        return np.full(dim, np.nan)
    half = n_draws // 2
    step = max(1, BLOCK // (n_chains * n_draws))
    parts = []
    for start in range(0, dim, step):
        block = draws[:, :, start : start + step].transpose(2, 0, 1)  # sorted fastest so
        split = np.concatenate([block[:, :, :half], block[:, :, -half:]], axis=1)
        parts.append(_ess(_normal_scores(split)))
    return np.concatenate(parts) if parts else np.empty(0)


def _normal_scores(draws: FloatArray) -> FloatArray:
    """Return normal scores of ranks of the draws of a scalar (d, chain, draw); ties share one."""
    from scipy.special import ndtri  # slow to import

    flat = draws.reshape(len(draws), -1)
    n = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    steps = ordered[:, 1:] != ordered[:, :-1]
    edge = np.ones((len(flat), 1), dtype=bool)
    first = np.where(np.concatenate([edge, steps], axis=1), np.arange(n), 0)
    last = np.where(np.concatenate([steps, edge], axis=1), np.arange(n), n - 1)
    first = np.maximum.accumulate(first, axis=1)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    rank = np.empty(flat.shape)
    np.put_along_axis(rank, order, 0.5 * (first + last) + 1.0, axis=1)
    return np.asarray(ndtri((rank - 0.375) / (n + 0.25))).reshape(draws.shape)


def _ess(scores: FloatArray) -> FloatArray:
    """Effective sample size (d,) from the autocorrelations of scores (d, chain, draw)."""
    dim, n_chains, n = scores.shape
    means = scores.mean(axis=2)
    covariance = _autocovariance(scores - means[:, :, None])
    within = covariance[:, :1] * n / (n - 1.0)
    between = means.var(axis=1, ddof=1) if n_chains > 1 else np.zeros(dim)
    constant = np.ptp(scores.reshape(dim, -1), axis=1) < np.finfo(float).resolution
    total = np.where(constant, 1.0, covariance[:, 0] + between)
    rho = 1.0 - (within - covariance) / total[:, None]
    rho[:, 0] = 1.0
    n_pairs = max(1, (n - 1) // 2)
    even, odd = rho[:, 0 : 2 * n_pairs : 2], rho[:, 1 : 2 * n_pairs : 2]
    # The first pair that is not positive ends the sum, or else the last one.
    over = even + odd <= 0.0
    ends = over.any(axis=1)
    end = np.where(ends, over.argmax(axis=1), n_pairs - 1)
    kept = np.arange(n_pairs) < end[:, None]
    monotone = np.minimum.accumulate(np.where(kept, even + odd, np.inf), axis=1)
    tail = even[np.arange(dim), end]
    tail = np.where(ends, np.maximum(tail, 0.0), tail)
    tau = -1.0 + 2.0 * np.where(kept, monotone, 0.0).sum(axis=1) + tail
    size = n_chains * n
    ess = size / np.maximum(tau, 1.0 / np.log10(size))
    return np.asarray(np.where(constant, float(size), ess))


def _autocovariance(centered: FloatArray) -> FloatArray:
    """Autocovariance at each lag, averaged over chains, of (d, chain, draw), shape (d, draw)."""
    from scipy import fft  # slow to import

    n = centered.shape[2]
    size = fft.next_fast_len(2 * n, real=True)
    spectrum = np.abs(fft.rfft(centered, size, axis=2)) ** 2
    return np.asarray(fft.irfft(spectrum.mean(axis=1), size, axis=1)[:, :n] / n)
