"""RTS with further draws of the reference: both samples together, as draws of one mixture.

Where a fitted reference lies near the posterior, an independent draw of it costs one value of the
density and tells nearly as much of log Z as an independent draw of the posterior. Rao-Blackwell
weights as in Carlson, Stinson, Pakman & Paninski (2016), ICML; the ratio of normalizing constants
of the two samples by a bridge, Meng & Wong (1996).
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.core.weighting import error_of_influence, tilt
from pymc_tempering.evidence.fit_run import PartFit, errors, fit_run
from pymc_tempering.evidence.pieces import split_weights
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts_log_z
from pymc_tempering.evidence.standard_errors import delta_error, sum_by
from pymc_tempering.evidence.trace import Run, chunks
from pymc_tempering.exceptions import NotTemperedError


@dataclass(frozen=True, eq=False)
class MixtureShares:
    """Shares of the rungs, and of the further draws, in the mixture at some states.

    Attributes
    ----------
    rungs : ndarray, shape (n, K)
        r_k exp(beta_k log_ratio) / Z-hat_k over the mixture of both samples.
    reference : ndarray, shape (n,)
        Reference density over that mixture.
    """

    rungs: FloatArray
    reference: FloatArray


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
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> run = read_run(gaussian_run(draws=400, random_seed=1, reference_draws=4000))
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
    whole, effects = _fit(run, used)
    assert whole.influence is not None
    chain_error = errors(whole.influence, run.pieces, used)
    own_error = error_of_influence(effects)
    parts = {"chain_mcse": float(chain_error[-1]), "reference_mcse": float(own_error[-1])}
    whole = replace(
        whole,
        influence=None,
        error=np.hypot(chain_error, own_error),
        details={"reference_draws": float(len(effects)), **parts},
    )
    beside = (run.n_undefined, run.reference.size)
    return fit_run("pooled", stats, run.pieces, fit, whole=whole, beside=beside)


def _fit(run: Run, part: BoolArray) -> tuple[PartFit, FloatArray]:
    """Fit some pieces with all reference draws; also the effect (n, K) of each draw on log Z_k."""
    assert run.reference is not None
    betas, log_ratio = run.stats.beta, run.trace.log_ratio
    offsets = run.stats.log_weight - run.stats.log_z_ladder
    inside = np.flatnonzero(part[run.piece])
    sizes = (max(1, np.unique(run.pieces.tour[part]).size), run.reference.size)
    by_piece = np.zeros((run.pieces.chain.size, betas.size + 1))
    for rows in chunks(inside.size, betas.size):
        at = inside[rows]
        shares = mixture_shares(log_ratio[at], betas, offsets, *sizes)
        table = np.column_stack([shares.rungs, shares.reference])
        by_piece += run.sum_table(table, run.piece[at])
    by_piece = by_piece[part]
    own = mixture_shares(run.reference, betas, offsets, *sizes)
    path, total = own.rungs.sum(axis=1), by_piece.sum(axis=0)
    # C N over the number of iterations, which the sums over them are divided by in both means.
    scale = sizes[0] * path.mean() / total[-1]
    from_chains, from_draws = scale * total[:-1], own.rungs.sum(axis=0)
    both = from_chains + from_draws
    with np.errstate(divide="ignore"):
        curve = np.log(both) - (run.stats.log_weight - run.stats.log_z_ladder)
    curve = curve - curve[0]  # zero but for rounding
    lent = by_piece[:, -1:] / total[-1]
    by_chains = scale * by_piece[:, :-1] / both - lent * from_chains / both
    effects = own.rungs / both + (path / path.sum())[:, None] * from_chains / both
    return PartFit(curve, by_chains), effects - effects.mean(axis=0)


def mixture_shares(
    log_ratio: FloatArray, betas: FloatArray, offsets: FloatArray, n_path: int, n_reference: int
) -> MixtureShares:
    """Return the shares of rungs and reference at states with these log ratios (nats).

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
    return MixtureShares(np.exp(terms - mixture[:, None]), np.exp(-mixture))
