"""MBAR: log Z_k of all rungs at once from all states, with an error over tours.

Shirts & Chodera (2008); equation (18) of Carlson, Stinson, Pakman & Paninski (2016), ICML.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.linalg import norm
from scipy.special import logsumexp

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, kish, softmax_rows, tilt
from pymc_tempering.evidence.alarms import empty_warnings
from pymc_tempering.evidence.bar import bar_step
from pymc_tempering.evidence.datatree import Run, chunks
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.pieces import sum_by
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import SolverError

MAX_STEPS, MAX_HALVINGS = 100, 30
"""Newton steps at most, and how often a step is halved that makes the gradient no smaller."""

FLAT = 1e-13
"""Gradient of a log likelihood per state from which on no further step is made."""

MAX_RESIDUAL = 1e-6
"""Largest error of the self-consistent equations, as a share of a rung's states, of a solution."""


def mbar(run: Run) -> Evidence:
    """Estimate log Z by MBAR from the states of all rungs.

    Newton steps solve the equations, from Bennett's acceptance ratios of neighboring rungs. The
    error is over tours: with zeta_k = log n_k - log Z_k the equations are those of a multinomial
    logistic regression of the rung on log_ratio (Geyer 1994). So a tour b moves zeta by
    H^-1 sum_{i in b} (1[k_i = k] - p_k(x_i)), with H = sum_i (diag p - p p'), and log n_k by its
    share of the visits. The error is infinite if fewer than 10 effective tours connect the rungs
    below some rung with those above: an error that takes states for independent *shrinks* there.

    Parameters
    ----------
    run : Run

    Returns
    -------
    Evidence
        Everything in nats. ``details`` has ``overlap_tours``, the effective number of tours at the
        weakest place.

    Raises
    ------
    SolverError
        If the equations are not solved.
    """
    return fit_run("mbar", run.stats, run.pieces, partial(_fit, run))


def mbar_log_z(
    log_ratio: FloatArray, counts: FloatArray, betas: FloatArray, start: FloatArray | None = None
) -> FloatArray:
    """Solve the MBAR equations by Newton steps.

    The maximum of equation (18) of Carlson et al. (2016), where sum_i p_k(x_i) = n_k, with
    p_k(x) proportional to n_k exp(beta_k log_ratio(x) - log Z_k).

    Parameters
    ----------
    log_ratio : ndarray, shape (n,)
        Of all states, whatever rung they come from (nats); minus infinity is a legal number.
    counts : ndarray, shape (K,)
        States that come from each rung, in sum n; none may be 0.
    betas : ndarray, shape (K,)
    start : ndarray, shape (K,), optional
        log Z_k to start from (nats).

    Returns
    -------
    ndarray, shape (K,)
        log Z_k in nats; 0 at the first rung.

    Raises
    ------
    SolverError
        If all states have zero likelihood, or the equations are not solved.
    """
    if not np.isfinite(log_ratio).any():
        raise SolverError("MBAR: all states have zero likelihood")
    log_counts = np.log(counts)

    def equations(free: FloatArray) -> tuple[FloatArray, FloatArray]:
        total, information = moments(log_ratio, betas, log_counts - np.append(0.0, free))
        return (total - counts)[1:] / log_ratio.size, information[1:, 1:] / log_ratio.size

    first = np.zeros(betas.size) if start is None else start
    free, slope = newton(equations, first[1:] - first[0])
    residual = float(np.max(np.abs(slope) * log_ratio.size / counts[1:], initial=0.0))
    if not residual <= MAX_RESIDUAL:
        raise SolverError(
            f"The solution misses the MBAR equations by {residual:.1g} of a rung's states: rungs "
            "that hardly overlap; sample with more rungs"
        )
    return np.append(0.0, free)


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


