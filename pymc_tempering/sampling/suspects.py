"""Suspects: states where the target exceeds a fitted reference by more than any draw has shown.

Scouts look for them: many short gradient ascents from draws of the prior. A narrow mode is seldom
met by chance, but the region from which the gradient leads into it is far wider than the mode. A
scout says where to look, and never enters an estimate.

A suspect is no more than that: the top of a spike or the neck of a funnel can have a huge ratio
and no mass. Each is climbed, its mass is told from the curvature at the top (Laplace), and where
there may be some it becomes a component, which weighted draws of the reference then judge.

A look can get stuck in a local mode that holds nothing, on the flank of a peak that is far
narrower. Neither Laplace's method at the top nor the height where it ended tells what the mode
holds. Chains at beta = 1 tell the region where they stay, and its mass.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from time import perf_counter

import numpy as np

from pymc_tempering.chain.particles import place, sweep
from pymc_tempering.core.deadline import NEVER, Deadline, time_left
from pymc_tempering.core.weighting import log_mean
from pymc_tempering.evidence.reference_check import ISLAND
from pymc_tempering.model.path import Path
from pymc_tempering.references.labels import relabeled
from pymc_tempering.references.mixture import FullScales, Mixture
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.effort import SCOUTED_WORK, effort_of, is_wide
from pymc_tempering.sampling.evaluated import (
    Evaluated,
    Region,
    evaluate_states,
    home_radius,
    join,
    slopes_at,
)
from pymc_tempering.sampling.fit_reference import ReferenceFit
from pymc_tempering.warmup.annealed_pass import AnnealedPass

SCOUT_STEPS = 12
"""Steps of a scout at most."""

SCOUT_BATCH, MAX_SCOUT_BATCH = 500, 8000
"""Scouts that climb together at first, and at most."""

SCOUT_WORK, MOST_SCOUTING = 80_000_000, 400_000
"""Elements that the scouts of a round compute, and the evaluations that these buy at most.
Where a value takes a microsecond they are some tenths of a second, as the run itself is."""

HEADING, NEARER = 2, 0.9
"""Steps in a row that each bring a scout nearer to a known region, to this part of its squared
distance at most, before it is taken to be on its way there."""

FIRST_STEP, LONGEST_STEP = 0.05, 3.0
"""Lengths of a scout's first step and of its longest, in standard deviations of the prior."""


@dataclass
class _Climbers:
    """Scouts at work: place, terms of the target, gradient and step factor of each."""

    xs: np.ndarray
    values: np.ndarray
    grads: np.ndarray
    factors: np.ndarray

    @property
    def heights(self) -> np.ndarray:
        """Log target, shape (n,)."""
        return self.values[:, 0] + self.values[:, 1]

    def at(self, index: np.ndarray | slice) -> Evaluated:
        """Where some of them are."""
        values = self.values[index]
        return Evaluated(self.xs[index], values[:, 0], values[:, 1])


def ascend(
    path: Path,
    starts: np.ndarray,
    scale: np.ndarray,
    known: Region,
    max_steps: int = SCOUT_STEPS,
    deadline: Deadline = NEVER,
    *,
    turns_back: bool = False,
    cores: int = 1,
) -> tuple[Evaluated, int]:
    """Climb the log target from each start, until a known region is reached or the steps end.

    The steps have the length of Barzilai & Borwein (1988, IMA Journal of Numerical Analysis 8),
    which finds the top of a normal mode in a few of them; a step that leads down is taken back
    and shortened.

    Parameters
    ----------
    path : Path
        With gradients in all variables.
    starts : array, shape (n, d)
    scale : array, shape (d,)
        Standard deviations of the variables, by which steps are measured.
    known : callable
        Which of n states lie in known regions, and how far from these they are, shape (n,) each.
    max_steps : int
    deadline : Deadline, optional
        After which there are no further steps.
    turns_back : bool, default False
        Whether an ascent ends too when `HEADING` steps in a row have led toward known regions.
    cores : int, default 1

    Returns
    -------
    ends : Evaluated
        Only those that ended outside of the known regions, at a finite density.
    n_evaluations : int
        Of gradients.
    """
    starts = starts[np.isfinite(starts).all(axis=1)]
    climbers, evaluations = _place(path, starts, scale, cores), len(starts)
    with np.errstate(over="ignore"):  # of the slope far out in a wide law; it stays there
        lengths = np.linalg.norm(climbers.grads, axis=1)
    first = FIRST_STEP * np.sqrt(path.dim)
    climbers.factors[:] = np.where(lengths > 0, first / np.maximum(lengths, 1e-300), 0.0)
    everywhere = slice(None)
    home, left = known(climbers.at(everywhere))
    outside = np.isfinite(climbers.heights) & ~home
    nearer = np.zeros(len(starts), dtype=int)
    for _ in range(max_steps):
        at = np.flatnonzero(outside)
        if at.size == 0 or deadline.late:
            break
        evaluations += at.size
        moved = at[_step(path, climbers, at, scale, cores)]
        home, now = known(climbers.at(moved))
        nearer[moved] = np.where(now < NEARER * left[moved], nearer[moved] + 1, 0)
        left[moved] = now
        outside[moved] = ~(home | (nearer[moved] >= HEADING) if turns_back else home)
    return climbers.at(outside), evaluations


