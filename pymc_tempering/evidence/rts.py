"""Rao-Blackwellized tempered sampling (RTS): log Z_k from occupancies, with errors from tours.

Carlson, Stinson, Pakman & Paninski (2016), "Partition functions from Rao-Blackwellized tempered
sampling", ICML; equation numbers are theirs.
"""

import numpy as np

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence import alarms as checks
from pymc_tempering.evidence.fit_run import conclude, finite_chains, run_alarms, tours_of
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.standard_errors import batch_sums, delta_error


def rts_log_z(weight: FloatArray, log_z_ladder: FloatArray, log_weight: FloatArray) -> FloatArray:
    """Return log Z_k of every rung from summed Rao-Blackwell weights.

    log Z_k = log Z-hat_k + log(c_k / c_1) - log(r_k / r_1), equation (12) of Carlson et al.
    (2016), and log Z_1 = log Z-hat_1 = 0.

    Parameters
    ----------
    weight : ndarray, shape (..., K)
        Sums of q(beta_k | x); only their ratios matter.
    log_z_ladder, log_weight : ndarray, shape (K,)
        log Z-hat_k (nats) and log r_k that the run was sampled with.

    Returns
    -------
    ndarray, shape (..., K)
        log Z_k in nats; -inf where a rung has no weight, NaN where rung 0 has none.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence import rts_log_z
    >>> weight = np.array([10.0, 20.0, 40.0])
    >>> log_z = rts_log_z(weight, np.array([0.0, -1.0, -2.0]), np.log([0.25, 0.25, 0.5]))
    >>> log_z.round(4).tolist()
    [0.0, -0.3069, -1.3069]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log_c = np.log(weight)
        shift = log_c - log_c[..., :1] - (log_weight - log_weight[0])
        return np.asarray(log_z_ladder - log_z_ladder[0] + shift)


def second_order_bias(sums: FloatArray) -> float:
    """Return the bias of log Z_K to second order in nats, equation (15) of Carlson et al. (2016).

    (var(c_1) / c_1^2 - var(c_K) / c_K^2) / 2 over blocks of shape (B, K). It is reported and not
    subtracted: in their experiments, and in ours, that did not lower the error.
    """
    n = len(sums)
    if n < 2 or np.any(sums[:, [0, -1]].sum(axis=0) == 0.0):
        return float("nan")
    share = sums[:, [0, -1]] / sums[:, [0, -1]].sum(axis=0)
    var = n / (n - 1) * np.sum((share - 1.0 / n) ** 2, axis=0)
    return float(0.5 * (var[0] - var[1]))


def without_ascent(
    rb_weight: FloatArray, rb_weight_head: FloatArray, tour_start: BoolArray
) -> FloatArray:
    """Return the weights (chain, draw, K) with the first cycle of a fresh chain set to zero.

    A chain that starts at a reference draw and stops at a visit to beta = 1 has climbed the
    ladder once more often than it has come down, which biases log Z by about a quarter of its
    error at 130 tours. From the first recorded draw on it begins and ends at beta = 1. Where
    tuning draws were thrown away the chain begins there anyway.
    """
    fresh = tour_start[:, 0] & np.all(rb_weight_head[:, 0] == 0.0, axis=1)
    counted = rb_weight.copy()
    if rb_weight.shape[1] > 1:
        counted[fresh, 0] = 0.0
    return counted


def rts(stats: CycleStats) -> Evidence:
    """Estimate log Z by RTS, with one value and one error whatever the chains did.

    The value pools the sums of all chains, from the first recorded draw on. Its mcse is the
    larger of two delta-method errors, one over tours and one over batches of consecutive draws;
    infinite ("unchecked") below 20 complete tours or an effective number of 10; and at least the
    scatter between chains where a test of homogeneity rejects ("disagreed").

    What a chain did before its first tour and its last, unfinished tour count in the value, and
    here *also as terms of the variance*, although they are not i.i.d. with the complete tours.
    Otherwise a chain that gets stuck at the cold end of its last tour could move the value as far
    as it likes while the stated error stays small; the price is of order chains / tours.

    Parameters
    ----------
    stats : CycleStats
        Statistics of the run.

    Returns
    -------
    Evidence
        Everything in nats.

    Notes
    -----
    Equations (12), (15) and (16) of Carlson et al. (2016). Chains are never weighted by the
    inverse of an estimated variance, which prefers those that missed a mode.

    Examples
    --------
    >>> from pymc_tempering.evidence.datatree import read_cycles
    >>> from pymc_tempering.evidence import rts
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> evidence = rts(read_cycles(gaussian_run(draws=400, random_seed=1)))
    >>> evidence.verdict, abs(evidence.log_z - -2.6305) < 4 * evidence.mcse
    ('ok', True)
    """
    sound = finite_chains(stats)
    chains = np.flatnonzero(sound)
    weight = stats.rb_weight[chains]
    tours = tours_of(stats, sound)

    def log_z(sums: FloatArray) -> FloatArray:
        return rts_log_z(sums, stats.log_z_ladder, stats.log_weight)

    counted = without_ascent(weight, stats.rb_weight_head[chains], stats.tour_start[chains])
    middle = stats.n_draws // 2
    parts = [tours.of_chain(chain).sums for chain in range(len(chains))]
    return conclude(
        "rts", stats.beta, sound, tours,
        curve=log_z(counted.sum(axis=(0, 1))),
        mcse=np.maximum(delta_error(tours.sums), delta_error(batch_sums(weight))),
        chain_curve=log_z(counted.sum(axis=1)),
        chain_error=np.array([delta_error(part)[-1] for part in parts]),
        halves=(
            float(log_z(counted[:, :middle].sum(axis=(0, 1)))[-1]),
            float(log_z(counted[:, middle:].sum(axis=(0, 1)))[-1]),
        ),
        alarms=run_alarms(stats, sound, tours),
        notes=checks.occupancy_warnings(stats, tours) + checks.ladder_warnings(stats),
        bias=second_order_bias(tours.sums),
    )  # fmt: skip