def _fit(run: Run, part: BoolArray) -> PartFit:
    """Fit MBAR to some pieces."""
    betas = run.stats.beta
    inside = np.flatnonzero(part[run.piece])
    log_ratio, rung = run.trace.log_ratio[inside], run.trace.rung[inside]
    counts = np.bincount(rung, minlength=betas.size).astype(float)
    notes = tuple(empty_warnings(counts, "the states of other rungs"))
    curve = np.full(betas.size, np.nan)
    if counts[0] == 0.0 or counts[-1] == 0.0:
        return PartFit(curve, np.zeros((int(part.sum()), betas.size)), alarms=notes)
    visited = np.flatnonzero(counts)
    known = betas[visited]
    start = np.zeros(visited.size)
    for i, width in enumerate(np.diff(known)):
        pair = (rung == visited[i], rung == visited[i + 1])
        step = bar_step(*(width * log_ratio[at] for at in pair))
        start[i + 1] = start[i] + step.increment
    curve[visited] = mbar_log_z(log_ratio, counts[visited], known, start)
    zeta = np.log(counts[visited]) - curve[visited]
    # Rungs that were never visited get theirs by reweighting the states of the others.
    for k in np.flatnonzero(counts == 0.0):
        mixture = [
            logsumexp(tilt(known, log_ratio[rows]) + zeta, axis=1)
            for rows in chunks(log_ratio.size, known.size)
        ]
        curve[k] = logsumexp(tilt(betas[k : k + 1], log_ratio)[:, 0] - np.concatenate(mixture))
    score, visits, low, high = _by_piece(run, inside, visited, zeta)
    d_zeta = np.zeros_like(score)
    try:
        information = moments(log_ratio, known, zeta)[1]
        d_zeta[:, 1:] = np.linalg.solve(information[1:, 1:], score[:, 1:].T).T
    except np.linalg.LinAlgError as error:
        raise SolverError("MBAR: the rungs do not overlap; sample with more rungs") from error
    d_count = visits / counts[visited]
    effects = np.full((run.pieces.chain.size, betas.size), np.nan)
    effects[:, visited] = d_count - d_count[:, :1] - d_zeta
    label = run.pieces.tour[part]
    connecting = np.minimum(*(kish(sum_by(label, lent[part])) for lent in (low, high)))
    weakest = int(connecting[1:].argmin()) + 1
    least = float(connecting[weakest])
    alarm = (
        f"{least:.1f} effective tours connect rung {visited[weakest]} and those above it with "
        f"those below, where an error needs {MIN_ESS:.0f}, so the mcse is infinite: sample with "
        "more rungs there, or more draws."
    )
    return PartFit(
        curve,
        effects[part],
        alarms=() if least >= MIN_ESS else (alarm,),
        notes=notes,
        details={"overlap_tours": least},
    )


def _by_piece(
    run: Run, inside: np.ndarray, visited: np.ndarray, zeta: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sum over the iterations ``inside`` by piece, each of shape (P, K) for K visited rungs.

    Of 1[k_i = k] - p_k(x_i); of 1[k_i = k]; and for the cut below each rung k, of the weights that
    connect the two sides: sum_{l >= k} p_l of the states at lower rungs, and sum_{l < k} p_l of
    those at upper rungs. Iterations are taken in chunks, in order.
    """
    score, visits, low, high = np.zeros((4, run.pieces.chain.size, visited.size))
    for rows in chunks(inside.size, visited.size):
        at = inside[rows]
        rung, piece = run.trace.rung[at, None], run.piece[at]
        p = state_probabilities(run.trace.log_ratio[at], run.stats.beta[visited], zeta)
        hit = (rung == visited).astype(float)
        above = np.cumsum(p[:, ::-1], axis=1)[:, ::-1]
        below = rung < visited
        score += run.sum_table(hit - p, piece)
        visits += run.sum_table(hit, piece)
        low += run.sum_table(np.where(below, above, 0.0), piece)
        high += run.sum_table(np.where(below, 0.0, 1.0 - above), piece)
    return score, visits, low, high


def moments(
    log_ratio: FloatArray, betas: FloatArray, zeta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return sum_i p_i, shape (K,), and sum_i (diag p_i - p_i p_i'), shape (K, K)."""
    total, product = np.zeros(betas.size), np.zeros((betas.size, betas.size))
    for rows in chunks(log_ratio.size, betas.size):
        p = state_probabilities(log_ratio[rows], betas, zeta)
        total += p.sum(axis=0)
        product += p.T @ p
    return total, np.diag(total) - product


def state_probabilities(log_ratio: FloatArray, betas: FloatArray, zeta: FloatArray) -> FloatArray:
    """Return p_k(x_i) proportional to exp(zeta_k + beta_k log_ratio_i), shape (n, K)."""
    return softmax_rows(tilt(betas, log_ratio) + zeta)