def _place(path: Path, xs: np.ndarray, scale: np.ndarray, cores: int) -> _Climbers:
    """Put climbers at states."""
    return _Climbers(xs, *slopes_at(path, xs, scale, cores), np.zeros(len(xs)))


def _step(
    path: Path, climbers: _Climbers, at: np.ndarray, scale: np.ndarray, cores: int
) -> np.ndarray:
    """Move the climbers `at`; returns which of them went up, shape (n,) of bool."""
    step = climbers.factors[at, None] * climbers.grads[at]
    length = np.linalg.norm(step, axis=1, keepdims=True)
    longest = LONGEST_STEP * np.sqrt(path.dim)
    step *= np.minimum(1.0, longest / np.maximum(length, 1e-300))
    new = _place(path, climbers.xs[at] + step * scale, scale, cores)
    up = new.heights > climbers.heights[at]
    bend = -((new.grads - climbers.grads[at]) * step).sum(axis=1)
    old = climbers.factors[at]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        secant = np.where(bend > 0, (step**2).sum(axis=1) / bend, np.inf)
    longer = np.where(bend > 0, secant, 4.0 * old)
    shorter = np.minimum(secant, 0.1 * old)
    shorter = np.where(bend > 0, np.minimum(secant, 0.5 * old), shorter)
    factors = np.where(up, longer, shorter)
    climbers.factors[at] = np.where(np.isfinite(factors), factors, 0.1 * old)
    risen = at[up]
    climbers.xs[risen], climbers.values[risen] = new.xs[up], new.values[up]
    climbers.grads[risen] = new.grads[up]
    return up


def scouting_of(job: Job) -> int:
    """Return the evaluations that the scouts of a round may take, by what one costs."""
    path = job.prior.path
    return int(np.clip(SCOUT_WORK / path.work, effort_of(path).scouting, MOST_SCOUTING))


def send_scouts(job: Job, fit: ReferenceFit, scale: np.ndarray) -> Evaluated:
    """Send scouts from the prior, as many as their work allows; ends outside of known regions."""
    prior, evaluations, began = job.prior, 0, perf_counter()
    every: list[Evaluated] = []
    sent, batch, most, fewer = 0, SCOUT_BATCH, scouting_of(job), prior.path.work > SCOUTED_WORK
    while not sent or (evaluations < most and not job.deadline.late):
        left = time_left(evaluations / most, began)
        job.report(f"Scouts from the prior: {sent}{left}")
        starts = prior.draw(batch, prior.spawn(job.rng))
        ends, cost = ascend(
            prior.path, starts, scale, fit.locate, deadline=job.deadline, turns_back=True,
            cores=job.value_cores,
        )  # fmt: skip
        every.append(ends)
        evaluations += cost
        sent, batch = sent + batch, min(2 * batch, MAX_SCOUT_BATCH)
        if fewer:  # no more of them than there are to be
            batch = min(batch, ceil((most - evaluations) * sent / max(evaluations, 1)))
    job.tally.work["scouts"] += evaluations
    return join(every)


