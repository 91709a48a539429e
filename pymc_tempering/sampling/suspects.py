"""Suspects: states where the target exceeds a fitted reference by more than any draw has shown.

A suspect is no more than that: the top of a spike or the neck of a funnel can have a huge ratio
and no mass. Each is climbed, the region of the top is weighed, and where there may be mass it
becomes a component, which weighted draws of the reference then judge.

A look can get stuck in a local mode that holds nothing, on the flank of a peak that is far
narrower. The region where it ended is weighed, too.
"""

from collections.abc import Sequence

import numpy as np

from pymc_tempering.model.path import Path
from pymc_tempering.references.labels import relabeled
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.climbs import ascend
from pymc_tempering.sampling.effort import is_wide
from pymc_tempering.sampling.evaluated import Evaluated, Region, evaluate_states, slopes_at
from pymc_tempering.sampling.fit_reference import ReferenceFit
from pymc_tempering.sampling.regions import (
    MAX_WEIGHED_DIM,
    Peak,
    explained_by,
    least_mass,
    regions_around,
    regions_of,
)
from pymc_tempering.warmup.annealed_pass import AnnealedPass

MAX_PEAKS, MAX_STEPS = 16, 60
"""Peaks of one round at most that may have mass, and steps of a climb."""

MAX_BATCH = 32
"""Suspects that climb together, at most."""

SEEN_SHARE = 0.2
"""Draws that hold this part of the mass of a peak, or more, have seen it."""

WIDE_SHARE = 0.5
"""Draws of the prior that a region as wide as it holds."""

N_DRAWN = 2000
"""Draws of a reference that tell whether it covers a peak."""

NUDGE = 1e-5
"""Step of the numerical second derivatives, in standard deviations of the prior."""


def find_peaks(
    job: Job,
    suspects: Evaluated,
    scale: np.ndarray,
    let_go: Sequence[Peak],
    home: Region,
    most: int,
    least: float = -np.inf,
) -> tuple[list[Peak], bool]:
    """Climb from suspects to the peaks that they belong to.

    Parameters
    ----------
    job : Job
        With gradients in all variables.
    suspects : Evaluated
    scale : array, shape (d,)
        Standard deviations of the prior.
    let_go : sequence of Peak
        Known ones; suspects in their regions are left out.
    home : callable
        Which of n states are no suspects and lie where a component is, as
        `ReferenceFit.locate`; a climb that comes there is over.
    most : int
        Evaluations after which no climb begins.
    least : float, optional
        Log mass (nats) below which a peak does not count, where there may be only so many.

    Returns
    -------
    peaks : list of Peak
    complete : bool
        Whether all suspects were followed up.
    """
    path, peaks, n_heavy = job.prior.path, list[Peak](), 0
    evaluations, batch, ends = 0, 1, suspects.at(np.zeros(0, dtype=int))
    left = ~explained_by(let_go, suspects)
    order = np.argsort(-suspects.log_target, kind="stable")
    while left.any() and n_heavy < MAX_PEAKS and evaluations < most and not job.deadline.late:
        best = order[left[order]][:batch]
        left[best] = False
        ends, cost = ascend(
            path, suspects.xs[best], scale, home, MAX_STEPS, job.deadline, cores=job.value_cores
        )
        evaluations += cost
        # One by one at first, since one peak may be that of many suspects. Then more at a time,
        # which climb together at hardly more than the cost of one.
        batch = min(2 * batch, MAX_BATCH)
        while ends.n and n_heavy < MAX_PEAKS:
            highest = int(ends.log_target.argmax())
            top = ends.at(np.array([highest]))
            peak = _peak_at(path, top.xs[0], float(top.log_target[0]), scale)
            evaluations += 2 * path.dim
            left &= ~peak.holds(suspects.xs)
            others = np.arange(ends.n) != highest
            ends = ends.at(others & ~peak.holds(ends.xs))
            if not explained_by((*peaks, *let_go), top)[0]:
                peaks.append(peak)
                n_heavy += peak.log_mass > least
    job.tally.work["scouts"] += evaluations
    return peaks, not (left.any() or ends.n)


