"""Bennett's acceptance ratio and stepping stones: log Z from neighboring rungs, summed.

BAR: Bennett (1976), equation (17) of Carlson et al. (2016). Stepping stone: Xie, Lewis, Fan, Kuo &
Chen (2011), "Improving marginal likelihood estimation for Bayesian phylogenetic model selection".
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, kish
from pymc_tempering.evidence.alarms import empty_warnings
from pymc_tempering.evidence.datatree import Run
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
