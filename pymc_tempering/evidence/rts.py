"""Rao-Blackwellized tempered sampling (RTS), with reference draws beside it, and counts of visits.

Carlson, Stinson, Pakman & Paninski (2016), "Partition functions from Rao-Blackwellized tempered
sampling", ICML; equation numbers are theirs.
"""

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.core.weighting import error_of_influence, tilt
from pymc_tempering.evidence.alarms import empty_warnings
from pymc_tempering.evidence.datatree import Run, chunks
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.pieces import (
    cycle_pieces,
    delta_error,
    errors,
    finite_chains,
    finite_tours,
    split_weights,
    sum_by,
)
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import NotTemperedError

PSEUDO_COUNT = 0.1
"""Added to the visits of each rung, as in section 4.3, so that no logarithm is infinite."""


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
        return log_z_ladder - log_z_ladder[0] + shift


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
    >>> evidence = rts(read_cycles(idata))  # a run of pmt.sample
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


def counts(stats: CycleStats) -> Evidence:
    """Estimate log Z by counting the visits to each rung.

    Equation (11) of Carlson et al. (2016) with q(beta_k) estimated by the visits plus 0.1 each,
    their "TS" of section 4.3. At a rung that was never visited log Z_k rests on the 0.1 alone: its
    error is infinite, and a warning says so.

    Parameters
    ----------
    stats : CycleStats

    Returns
    -------
    Evidence
        Everything in nats. ``bias`` is the effect of the 0.1, to first order.

    Notes
    -----
    The statistics tell how often a cycle visited each rung, but not how the start of a tour
    divides these visits. So tours are cut at the draw before they start. Neighbors then share a
    cycle, and the error includes their covariance. It is at least the error over batches of draws.
    """
    visits = stats.visits.reshape(-1, stats.beta.size)

    def fit(part: BoolArray) -> PartFit:
        total = visits[part].sum(axis=0)
        share = visits[part] / (total + PSEUDO_COUNT)
        effects = share - share[:, :1]
        effects[:, total == 0.0] = np.nan
        with np.errstate(divide="ignore"):
            pseudo = np.log1p(PSEUDO_COUNT / total)
        curve = rts_log_z(total + PSEUDO_COUNT, stats.log_z_ladder, stats.log_weight)
        return PartFit(
            curve,
            effects if total[0] > 0.0 else np.full(effects.shape, np.nan),
            bias=float(pseudo[-1] - pseudo[0]) if min(total[0], total[-1]) > 0.0 else np.nan,
            notes=tuple(empty_warnings(total, "the 0.1 added to its count")),
        )

    return fit_run("counts", stats, cycle_pieces(stats), fit)