def _peak_at(path: Path, x: np.ndarray, log_target: float, scale: np.ndarray) -> Peak:
    """Take the normal density with the curvature of the target at x; no wider than the prior.

    The curvature comes from central differences of gradients.
    """
    dim = x.size
    nudges = NUDGE * np.diag(scale)
    xs = np.concatenate([x + nudges, x - nudges])
    _, slopes = slopes_at(path, xs, scale)
    hessian = (slopes[dim:] - slopes[:dim]) / (2.0 * NUDGE)
    hessian = 0.5 * (hessian + hessian.T)  # of minus the log target, in units of scale
    if not np.isfinite(hessian).all():
        hessian = np.eye(dim)
    curvature, directions = np.linalg.eigh(hessian)
    variance = 1.0 / np.maximum(curvature, 1.0)  # no wider than the prior
    covariance = (directions * variance) @ directions.T * np.outer(scale, scale)
    log_mass = (
        log_target + 0.5 * dim * np.log(2.0 * np.pi)
        + 0.5 * np.log(variance).sum() + np.log(scale).sum()
    )  # fmt: skip
    jitter = 1e-12 * np.diag(np.diag(covariance))
    return Peak(x, np.linalg.cholesky(covariance + jitter), float(log_mass))


def with_mass(
    job: Job,
    annealed: AnnealedPass,
    peaks: list[Peak],
    log_z: float,
    fit: ReferenceFit | None = None,
) -> tuple[list[Peak], list[Peak]]:
    """Divide peaks into those that may have mass beside an evidence of `log_z`, and the others.

    In few dimensions walkers from the top of each tell the region that it belongs to, and its mass,
    and walkers from farther away what that may be the top of, where values are not dear.
    In many dimensions Laplace's method alone tells it, and can be far too low: no peak counts as
    light there.

    Returns
    -------
    heavy, light : list of Peak
    """
    least = least_mass(log_z)
    if is_wide(job.prior.path, MAX_WEIGHED_DIM):
        return [peak for peak in peaks if peak.log_mass > least], []
    heavy, light = list[Peak](), list[Peak]()
    for peak in peaks:
        if explained_by([*heavy, *light], evaluate_states(job.prior, peak.mean[None]))[0]:
            continue
        for region, spent in regions_around(job, annealed, peak.mean, fit):
            (heavy if region.log_mass > least else light).append(region)
            job.tally.work["scouts"] += spent
            if job.prior.path.dear:
                break
    return heavy, light


def seen(
    peaks: list[Peak], log_z: float, draws: np.ndarray, part: float = SEEN_SHARE
) -> np.ndarray:
    """Whether posterior draws (n, d) hold about as much of each peak as has its mass."""
    held = [peak.holds(draws).mean() >= part * peak.share(log_z) for peak in peaks]
    return np.array(held, dtype=bool)


def unknown_peaks(peaks: list[Peak], fit: ReferenceFit, rng: np.random.Generator) -> list[Peak]:
    """Peaks that draws of the fit have not seen, or that its reference hardly covers.

    Where the reference draws all of its mass, a top that is covered too little has none of its own.
    That cannot be told of a region as wide as the prior, in which all draws are.
    """
    if not peaks:
        return []
    prior = fit.reference.prior
    tops = evaluate_states(prior, np.array([peak.mean for peak in peaks]))
    draws = relabeled(fit.components, fit.components.draw(N_DRAWN, rng))
    wide = np.array([peak.holds(prior.sample).mean() > WIDE_SHARE for peak in peaks])
    drawn = seen(peaks, fit.log_z, draws, 1.0) & ~wide
    known = seen(peaks, fit.log_z, fit.draws.xs) & (drawn | ~fit.suspects(tops))
    return [peak for peak, is_known in zip(peaks, known, strict=True) if not is_known]


def peaks_by_chains(
    job: Job, annealed: AnnealedPass, suspects: Evaluated, fit: ReferenceFit | None = None
) -> tuple[list[Peak], bool]:
    """Where there are no gradients: what short chains from a suspect at beta = 1 go through."""
    order = np.argsort(-suspects.log_target, kind="stable")
    peaks, seen = list[Peak](), np.zeros(suspects.n, dtype=bool)
    for region, inside, spent in regions_of(job, annealed, suspects.xs, order, fit):
        job.tally.work["scouts"] += spent
        peaks.append(region)
        seen |= inside
        if len(peaks) == MAX_PEAKS:
            break
    return peaks, bool(seen.all())
