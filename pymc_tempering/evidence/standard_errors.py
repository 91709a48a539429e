"""Standard errors of log Z from independent blocks of a run, by the delta method."""

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import error_of_influence


def influence(sums: FloatArray) -> FloatArray:
    """Return the first-order effect of every block of iterations on log Z_k.

    e_bk = A_bk / sum_b A_bk - A_b1 / sum_b A_b1 for ``sums`` A of shape (B, K); the log ratio of
    two totals is their sum to first order.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = sums / sums.sum(axis=0)
    return np.asarray(share - share[:, :1])


def delta_error(sums: FloatArray) -> FloatArray:
    """Return the standard error of log Z_k from independent blocks, shape (B, K) -> (K,).

    The delta method for a ratio of means: B / (B - 1) sum_b e_bk^2, which is equation (16) of
    Carlson et al. (2016) with variances over blocks; infinite for fewer than two blocks.
    """
    return error_of_influence(influence(sums))


def error_of_neighbors(effects: FloatArray, chain: NDArray[np.intp]) -> FloatArray:
    """Return the standard error where neighboring blocks of a chain are correlated, (B, K) -> (K,).

    Tours that are cut at draws, and not where they start, share a cycle with the tour before and
    are independent of all others. So the variance of their sum is that of the blocks plus twice the
    covariance of neighbors. It is kept above half of the first term, since the covariance is noisy.

    Parameters
    ----------
    effects : ndarray, shape (B, K)
        Effect of every block on log Z_k, in the order of the chain.
    chain : ndarray of int, shape (B,)
        Chain of each block.
    """
    n = len(effects)
    if n < 2:
        return np.full(effects.shape[1], np.inf)
    square = np.sum(effects**2, axis=0)
    same = (chain[1:] == chain[:-1])[:, None]
    product = np.sum(effects[1:] * effects[:-1] * same, axis=0)
    error = np.sqrt(n / (n - 1) * np.maximum(square + 2.0 * product, 0.5 * square))
    return np.where(np.isnan(error), np.inf, error)


def sum_by(label: NDArray[np.intp], values: FloatArray) -> FloatArray:
    """Sum the rows of ``values`` that have the same ``label``; labels do not decrease."""
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    if starts.size == 0:
        return np.empty((0, *values.shape[1:]))
    return np.asarray(np.add.reduceat(values, starts, axis=0))


def effective_tours(sums: FloatArray) -> float:
    """Return Kish's effective number of blocks, (sum a)^2 / sum a^2.

    The smaller of two: with the weights a of the first rung and of the last rung in ``sums``,
    shape (B, K).
    """
    ends = sums[:, [0, -1]]
    square = np.sum(ends**2, axis=0)
    if len(sums) == 0 or np.any(square == 0.0):
        return 0.0
    return float(np.min(np.sum(ends, axis=0) ** 2 / square))
