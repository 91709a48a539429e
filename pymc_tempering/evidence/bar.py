"""log Z from states at their rungs: Bennett's acceptance ratio, stepping stones, and MBAR.

The first two go from rung to rung. BAR: Bennett (1976), equation (17) of Carlson, Stinson, Pakman
& Paninski (2016), ICML. Stepping stones: Xie, Lewis, Fan, Kuo & Chen (2011), "Improving marginal
likelihood estimation for Bayesian phylogenetic model selection". MBAR takes all states for all
rungs at once: Shirts & Chodera (2008), equation (18) of Carlson et al.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, kish, rung_probabilities, tilt
from pymc_tempering.evidence.alarms import empty_warnings
from pymc_tempering.evidence.datatree import Run, chunks
from pymc_tempering.evidence.fit_run import PartFit, fit_run, side_of_bias
from pymc_tempering.evidence.pieces import sum_by
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import SolverError


class Step(NamedTuple):
    """log Z of one rung less that of the rung below, and what each iteration adds to it.

    ``lower`` and ``upper`` are the influences of the iterations at the two rungs. ``overlap`` are
    their weights in the estimate, whose effective number must be large enough; None for the upper
    rung if its states are not used.
    """

    increment: float
    lower: FloatArray
    upper: FloatArray
    overlap: tuple[FloatArray, FloatArray | None]


def bar_step(lower: FloatArray, upper: FloatArray) -> Step:
    """Solve Bennett's equation for two neighboring rungs.

    With n_0 states of the lower rung and n_1 of the upper one, and w = (beta' - beta) log_ratio,
    sum over the lower ones of expit(w - u) = sum over the upper ones of expit(u - w), and then
    log Z' - log Z = u - log(n_0 / n_1). The left side falls with u and the right side rises.

    Parameters
    ----------
    lower, upper : ndarray, shapes (n_0,) and (n_1,)
        w of the states at the two rungs (nats); minus infinity is a legal number.

    Returns
    -------
    Step

    Raises
    ------
    SolverError
        If the equation has no finite solution, or it is not found.
    """

    def excess(u: float) -> float:
        return float(expit(lower - u).sum() - expit(u - upper).sum())

    finite = np.concatenate([lower[np.isfinite(lower)], upper[np.isfinite(upper)]])
    if finite.size == 0:
        raise SolverError("all states of two neighboring rungs have zero likelihood")
    # Beyond these points one side is larger for certain.
    reach = np.log(lower.size + upper.size) + 50.0
    low, high = float(finite.min()) - reach, float(finite.max()) + reach
    try:
        u, found = brentq(excess, low, high, xtol=1e-12, rtol=1e-14, full_output=True)
    except ValueError as error:
        raise SolverError(
            "Bennett's equation has no solution: the states at one of two neighboring rungs have "
            "zero likelihood; sample with more rungs between them"
        ) from error
    forward, backward = expit(lower - u), expit(u - upper)
    scale = max(forward.sum(), backward.sum())
    if not found.converged or abs(forward.sum() - backward.sum()) > 1e-6 * scale:
        raise SolverError(f"Bennett's equation was not solved: {found.flag}, u = {u}")
    slope = float(np.sum(forward * (1.0 - forward)) + np.sum(backward * (1.0 - backward)))
    return Step(
        u - float(np.log(lower.size / upper.size)),
        forward / slope - 1.0 / lower.size,
        1.0 / upper.size - backward / slope,
        (forward, backward),
    )


def stone_step(lower: FloatArray, upper: FloatArray) -> Step:
    """Average exp(w) over the states at the lower of two neighboring rungs.

    Z' / Z is the mean of exp(w), w = (beta' - beta) log_ratio, under pi_beta (Xie et al. 2011).

    Parameters
    ----------
    lower, upper : ndarray, shapes (n_0,) and (n_1,)
        w of the states at the two rungs (nats); those of the upper rung are not used.

    Returns
    -------
    Step

    Raises
    ------
    SolverError
        If all states at the lower rung have zero likelihood.
    """
    total = float(logsumexp(lower))
    if not np.isfinite(total):
        raise SolverError("all states at a rung have zero likelihood: no stepping stone from it")
    share = np.exp(lower - total)
    return Step(
        total - float(np.log(lower.size)),
        share - 1.0 / lower.size,
        np.zeros(upper.size),
        (share, None),
    )


def bar(run: Run) -> Evidence:
    """Estimate log Z by Bennett's acceptance ratio between neighboring rungs, summed.

    Equation (17) of Carlson et al. (2016) with the optimal alpha (Bennett 1976; Meng & Wong
    1996), for the states that were drawn at each rung; rungs that were never visited are
    skipped. The error is over tours. It includes that the time spent at a rung is random, and
    that neighboring ratios share states. If the overlap of two rungs rests on fewer than 10
    effective tours the error is infinite: Bennett's own formula would state a *smaller* one there.

    Parameters
    ----------
    run : Run

    Returns
    -------
    Evidence
        Everything in nats. ``details`` has ``overlap_tours``, the smallest effective number of
        tours that an overlap rests on.

    Raises
    ------
    SolverError
        If the equation of two rungs has no solution.
    """
    return _stepwise("bar", run, bar_step)


def stepping_stone(run: Run) -> Evidence:
    """Estimate log Z by stepping stones: each rung's states reach for the next rung.

    log Z = sum_k log mean of exp((beta_{k+1} - beta_k) log_ratio) over the states at rung k (Xie
    et al. 2011). By Jensen's inequality it tends to lie below log Z, by more if the rungs are
    farther apart. ``bias`` is this effect to second order, with a random number of visits to a
    rung: half the squared relative error of the count minus that of the sum, as in equation (15)
    of Carlson et al. (2016). The error is infinite where that of :func:`bar` is.

    Parameters
    ----------
    run : Run

    Returns
    -------
    Evidence
        Everything in nats.

    Raises
    ------
    SolverError
        If all states at some rung have zero likelihood.
    """
    return _stepwise("stepping_stone", run, stone_step, direction=side_of_bias(0.1))


def _stepwise(
    method: str,
    run: Run,
    step: Callable[[FloatArray, FloatArray], Step],
    *,
    direction: Callable[[float, float], str] | None = None,
) -> Evidence:
    """Sum the steps between neighboring rungs that were visited."""
    betas, trace = run.stats.beta, run.trace
    order = np.argsort(trace.rung, kind="stable")
    bounds = np.searchsorted(trace.rung[order], np.arange(betas.size + 1))
    by_rung = [order[slice(*ends)] for ends in pairwise(bounds)]

    def fit(part: BoolArray) -> PartFit:
        inside = part[run.piece]
        rungs = [where[inside[where]] for where in by_rung]
        sizes = np.array([where.size for where in rungs], dtype=float)
        curve, effects = np.full(betas.size, np.nan), np.full((part.sum(), betas.size), np.nan)
        visited = np.flatnonzero(sizes)
        notes = tuple(empty_warnings(sizes, "no state"))
        if visited.size == 0 or visited[0] != 0 or visited[-1] != betas.size - 1:
            return PartFit(curve, effects, alarms=notes)
        curve[0], effects[:, 0] = 0.0, 0.0
        least, where_least, bias = np.inf, (0, 0), 0.0
        for low, high in pairwise(visited.tolist()):
            width, below, above = betas[high] - betas[low], rungs[low], rungs[high]
            found = step(width * trace.log_ratio[below], width * trace.log_ratio[above])
            effect = run.sum_pieces(found.lower, below) + run.sum_pieces(found.upper, above)
            curve[high] = curve[low] + found.increment
            effects[:, high] = effects[:, low] + effect[part]
            held = _effective(run, below, found.overlap[0], part)
            bias += 0.5 / _effective(run, below, None, part) - 0.5 / held
            if found.overlap[1] is not None:
                held = min(held, _effective(run, above, found.overlap[1], part))
            if held < least:
                least, where_least = held, (low, high)
        alarm = (
            f"The overlap of rungs {where_least[0]} and {where_least[1]} rests on {least:.1f} "
            f"effective tours and an error needs {MIN_ESS:.0f}, so the mcse is infinite: sample "
            "with more rungs between them, or more draws."
        )
        return PartFit(
            curve,
            effects,
            bias=np.nan if direction is None else bias,
            alarms=() if least >= MIN_ESS else (alarm,),
            notes=notes,
            details={"overlap_tours": least},
        )

    return fit_run(method, run.stats, run.pieces, fit, bias_direction=direction)


def _effective(
    run: Run, where: NDArray[np.intp], weight: FloatArray | None, part: BoolArray
) -> float:
    """Return the effective number of tours among some iterations, each of weight 1 by default."""
    sums = run.sum_pieces(np.ones(where.size) if weight is None else weight, where)
    return float(kish(sum_by(run.pieces.tour[part], sums[part])))


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
    return fit_run("mbar", run.stats, run.pieces, partial(_fit_all, run))


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


def _fit_all(run: Run, part: BoolArray) -> PartFit:
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
        p = rung_probabilities(run.trace.log_ratio[at], run.stats.beta[visited], zeta)
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
        p = rung_probabilities(log_ratio[rows], betas, zeta)
        total += p.sum(axis=0)
        product += p.T @ p
    return total, np.diag(total) - product