def spread_of(xs: np.ndarray) -> np.ndarray:
    """Width of each variable between its quartiles, as a standard deviation; safe in any tail."""
    xs = xs[np.isfinite(xs).all(axis=1)]
    low, high = np.quantile(xs, [0.25, 0.75], axis=0)
    width = (high - low) / 1.349
    return np.where(np.isfinite(width) & (width > 0), width, 1.0)


MAX_PEAKS, MAX_STEPS = 8, 60
"""Peaks of one round at most that may have mass, and steps of a climb."""

MAX_BATCH = 32
"""Suspects that climb together, at most."""

LEAST_MASS = 5e-4
"""Share of the evidence below which a peak is let go."""

N_WEIGHED, WEIGHED_DOF, MAX_WEIGHED_DIM = 200, 5.0, 30
"""Draws that weigh a peak, their degrees of freedom, and the dimensions up to which they do."""

SEEN_SHARE = 0.2
"""Draws that hold this part of the mass of a peak, or more, have seen it."""

N_DRAWN = 2000
"""Draws of a reference that tell whether it covers a peak."""

NUDGE = 1e-5
"""Step of the numerical second derivatives, in standard deviations of the prior."""

CHAINS, CHAIN_BEGIN, CHAIN_PARTS, CHAIN_SWEEPS = 64, 10, 8, 5
"""Chains from a state that tell the region where they stay; transitions that are thrown away, and
how many times so many that are kept, by their last states."""


