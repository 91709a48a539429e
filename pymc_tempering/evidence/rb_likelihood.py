"""The Rao-Blackwellized likelihood: one log Z from parts that were run with different log Z-hat.

Equation (14) and Appendix A of Carlson, Stinson, Pakman & Paninski (2016), ICML. The gradient and
the Hessian are our own derivation: see :func:`maximize_likelihood`.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
import xarray as xr
from numpy.linalg import norm
from scipy.special import logsumexp

from pymc_tempering.core.cycles import LADDER_STATS, BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.pieces import join_pieces, split_pieces, split_weights
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import LadderError, SolverError

MAX_STEPS, MAX_HALVINGS = 100, 30
"""Newton steps at most, and how often a step is halved that makes the gradient no smaller."""

FLAT = 1e-13
"""Gradient of a log likelihood per state from which on no further step is made."""

MAX_GRADIENT = 1e-8
"""Largest derivative of the log likelihood per iteration at a point accepted as its maximum."""


def maximize_likelihood(weight: FloatArray, offsets: FloatArray) -> FloatArray:
    """Maximize the Rao-Blackwellized likelihood over log Z_k, with log Z_1 = 0.

    Equation (14) summed over parts, sum_t [sum_k C_tk log Z_k - n_t log sum_k r_k Z_k / Z-hat_tk],
    where C_tk is the sum of q_t(beta_k | x) over the n_t = sum_k C_tk iterations of part t. It is
    concave in log Z: its gradient is sum_t (C_t - n_t pi_t) with pi_tk proportional to
    r_k Z_k / Z-hat_tk (equation 8), and its Hessian -sum_t n_t (diag pi_t - pi_t pi_t'). For a
    single part pi = C / n, which is RTS, equation (12). Newton steps climb from the RTS estimate of
    the parts' mean offsets.

    Parameters
    ----------
    weight, offsets : ndarray, shape (T, K)
        Sums C_tk of each part, and its log r_k - log Z-hat_tk.

    Returns
    -------
    ndarray, shape (K,)
        log Z_k (nats); minus infinity where a rung has no weight, NaN where the first has none.

    Raises
    ------
    SolverError
        If the maximum is not found.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence import maximize_likelihood
    >>> weight = np.array([[10.0, 20.0], [30.0, 15.0]])
    >>> offsets = np.array([[0.0, -1.0], [0.0, -2.4]])
    >>> maximize_likelihood(weight, offsets).round(3).tolist()
    [0.0, 1.701]
    """
    total = weight.sum(axis=0)
    result = np.where(total > 0.0, np.nan, -np.inf)
    if not total[0] > 0.0 or np.isnan(total).any():
        return np.full(total.size, np.nan)
    known = np.flatnonzero(total > 0.0)
    part, shift = weight[:, known], offsets[:, known]
    n = part.sum(axis=1)
    start = np.log(part.sum(axis=0)) - n @ shift / n.sum()
    start -= start[0]

    def equations(free: FloatArray) -> tuple[FloatArray, FloatArray]:
        tilted = shift + np.append(0.0, free)
        pi = np.exp(tilted - logsumexp(tilted, axis=1, keepdims=True))
        slope = (part - n[:, None] * pi).sum(axis=0)
        return slope[1:] / n.sum(), information(pi, n)[1:, 1:] / n.sum()

    free, slope = newton(equations, start[1:])
    residual = float(np.abs(slope).max(initial=0.0))
    if not residual <= MAX_GRADIENT:
        raise SolverError(
            "the maximum of the Rao-Blackwellized likelihood was not found (gradient "
            f"{residual:.1g}): the parts' log Z-hat differ too much, so estimate each part by RTS"
        )
    result[known] = np.append(0.0, free)
    return result


def newton(
    equations: Callable[[FloatArray], tuple[FloatArray, FloatArray]], start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Climb a concave function by Newton steps, each halved until it makes the gradient smaller.

    Parameters
    ----------
    equations : callable
        Gives the gradient, shape (K,), and minus the Hessian, shape (K, K), at a point.
    start : ndarray, shape (K,)

    Returns
    -------
    point, gradient : ndarray, shape (K,)
        Where the gradient is below ``FLAT``, or no step makes it smaller.
    """
    point, (slope, curvature) = start, equations(start)
    for _ in range(MAX_STEPS):
        if np.abs(slope).max(initial=0.0) < FLAT:
            break
        step = np.linalg.lstsq(curvature, slope)[0]
        for share in 0.5 ** np.arange(MAX_HALVINGS):
            found = equations(point + share * step)
            if norm(found[0]) < norm(slope):
                point, (slope, curvature) = point + share * step, found
                break
        else:
            break
    return point, slope


def information(probability: FloatArray, n: FloatArray) -> FloatArray:
    """Return sum_t n_t (diag pi_t - pi_t pi_t'), shape (K, K), for pi of shape (T, K)."""
    weighted = n[:, None] * probability
    return np.asarray(np.diag(weighted.sum(axis=0)) - probability.T @ weighted)


def rb_likelihood(parts: CycleStats | Sequence[CycleStats]) -> Evidence:
    """Estimate log Z by the Rao-Blackwellized likelihood, across different log Z-hat.

    The maximum of equation (14) of Carlson et al. (2016), summed over chains or rounds that have
    the same inverse temperatures, each with its own log Z-hat (or r_k). With one log Z-hat it is
    RTS. A part counts by its number of iterations, not by an estimated variance.

    Parameters
    ----------
    parts : CycleStats or sequence of CycleStats
        Independent runs with one ladder each; they may differ in length.

    Returns
    -------
    Evidence
        Everything in nats. A tour b of part t moves log Z by H^-1 (C_b - n_b pi_t), with H the
        negative Hessian; the error is over the tours of all parts.

    Raises
    ------
    LadderError
        If the inverse temperatures differ.
    SolverError
        If the maximum is not found.
    """
    parts = [parts] if isinstance(parts, CycleStats) else list(parts)
    betas = parts[0].beta
    for stats in parts[1:]:
        if not np.array_equal(stats.beta, betas):
            raise LadderError(
                f"the parts have different inverse temperatures, {betas} and {stats.beta}: "
                "estimate each part alone"
            )
    offsets = np.array([stats.log_weight - stats.log_z_ladder for stats in parts])
    weight = np.concatenate([split_weights(stats) for stats in parts])
    pieces = join_pieces([split_pieces(stats) for stats in parts])
    details = {"parts": float(len(parts))} if len(parts) > 1 else {}

    def fit(mask: BoolArray) -> PartFit:
        rows, part = weight[mask], pieces.part[mask]
        sums = np.array([rows[part == which].sum(axis=0) for which in range(len(parts))])
        curve = maximize_likelihood(sums, offsets)
        tilted = offsets + curve
        with np.errstate(invalid="ignore"):
            pi = np.exp(tilted - logsumexp(tilted, axis=1, keepdims=True))
        effects = np.full(rows.shape, np.nan)
        known = np.flatnonzero(np.isfinite(curve))
        if known.size:
            free = known[1:]
            score = rows - rows.sum(axis=1, keepdims=True) * pi[part]
            effects[:, 0] = 0.0
            inverse = np.linalg.inv(information(pi[:, free], sums.sum(axis=1)))
            effects[:, free] = score[:, free] @ inverse
        return PartFit(curve, effects, details=details)

    return fit_run("rb_likelihood", parts, pieces, fit, check_occupancy=False)


def read_parts(idata: xr.DataTree) -> list[CycleStats]:
    """Read a run whose chains may differ in log Z-hat: one ``CycleStats`` for each log Z-hat.

    Raises
    ------
    NotTemperedError
        As in ``datatree.read_cycles``.
    LadderError
        If log Z-hat changes within a chain, or the inverse temperatures between chains.
    """
    try:
        return [read_cycles(idata)]
    except LadderError:
        n_chains = idata["sample_stats"].sizes["chain"]
    groups: dict[bytes, list[CycleStats]] = {}
    for chain in range(n_chains):
        stats = read_cycles(idata.isel(chain=[chain]))
        ladder = np.array([getattr(stats, name) for name in LADDER_STATS])
        groups.setdefault(ladder.tobytes(), []).append(stats)
    return [_join_chains(group) for group in groups.values()]


def _join_chains(group: list[CycleStats]) -> CycleStats:
    """Put chains of one ladder into one ``CycleStats``."""
    joined = {}
    for item in fields(CycleStats):
        values = [getattr(stats, item.name) for stats in group]
        if item.name not in LADDER_STATS and values[0] is not None:
            joined[item.name] = np.concatenate(values)
    return replace(group[0], **joined)
