"""Rao-Blackwellized tempered sampling (RTS): log Z_k from occupancies, with errors from tours.

Carlson, Stinson, Pakman & Paninski (2016), "Partition functions from Rao-Blackwellized tempered
sampling", ICML; equation numbers are theirs.
"""

import numpy as np

from pymc_tempering.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence import checks
from pymc_tempering.evidence.agreement import homogeneity_pvalue
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.tours import Tours, tour_sums

MAX_PVALUE = 1e-3
"""p-value of the homogeneity test below which the chains are said to disagree."""


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
    n = len(sums)
    if n < 2:
        return np.full(sums.shape[1], np.inf)
    error = np.sqrt(n / (n - 1) * np.sum(influence(sums) ** 2, axis=0))
    return np.where(np.isnan(error), np.inf, error)


def effective_tours(sums: FloatArray) -> float:
    """Return Kish's effective number of blocks, (sum a)^2 / sum a^2, the smaller of two.

    Taken over the weights a of the first and of the last rung of ``sums``, shape (B, K).
    """
    ends = sums[:, [0, -1]]
    square = np.sum(ends**2, axis=0)
    if len(sums) == 0 or np.any(square == 0.0):
        return 0.0
    return float(np.min(np.sum(ends, axis=0) ** 2 / square))


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


def batch_sums(rb_weight: FloatArray) -> FloatArray:
    """Sum (chain, draw, K) over about sqrt(draw) batches of consecutive draws in each chain."""
    n_draws = rb_weight.shape[1]
    n_batches = max(int(np.sqrt(n_draws)), 1)
    starts = np.arange(n_batches) * n_draws // n_batches
    batches = np.add.reduceat(rb_weight, starts, axis=1)
    return np.asarray(batches.reshape(-1, rb_weight.shape[2]))


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
    >>> from pymc_tempering.datatree import read_cycles
    >>> from pymc_tempering.evidence import rts
    >>> from pymc_tempering.synthetic import gaussian_run
    >>> evidence = rts(read_cycles(gaussian_run(draws=400, random_seed=1)))
    >>> evidence.verdict, abs(evidence.log_z - -2.6305) < 4 * evidence.mcse
    ('ok', True)
    """
    sound = np.isfinite(stats.rb_weight).all(axis=(1, 2))
    sound &= np.isfinite(stats.rb_weight_head).all(axis=(1, 2))
    alarms = checks.chain_alarms(stats, sound)
    chains = np.flatnonzero(sound)
    weight = stats.rb_weight[chains]
    tours = tour_sums(weight, stats.rb_weight_head[chains], stats.tour_start[chains])

    def log_z(sums: FloatArray) -> FloatArray:
        return rts_log_z(sums, stats.log_z_ladder, stats.log_weight)

    counted = without_ascent(weight, stats.rb_weight_head[chains], stats.tour_start[chains])
    curve = log_z(counted.sum(axis=(0, 1)))
    mcse = np.maximum(delta_error(tours.sums), delta_error(batch_sums(weight)))
    trips = tours.round_trips(len(chains))
    n_tours, ess = sum(trips), effective_tours(tours.sums)

    chain_curve = log_z(counted.sum(axis=1))
    chain_error, chain_df = _chain_errors(tours, trips)
    pvalue = homogeneity_pvalue(chain_curve[:, -1], chain_error, chain_df)
    if chains.size:
        # Every cycle visits beta = 1 once, with its draw.
        cold = stats.log_ratio_sum[chains, :, -1]
        alarms += checks.lone_tour_warnings(tours.sums[:, -1], cold, stats.tour_start[chains])
    messages = alarms + (checks.tour_warnings(n_tours, ess, trips) if chains.size else [])
    verdict = "ok"
    if pvalue < MAX_PVALUE:
        verdict = "disagreed"
        messages.append(checks.disagreement_warning(pvalue))
        mcse = np.fmax(mcse, _scatter(chain_curve))
    if alarms or n_tours < checks.MIN_TOURS or ess < checks.MIN_ESS or np.isinf(mcse[-1]):
        verdict = "unchecked"
        mcse = np.where(np.arange(mcse.size) == 0, 0.0, np.inf)
    messages += checks.occupancy_warnings(stats, tours) + checks.ladder_warnings(stats)

    middle = stats.n_draws // 2
    return Evidence(
        log_z=float(curve[-1]),
        mcse=float(mcse[-1]),
        method="rts",
        verdict=verdict,
        n_tours=n_tours,
        round_trips=_spread(np.array(trips), sound, 0),
        ess=ess,
        per_chain=np.array(_spread(chain_curve[:, -1], sound, np.nan)),
        per_chain_mcse=np.array(_spread(chain_error, sound, np.inf)),
        log_z_curve=curve,
        log_z_curve_mcse=mcse,
        betas=stats.beta,
        halves=(
            float(log_z(counted[:, :middle].sum(axis=(0, 1)))[-1]),
            float(log_z(counted[:, middle:].sum(axis=(0, 1)))[-1]),
        ),
        bias=second_order_bias(tours.sums),
        warnings=tuple(messages),
    )


def _chain_errors(tours: Tours, trips: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Return error and degrees of freedom of each chain; infinite error for too few tours."""
    parts = [tours.of_chain(chain).sums for chain in range(len(trips))]
    enough = np.array(trips) >= checks.MIN_CHAIN_TOURS
    error = np.array([delta_error(part)[-1] for part in parts])
    df = np.array([effective_tours(part) - 1.0 for part in parts])
    return np.where(enough, error, np.inf), df


def _scatter(chain_curve: FloatArray) -> FloatArray:
    """Return the standard error of the mean of the chains' curves, shape (C, K) -> (K,)."""
    finite = chain_curve[np.isfinite(chain_curve).all(axis=1)]
    if len(finite) < 2:
        return np.full(chain_curve.shape[1], np.inf)
    return np.asarray(finite.std(axis=0, ddof=1) / np.sqrt(len(finite)))


def _spread(values: FloatArray, sound: np.ndarray, fill: float) -> tuple:
    """Put the values of the sound chains at their places among all chains."""
    result = np.full(sound.shape, fill, dtype=values.dtype if len(values) else float)
    result[sound] = values
    return tuple(result.tolist())
