"""What weights are worth, how to resample by them, and how far they let a population step.

Every estimator here averages weights, of tours, particles, islands or proposals. The laws that
they share stand here once.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import LikelihoodError

MIN_ESS = 10.0
"""Effective number of independent weights below which no error is stated."""

ROUGH_ESS = 50.0
"""Effective number of weights below which their error is said to be rough."""

MAX_KHAT = 0.7
"""Shape of the weights' Pareto tail above which an average has no error to speak of."""

FINITE_VARIANCE_KHAT = 0.5
"""Shape of the Pareto tail above which weights have no finite variance."""

MIN_TAIL = 100
"""Weights below which a Pareto tail is not looked at."""


def kish(weight: FloatArray) -> FloatArray:
    """Kish's effective number (sum a)^2 / sum a^2 over the first axis; 0 where all are 0."""
    square = np.sum(weight**2, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(square > 0.0, np.sum(weight, axis=0) ** 2 / square, 0.0)


def effective_size(values: FloatArray) -> float:
    """Effective number of draws for the mean of a scalar, shape (chain, draw); at least 1."""
    from arviz_stats.base import array_stats  # slow to import

    size = float(array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean"))
    return max(size, 1.0) if np.isfinite(size) else 1.0


def effective_number(log_w: FloatArray) -> float:
    """Kish's effective number of weights, from their logarithms, shape (n,); 0 if all are zero."""
    largest = log_w.max(initial=-np.inf)
    if largest == -np.inf:
        return 0.0
    w = np.exp(log_w - largest)
    return float(w.sum() ** 2 / (w @ w))


def conditional_ess(log_ratio: FloatArray, delta: float) -> float:
    """Conditional effective sample size (CESS) after a step `delta` in beta, as a share.

    Only particles with a positive likelihood count. The others get weight zero at any step,
    however small, so they cannot help to choose its size.
    """
    alive = log_ratio[log_ratio > -np.inf]
    return effective_number(delta * alive) / alive.size


def log_mean(log_w: FloatArray) -> float:
    """Log of the mean of weights; minus infinity if all are zero."""
    if not np.any(log_w > -np.inf):
        return -np.inf
    return float(logsumexp(log_w) - np.log(log_w.size))


def log_mean_error(log_w: FloatArray) -> float:
    """Return the delta-method error of `log_mean` of independent weights, in nats.

    Infinite for fewer than two weights, and if all are zero.
    """
    if log_w.size < 2 or not np.any(log_w > -np.inf):
        return np.inf
    w = np.exp(log_w - log_w.max())
    return float(w.std(ddof=1) / np.sqrt(w.size) / w.mean())


def error_of_influence(effects: FloatArray) -> FloatArray:
    """Return the standard error sqrt(B / (B - 1) sum_b e_bk^2), shape (B, K) -> (K,).

    `effects` are the first-order effects of independent blocks on K estimates (the delta method).
    Infinite for fewer than two blocks, and where an effect is not known.
    """
    n = len(effects)
    if n < 2:
        return np.full(effects.shape[1], np.inf)
    error = np.sqrt(n / (n - 1) * np.sum(effects**2, axis=0))
    return np.where(np.isnan(error), np.inf, error)


def batch_labels(n_chains: int, n_draws: int) -> NDArray[np.intp]:
    """Return the number of the batch of each draw, shape (chain, draw).

    About sqrt(draw) batches of consecutive draws in each chain.
    """
    n_batches = max(int(np.sqrt(n_draws)), 1)
    starts = np.arange(n_batches) * n_draws // n_batches
    batch = np.searchsorted(starts, np.arange(n_draws), side="right") - 1
    return batch + n_batches * np.arange(n_chains)[:, None]


def tilt(betas: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """Return beta_k * log_ratio_i, shape (n, K), with 0 * (-inf) = 0."""
    with np.errstate(invalid="ignore"):
        table = np.multiply.outer(log_ratio, betas)
    table[:, betas == 0.0] = 0.0
    return table


def softmax_rows(table: FloatArray) -> FloatArray:
    """Return exp(table) with rows that sum to 1; the table is overwritten."""
    table -= table.max(axis=1, keepdims=True)
    np.exp(table, out=table)
    table /= table.sum(axis=1, keepdims=True)
    return table


def rung_probabilities(log_ratio: FloatArray, betas: FloatArray, offsets: FloatArray) -> FloatArray:
    """q(beta_k | x) of states, equation (7) of Carlson et al. (2016), shape (n, K).

    Parameters
    ----------
    log_ratio : array, shape (n,)
        Of the states, in nats.
    betas, offsets : array, shape (K,)
        Inverse temperatures, and log r_k - log Z-hat_k.
    """
    return softmax_rows(tilt(betas, log_ratio) + offsets)


def pareto_khat(log_w: FloatArray) -> float:
    """Pareto shape of the largest weights; minus infinity where these are equal.

    Infinite if no weight is finite, or if the shape cannot be found (Vehtari et al. 2024).
    """
    from arviz_stats.base import array_stats  # slow to import

    finite = np.isfinite(log_w)
    if not finite.any():
        return np.inf
    if np.ptp(log_w[finite]) < 1e-8:
        return -np.inf
    floor = log_w[finite].max() - 700.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it says what the shape says
        try:
            khat = float(array_stats.psislw(-np.maximum(log_w, floor))[1])
        except ValueError:  # all weights of the tail are equal, as they can be in discrete models
            return -np.inf
    return khat if np.isfinite(khat) else np.inf


def khat_limit(draws: int) -> float:
    """Largest k-hat for which this number of draws is enough: min(1 - 1 / log10(S), 0.7).

    Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling.
    """
    return min(1.0 - 1.0 / np.log10(draws), MAX_KHAT)


def next_beta(log_ratio: np.ndarray, beta: float, cess: float) -> float:
    """Largest beta up to 1 whose conditional effective sample size is `cess`.

    Raises
    ------
    LikelihoodError
        No step is small enough.
    """
    if conditional_ess(log_ratio, 1.0 - beta) >= cess:
        return 1.0

    def excess(log_delta: float) -> float:
        return conditional_ess(log_ratio, np.exp(log_delta)) - cess

    high = low = np.log(1.0 - beta)
    while excess(low) < 0.0:
        low -= 5.0
        if low < -700.0:
            if beta > 0.0:
                raise _stuck(beta)
            raise LikelihoodError(
                "The log-likelihood differs so much between prior draws that no first step away "
                "from the prior is small enough; check its scale."
            )
    new = min(beta + float(np.exp(brentq(excess, low, high, xtol=1e-3))), 1.0)
    if new == beta:
        raise _stuck(beta)
    return new


def _stuck(beta: float) -> LikelihoodError:
    """Return the error of a path that goes no further, since the likelihood has no bound there."""
    return LikelihoodError(
        f"The way from prior to posterior ends at beta = {beta:.3g}, where the log-likelihood "
        "grows without bound: the posterior has probably no finite integral. Look for a potential "
        "or likelihood that grows faster than the prior falls."
    )


def systematic_resampling(log_w: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Resample systematically by log weights; returns indices, shape (n,)."""
    cumulative = np.cumsum(np.exp(log_w - log_w.max()))
    shares = (rng.random() + np.arange(log_w.size)) / log_w.size
    found = np.searchsorted(cumulative, shares * cumulative[-1], side="right")
    return np.minimum(found, log_w.size - 1)
