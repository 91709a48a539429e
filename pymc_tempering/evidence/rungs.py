"""Summaries by rung of a tempering run: occupancy, rejection, acceptance, autocorrelation."""

import numpy as np

from pymc_tempering.core.cycles import CycleStats, FloatArray


def occupancy(stats: CycleStats) -> FloatArray:
    """Return the Rao-Blackwellized occupancy c_k of every rung, shape (K,), summing to 1.

    c_k is the mean of q(beta_k | x) over all iterations: equation (9) of Carlson et al. (2016).
    """
    total = np.nansum(stats.rb_weight, axis=(0, 1))
    with np.errstate(invalid="ignore"):
        return np.asarray(total / total.sum())


def neighbor_rejection(stats: CycleStats) -> FloatArray:
    """Return the rejection rate of the move between rungs k and k + 1, shape (K - 1,).

    A move up is accepted at the mean rate a_k of min(1, w_{k+1} / w_k) over the visits to rung k,
    with w_k proportional to q(beta_k | x). The returned rate is that of the move out of the less
    occupied of the two rungs, 1 - a_k max(1, c_k / c_{k+1}), which by detailed balance needs the
    moves up alone. At equal occupancy it is 1 - a_k, the rate r(beta_k, beta_{k+1}) of Syed et
    al. (2022). If r_k is not uniform, or log Z-hat is off, 1 - a_k is also large because of the
    weights and not of the spacing. NaN where rung k was never visited.
    """
    visits = stats.visits.sum(axis=(0, 1))[:-1]
    accepted = stats.up_accept_sum.sum(axis=(0, 1))[:-1]
    share = np.nansum(stats.rb_weight, axis=(0, 1))
    rate = np.full(visits.shape, np.nan)
    np.divide(accepted, visits, out=rate, where=visits > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate *= np.maximum(1.0, share[:-1] / share[1:])
    return np.asarray(np.clip(1.0 - rate, 0.0, 1.0))


def cumulative_barrier(rejection: FloatArray) -> FloatArray:
    """Return the communication barrier Lambda(beta_k) up to every rung, shape (K,).

    The running sum of the ``rejection`` rates, shape (K - 1,), where an unknown one counts as 1;
    its last entry is the barrier Lambda (Syed et al. 2022).
    """
    return np.concatenate([[0.0], np.cumsum(np.nan_to_num(rejection, nan=1.0))])


def kernel_acceptance(stats: CycleStats) -> FloatArray:
    """Return the mean acceptance probability of the kernel at every rung, shape (K,)."""
    visits = stats.visits.sum(axis=(0, 1))
    rate = np.full(visits.shape, np.nan)
    np.divide(stats.accept_sum.sum(axis=(0, 1)), visits, out=rate, where=visits > 0)
    return rate


def exploration_autocorrelation(stats: CycleStats) -> FloatArray:
    """Return the autocorrelation of log_ratio across one exploration at every rung, shape (K,).

    1 - E[jump^2] / (2 var(log_ratio)), both over the visits to the rung. Near 1 the kernel hardly
    moves, and more rungs do not help. 0 at rung 0, where every draw is fresh; NaN where a rung has
    fewer than two visits, log_ratio does not vary, or its square is no finite number.
    """
    visits = stats.visits.sum(axis=(0, 1))
    n = np.where(visits > 1, visits, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = stats.log_ratio_sum.sum(axis=(0, 1)) / n
        variance = stats.log_ratio_sqsum.sum(axis=(0, 1)) / n - mean**2
        variance[~(variance > 0.0)] = np.nan
        result = 1.0 - stats.jump_sqsum.sum(axis=(0, 1)) / n / (2.0 * variance)
    result[0] = 0.0
    return np.asarray(result)
