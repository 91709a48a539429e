"""Summaries by rung of a run: occupancy, rejection, acceptance, autocorrelation, overlap."""

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.core.weighting import kish
from pymc_tempering.evidence.datatree import chunks, probabilities_of, read_run
from pymc_tempering.evidence.pieces import finite_chains, sum_by


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


def overlap(idata: xr.DataTree) -> xr.Dataset:
    """Return the overlap matrix of the ladder and the effective sample size of every rung.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="log_ratio"``, its default.

    Returns
    -------
    Dataset
        ``overlap`` by (rung, rung_to): sum_i q_k(x_i) q_j(x_i) / sum_i q_k(x_i), the probability
        that a state at rung k is found at rung j after a Gibbs move; rows sum to 1.
        ``ess`` by rung: Kish's effective number of iterations with weights q_k(x_i), as if they
        were independent. ``ess_tours``: that of tours, which are independent. ``visits`` by rung,
        and the coordinate ``beta``. The attribute ``spectral_gap`` is 1 minus the second
        eigenvalue of the matrix: near 0 the ladder falls apart into two groups of rungs.

    Raises
    ------
    NotTemperedError
        If ``idata`` holds no trace, or one that is not of its draws.
    LadderError
        If its draws do not come from one ladder.

    Notes
    -----
    The matrix is that of Klimovich, Shirts & Mobley (2015), "Guidelines for the analysis of free
    energy calculations", at the RTS estimate of log Z and with expected visits in place of counts.
    Its weights are then q(beta_k | x), equation (7) of Carlson et al. (2016).

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> table = pmt.overlap(idata)  # a run of pmt.sample
    >>> table["overlap"].shape, bool(table.attrs["spectral_gap"] > 0.05)
    ((5, 5), True)
    """
    run = read_run(idata)
    stats, trace = run.stats, run.trace
    n_rungs = stats.beta.size
    keep = finite_chains(stats)[run.pieces.chain[run.piece]]
    log_ratio, piece = trace.log_ratio[keep], run.piece[keep]
    both, square = np.zeros((n_rungs, n_rungs)), np.zeros(n_rungs)
    sums = np.zeros((run.pieces.chain.size, n_rungs))
    for rows in chunks(log_ratio.size, n_rungs):
        q = probabilities_of(stats, log_ratio[rows])
        both += q.T @ q
        square += np.sum(q**2, axis=0)
        sums += run.sum_table(q, piece[rows])
    total = sums.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = both / total[:, None]
        root = np.sqrt(total)
        symmetric = both / np.outer(root, root)
        ess = total**2 / square
    known = total > 0.0
    values = np.linalg.eigvalsh(symmetric[np.ix_(known, known)])
    gap = 1.0 - float(values[-2]) if known.all() and values.size > 1 else 0.0
    return xr.Dataset(
        {
            "overlap": (("rung", "rung_to"), matrix),
            "ess": ("rung", np.nan_to_num(ess)),
            "ess_tours": ("rung", kish(sum_by(run.pieces.tour, sums))),
            "visits": ("rung", stats.visits.sum(axis=(0, 1))),
        },
        {
            "rung": np.arange(n_rungs),
            "rung_to": np.arange(n_rungs),
            "beta": ("rung", stats.beta),
        },
        {"spectral_gap": gap},
    )
