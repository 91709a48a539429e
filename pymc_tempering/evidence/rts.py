"""Rao-Blackwellized tempered sampling (RTS): log Z_k from occupancies, with errors from tours.

Carlson, Stinson, Pakman & Paninski (2016), "Partition functions from Rao-Blackwellized tempered
sampling", ICML; equation numbers are theirs.
"""

import numpy as np

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.pieces import cycle_pieces, finite_chains, finite_tours
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.standard_errors import delta_error, sum_by


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
    pieces, tours = cycle_pieces(stats), finite_tours(stats)
    weight = stats.rb_weight.reshape(-1, stats.beta.size)
    # Tours number the finite chains alone.
    tour_chain = np.flatnonzero(finite_chains(stats))[tours.chain]

    def curve(mask: BoolArray) -> FloatArray:
        return rts_log_z(weight[mask].sum(axis=0), stats.log_z_ladder, stats.log_weight)

    def fit(mask: BoolArray) -> PartFit:
        of_these = np.isin(tour_chain, pieces.chain[mask])
        return PartFit(curve(mask), error=delta_error(tours.sums[of_these]))

    batches = sum_by(pieces.batch[pieces.sound], weight[pieces.sound])
    whole = PartFit(
        curve(pieces.used),
        error=np.maximum(delta_error(tours.sums), delta_error(batches)),
        bias=second_order_bias(tours.sums),
    )
    return fit_run("rts", stats, pieces, fit, whole=whole)