@dataclass(frozen=True, eq=False)
class Peak:
    """A local maximum of the target, as a normal density.

    Attributes
    ----------
    mean : array, shape (d,)
    cholesky : array, shape (d, d)
        Lower factor of the covariance.
    log_mass : float
        Its evidence (nats), by Laplace's method or by chains.
    """

    mean: np.ndarray
    cholesky: np.ndarray
    log_mass: float

    def squares(self, xs: np.ndarray) -> np.ndarray:
        """Squared distances of states (n, d) in standard deviations, shape (n,)."""
        z = np.linalg.solve(self.cholesky, (xs - self.mean).T)
        return (z**2).sum(axis=0)

    def holds(self, xs: np.ndarray) -> np.ndarray:
        """Whether states (n, d) lie in its region, shape (n,)."""
        return self.squares(xs) < home_radius(self.mean.size)

    def log_density(self, xs: np.ndarray) -> np.ndarray:
        """Log of the normal density, without the mass, at states (n, d), shape (n,)."""
        log_size = np.log(np.diag(self.cholesky)).sum() + 0.5 * self.mean.size * np.log(2 * np.pi)
        return -0.5 * self.squares(xs) - log_size

    def share(self, log_z: float) -> float:
        """Share of its mass in all, beside an evidence of `log_z` without it."""
        return float(np.exp(self.log_mass - np.logaddexp(self.log_mass, log_z)))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw from the normal density, shape (n, d)."""
        return self.mean + rng.standard_normal((n, self.mean.size)) @ self.cholesky.T


def holds_any(peaks: Sequence[Peak], xs: np.ndarray) -> np.ndarray:
    """Whether states (n, d) lie in the region of one of some peaks, shape (n,)."""
    held = np.zeros(len(xs), dtype=bool)
    for peak in peaks:
        held |= peak.holds(xs)
    return held


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
    left = ~holds_any(let_go, suspects.xs)
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
            top = int(ends.log_target.argmax())
            peak = _peak_at(path, ends.xs[top], float(ends.log_target[top]), scale)
            evaluations += 2 * path.dim
            left &= ~peak.holds(suspects.xs)
            others = np.arange(ends.n) != top
            ends = ends.at(others & ~peak.holds(ends.xs))
            if not any(_same(peak, other) for other in (*peaks, *let_go)):
                peaks.append(peak)
                n_heavy += peak.log_mass > least
    job.tally.work["scouts"] += evaluations
    return peaks, not (left.any() or ends.n)


def _same(peak: Peak, other: Peak) -> bool:
    """Whether one peak lies in the region of the other."""
    return bool(other.holds(peak.mean[None])[0])


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


def least_mass(log_z: float) -> float:
    """Log mass (nats) below which a peak is let go, beside an evidence of `log_z`."""
    return log_z + float(np.log(LEAST_MASS))


def with_mass(job: Job, peaks: list[Peak], log_z: float) -> tuple[list[Peak], list[Peak]]:
    """Divide peaks into those that may have mass beside an evidence of `log_z`, and the others.

    A ridge has no curvature along it, and in the neck of a funnel the curvature at one point says
    little. So in few dimensions weighted draws tell the mass of those that seem to have some. In
    many dimensions Laplace's method can be far too low: no peak counts as light there.

    Returns
    -------
    heavy, light : list of Peak
    """
    least, heavy, light = least_mass(log_z), list[Peak](), list[Peak]()
    path = job.prior.path
    for peak in peaks:
        log_mass = peak.log_mass
        if log_mass > least and path.dim <= MAX_WEIGHED_DIM:
            log_mass = _weighed(job, peak)
        if log_mass > least:
            heavy.append(peak)
        elif not is_wide(path, MAX_WEIGHED_DIM):
            light.append(peak)
    return heavy, light


def _weighed(job: Job, peak: Peak) -> float:
    """Log mass of a peak by weighted draws of a t of its shape (nats)."""
    scales = FullScales(peak.cholesky[None])
    t = Mixture(np.ones(1), peak.mean[None], scales, np.array([WEIGHED_DOF]), 0.0)
    states = evaluate_states(job.prior, t.draw(N_WEIGHED, job.rng), job.value_cores)
    job.tally.work["scouts"] += N_WEIGHED
    return log_mean(states.log_target - t.log_t(states.xs)[:, 0])


def seen(
    peaks: list[Peak], log_z: float, draws: np.ndarray, part: float = SEEN_SHARE
) -> np.ndarray:
    """Whether posterior draws (n, d) hold about as much of each peak as has its mass."""
    held = [peak.holds(draws).mean() >= part * peak.share(log_z) for peak in peaks]
    return np.array(held, dtype=bool)


def unknown_peaks(peaks: list[Peak], fit: ReferenceFit, rng: np.random.Generator) -> list[Peak]:
    """Peaks that draws of the fit have not seen, or that its reference hardly covers.

    Where the reference draws all of its mass, a top that is covered too little has none of its own.
    """
    if not peaks:
        return []
    tops = evaluate_states(fit.reference.prior, np.array([peak.mean for peak in peaks]))
    draws = relabeled(fit.components, fit.components.draw(N_DRAWN, rng))
    drawn = seen(peaks, fit.log_z, draws, 1.0)
    known = seen(peaks, fit.log_z, fit.draws.xs) & (drawn | ~fit.suspects(tops))
    return [peak for peak, is_known in zip(peaks, known, strict=True) if not is_known]


def weigh_regions(
    job: Job, annealed: AnnealedPass, xs: np.ndarray, log_z: float, bound: int, dropped: float
) -> tuple[list[Peak], list[Peak], np.ndarray]:
    """Weigh the regions where states are stuck, one after the other.

    In many dimensions, those of a white field left out, a state may be long on its way to a mode,
    where there is no mass yet. So no region is light there.

    Parameters
    ----------
    job : Job
    annealed : AnnealedPass
        Whose tuning at beta = 1 the chains have.
    xs : array, shape (n, d)
    log_z : float
        Evidence without them (nats).
    bound : int
        Evaluations after which no further one is weighed.
    dropped : float
        Share of earlier regions that were let go; with all light ones it is less than `ISLAND`.

    Returns
    -------
    heavy, light : list of Peak
        Regions that may have mass, and those without.
    explained : array of bool, shape (n,)
        Which of the states lie in light ones.
    """
    heavy, light, cost = list[Peak](), list[Peak](), 0
    explained, wide = np.zeros(len(xs), dtype=bool), is_wide(job.prior.path, MAX_WEIGHED_DIM)
    if job.deadline.late:
        return heavy, light, explained
    for region, inside, spent in regions_of(job, annealed, xs, range(len(xs))):
        cost += spent
        if region.log_mass > least_mass(log_z):
            heavy.append(region)
        elif not wide and dropped + region.share(log_z) < ISLAND:
            dropped += region.share(log_z)
            light.append(region)
            explained |= inside
        if cost > bound or job.deadline.late:
            break
    job.tally.work["fit"] += cost
    return heavy, light, explained


def peaks_by_chains(
    job: Job, annealed: AnnealedPass, suspects: Evaluated
) -> tuple[list[Peak], bool]:
    """Where there are no gradients: what short chains from a suspect at beta = 1 go through."""
    order = np.argsort(-suspects.log_target, kind="stable")
    peaks, seen = list[Peak](), np.zeros(suspects.n, dtype=bool)
    for region, inside, spent in regions_of(job, annealed, suspects.xs, order):
        job.tally.work["scouts"] += spent
        peaks.append(region)
        seen |= inside
        if len(peaks) == MAX_PEAKS:
            break
    return peaks, bool(seen.all())


def regions_of(
    job: Job, annealed: AnnealedPass, xs: np.ndarray, order: Iterable[int]
) -> Iterator[tuple[Peak, np.ndarray, int]]:
    """Regions of states (n, d), one after the other, of states that lie in none before.

    Yields
    ------
    region : Peak
    inside : array of bool, shape (n,)
        Which of the states lie in it; the one that it is found from does.
    n_evaluations : int
    """
    held = np.zeros(len(xs), dtype=bool)
    for i in order:
        if not held[i]:
            region, spent = region_around(job, annealed, xs[i])
            inside = region.holds(xs)
            inside[i] = True
            held |= inside
            yield region, inside, spent


def region_around(job: Job, annealed: AnnealedPass, x: np.ndarray) -> tuple[Peak, int]:
    """Take the normal density of where chains at beta = 1 from a state stay, and its mass.

    For states of the target p in a region of mass Z the mean of q / p is 1 / Z for any normalized
    density q (Gelfand & Dey, 1994). q is normal, of half of the chains, and the mean is over the
    other half. Where q reaches farther than the chains Z is overrated. Of the two halves that serve
    in turn the larger Z counts.

    Returns
    -------
    region : Peak
    n_evaluations : int
    """
    chains = place(job.prior, job.kernel, np.tile(x, (CHAINS, 1)), job.rng)
    params = annealed.tuning.pack(job.kernel)[-1]
    sweep(chains, 1.0, params, CHAIN_BEGIN)
    kept = list[np.ndarray]()
    for _ in range(CHAIN_PARTS):
        sweep(chains, 1.0, params, CHAIN_SWEEPS)
        kept.append(np.column_stack([chains.xs, chains.values.sum(axis=1)]))
    states, n_white = np.array(kept), job.prior.path.n_white
    halves = (states[:, ::2].reshape(-1, x.size + 1), states[:, 1::2].reshape(-1, x.size + 1))
    log_mass = max(
        -log_mean(_normal(own[:, :-1], n_white).log_density(other[:, :-1]) - other[:, -1])
        for own, other in (halves, halves[::-1])
    )
    region = _normal(states[..., :-1].reshape(-1, x.size), n_white)
    return replace(region, log_mass=log_mass), CHAINS + chains.n_evaluations


def _normal(xs: np.ndarray, n_white: int) -> Peak:
    """Take the normal density with mean and covariance of states, (n, d); it has no mass yet.

    The last ones that are white have theirs. In many other dimensions only the variances, which few
    states tell.
    """
    n, dim = xs.shape[1] - n_white, xs.shape[1]
    mean, covariance = np.zeros(dim), np.eye(dim)
    mean[:n] = xs[:, :n].mean(axis=0)
    if n > MAX_WEIGHED_DIM:
        covariance[:n, :n] = np.diag((1e-5 + xs[:, :n].std(axis=0)) ** 2)
    else:
        own = np.cov(xs[:, :n], rowvar=False).reshape(n, n)
        covariance[:n, :n] = own + np.diag(1e-9 + 1e-6 * np.diag(own))
    return Peak(mean, np.linalg.cholesky(covariance), -np.inf)