def pooled(run: Run) -> Evidence:
    """Estimate log Z from a run and from independent draws of its reference, as one sample.

    The states of the iterations have the density g = sum_k r_k f_k / Z-hat_k up to a constant C,
    and the n further draws have the normalized reference f_1. With N tours and h = N g + n f_1,

        C = [mean of g / h over the reference draws] / [mean of f_1 / h over the iterations],
        Z_k = C N [mean of f_k / h over the iterations] + n [mean of f_k / h over the draws].

    All these ratios are bounded, whatever the tails of the reference are: where it is too thin, the
    iterations have the weight. N and n in h only decide how the samples share the work; the
    estimate is consistent for any. Iterations are correlated and count by their tours: counted one
    by one, they would decide alone of regions that a run of some thousand draws hardly meets.

    The two samples are independent. So the squared error is that of the iterations, over tours as
    in :func:`rts`, plus that of the independent draws. The estimates of each chain and of halves
    are those of RTS alone, and so are the comparison of chains and the alarms: no further draw can
    hide that a chain missed a mode.

    Parameters
    ----------
    run : Run
        With the log ratios of reference draws.

    Returns
    -------
    Evidence
        Everything in nats. ``details`` has ``reference_draws``, their number n; ``chain_mcse`` and
        ``reference_mcse``, the two parts of the error.

    Raises
    ------
    NotTemperedError
        If the run has no reference draws.

    Notes
    -----
    With n = 0 it is equation (12) of Carlson et al. (2016). C is the bridge estimator of Meng &
    Wong (1996) with the optimal alpha of independent draws and C = 1, which the frozen Z-hat make
    nearly true.

    Examples
    --------
    >>> from pymc_tempering.evidence import pooled, read_run, rts
    >>> run = read_run(idata)  # a run of pmt.sample
    >>> evidence = pooled(run)
    >>> evidence.mcse < rts(run.stats).mcse, abs(evidence.log_z - -2.6305) < 4 * evidence.mcse
    (True, True)
    """
    if run.reference is None:
        raise NotTemperedError(
            "this run has no reference draws, in group 'tempering_reference': sample with "
            'pymc_tempering.sample(reference_draws=...), or use method="rts"'
        )
    used, stats, weights = run.pieces.used, run.stats, split_weights(run.stats)

    def fit(mask: BoolArray) -> PartFit:
        sums = sum_by(run.pieces.tour[mask], weights[mask])
        curve = rts_log_z(sums.sum(axis=0), stats.log_z_ladder, stats.log_weight)
        return PartFit(curve, error=delta_error(sums))

    if not used.any():
        return fit_run("pooled", stats, run.pieces, fit)
    curve, by_chains, by_draws = _fit(run, run.reference, used)
    chain_error, own_error = errors(by_chains, run.pieces, used), error_of_influence(by_draws)
    details = {
        "reference_draws": float(len(by_draws)),
        "chain_mcse": float(chain_error[-1]),
        "reference_mcse": float(own_error[-1]),
    }
    whole = PartFit(curve, error=np.hypot(chain_error, own_error), details=details)
    beside = (run.n_undefined, run.reference.size)
    return fit_run("pooled", stats, run.pieces, fit, whole=whole, beside=beside)


def _fit(
    run: Run, reference: FloatArray, part: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit some pieces with all reference draws: log Z_k, and the effects of pieces and of draws."""
    betas, log_ratio = run.stats.beta, run.trace.log_ratio
    offsets = run.stats.log_weight - run.stats.log_z_ladder
    inside = np.flatnonzero(part[run.piece])
    sizes = (max(1, np.unique(run.pieces.tour[part]).size), reference.size)
    by_piece = np.zeros((run.pieces.chain.size, betas.size + 1))
    for rows in chunks(inside.size, betas.size):
        at = inside[rows]
        shares = mixture_shares(log_ratio[at], betas, offsets, *sizes)
        by_piece += run.sum_table(shares, run.piece[at])
    by_piece = by_piece[part]
    own = mixture_shares(reference, betas, offsets, *sizes)[:, :-1]
    path, total = own.sum(axis=1), by_piece.sum(axis=0)
    # C N over the number of iterations, which the sums over them are divided by in both means.
    scale = sizes[0] * path.mean() / total[-1]
    from_chains, from_draws = scale * total[:-1], own.sum(axis=0)
    both = from_chains + from_draws
    with np.errstate(divide="ignore"):
        curve = np.log(both) - offsets
    curve = curve - curve[0]  # zero but for rounding
    lent = by_piece[:, -1:] / total[-1]
    by_chains = scale * by_piece[:, :-1] / both - lent * from_chains / both
    effects = own / both + (path / path.sum())[:, None] * from_chains / both
    return curve, by_chains, effects - effects.mean(axis=0)


def mixture_shares(
    log_ratio: FloatArray, betas: FloatArray, offsets: FloatArray, n_path: int, n_reference: int
) -> FloatArray:
    """Return the shares of the rungs, and last of the reference, in the mixture, shape (n, K + 1).

    At states with these log ratios (nats): r_k exp(beta_k log_ratio) / Z-hat_k, and the reference
    density, over the mixture of both samples.

    Parameters
    ----------
    log_ratio : ndarray, shape (n,)
    betas, offsets : ndarray, shape (K,)
        Inverse temperatures, and log r - log Z-hat.
    n_path, n_reference : int
        Weights of the path and of the reference in the mixture.
    """
    terms = tilt(betas, log_ratio) + offsets
    path = logsumexp(terms, axis=1) + np.log(n_path)
    mixture = np.logaddexp(path, np.log(n_reference))
    return np.exp(np.column_stack([terms, np.zeros(len(terms))]) - mixture[:, None])
