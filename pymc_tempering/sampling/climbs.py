"""Climbs by gradients: scouts from the prior, and further climbs from other places.

Many short ascents from draws of the prior look for narrow modes. Such a mode is seldom met by
chance, but the region from which the gradient leads into it is far wider than the mode. A scout
says where to look, and never enters an estimate.

Scouts end where they come into a region that the fit knows, so a spike inside of one is met by
climbs to its top. A mode at data far from the prior is met by climbs of the likelihood, and one at
other combinations of coordinates than known modes by climbs from crossings of draws.
"""

from dataclasses import dataclass
from functools import partial
from math import ceil
from time import perf_counter

import numpy as np

from pymc_tempering.core.deadline import NEVER, Deadline, time_left
from pymc_tempering.model.path import Path
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.effort import SCOUTED_WORK, effort_of
from pymc_tempering.sampling.evaluated import Evaluated, Region, evaluate_states, join, slopes_at
from pymc_tempering.sampling.fit_reference import ReferenceFit

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

N_FURTHER, N_CROSSED, FURTHER_STEPS, FAR_STEPS = 30, 200, 40, 80
"""Climbs of each further kind, those from crossings of two draws (most of which end at home at
once), and steps of each; and of those up the likelihood, to data that may be far."""

INSIDE, OUTSIDE, WIDEST = 0.3, 0.003, 4.0
"""For each evaluation of the scouts: draws of the reference, of which those that the target exceeds
most are climbed from (one in 5,000 of a broad mode led to another behind walls); and climbs that
begin farther out than the prior, up to ten to this power times as far."""

FULL_SCOUTING = 40_000
"""Evaluations of the scouts below which there are fewer of all these, in proportion."""


@dataclass
class _Climbers:
    """Scouts at work: place, terms of the target, gradient and step factor of each.

    They climb the terms from the `first` on. Up the likelihood each coordinate has a factor of its
    own: one datum may be far out, and the others near.
    """

    xs: np.ndarray
    values: np.ndarray
    grads: np.ndarray
    factors: np.ndarray
    first: int = 0

    @property
    def heights(self) -> np.ndarray:
        """Log target, or log likelihood, shape (n,)."""
        return self.values[:, self.first :].sum(axis=1)

    def total(self, of_coordinates: np.ndarray) -> np.ndarray:
        """Sum of what factors are made from, (n, 1), or each where coordinates have their own."""
        return of_coordinates if self.first else of_coordinates.sum(axis=1, keepdims=True)

    def at(self, index: np.ndarray | slice) -> Evaluated:
        """Where some of them are."""
        values = self.values[index]
        return Evaluated(self.xs[index], values[:, 0], values[:, 1])


@np.errstate(all="ignore")  # far out slopes and steps are of any size
def ascend(
    path: Path,
    starts: np.ndarray,
    scale: np.ndarray,
    known: Region,
    max_steps: int = SCOUT_STEPS,
    deadline: Deadline = NEVER,
    *,
    turns_back: bool = False,
    likelihood: bool = False,
    longest: float = LONGEST_STEP,
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
    likelihood : bool, default False
        Whether the log likelihood alone is climbed, by steps of any length: data may be far out.
    longest : float, optional
        Length of the longest step otherwise, in standard deviations of the prior.
    cores : int, default 1

    Returns
    -------
    ends : Evaluated
        Only those that ended outside of the known regions, at a finite density.
    n_evaluations : int
        Of gradients.
    """
    starts = starts[np.isfinite(starts).all(axis=1)]
    first = int(likelihood)
    climbers, evaluations = _place(path, starts, scale, first, cores), len(starts)
    lengths = np.sqrt(climbers.total(climbers.grads**2))
    size = FIRST_STEP if likelihood else FIRST_STEP * np.sqrt(path.dim)
    climbers.factors = np.where(lengths > 0, size / np.maximum(lengths, 1e-300), 0.0)
    everywhere = slice(None)
    home, left = known(climbers.at(everywhere))
    outside = np.isfinite(climbers.heights) & ~home
    nearer = np.zeros(len(starts), dtype=int)
    for _ in range(max_steps):
        at = np.flatnonzero(outside)
        if at.size == 0 or deadline.late:
            break
        evaluations += at.size
        moved = at[_step(path, climbers, at, scale, longest, cores)]
        home, now = known(climbers.at(moved))
        nearer[moved] = np.where(now < NEARER * left[moved], nearer[moved] + 1, 0)
        left[moved] = now
        outside[moved] = ~(home | (nearer[moved] >= HEADING) if turns_back else home)
    return climbers.at(outside), evaluations


def _place(path: Path, xs: np.ndarray, scale: np.ndarray, first: int, cores: int) -> _Climbers:
    """Put climbers at states."""
    return _Climbers(xs, *slopes_at(path, xs, scale, cores, first), np.zeros((len(xs), 1)), first)


def _step(
    path: Path,
    climbers: _Climbers,
    at: np.ndarray,
    scale: np.ndarray,
    longest: float,
    cores: int,
) -> np.ndarray:
    """Move the climbers `at`; returns which of them went up, shape (n,) of bool."""
    step = climbers.factors[at] * climbers.grads[at]
    if climbers.first == 0:
        length = np.linalg.norm(step, axis=1, keepdims=True)
        step *= np.minimum(1.0, longest * np.sqrt(path.dim) / np.maximum(length, 1e-300))
    step[~np.isfinite(step)] = 0.0
    new = _place(path, climbers.xs[at] + step * scale, scale, climbers.first, cores)
    up = new.heights > climbers.heights[at]
    bend = -climbers.total((new.grads - climbers.grads[at]) * step)
    old = climbers.factors[at]
    secant = np.where(bend > 0, climbers.total(step**2) / bend, np.inf)
    longer = np.where(bend > 0, secant, 4.0 * old)
    # Of coordinates with factors of their own those have gone too far that bend, if some do.
    others = np.where((bend > 0).any(axis=1, keepdims=True), old, 0.1 * old)
    shorter = np.where(bend > 0, np.minimum(secant, 0.5 * old), others)
    factors = np.where(up[:, None], longer, shorter)
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


def climb_further(job: Job, fit: ReferenceFit, scale: np.ndarray) -> Evaluated:
    """Climb from where scouts do not begin; where the climbs end.

    From draws of the fit to the tops of known regions, and from those of many draws of the
    reference that the target exceeds most; from the prior to tops of the likelihood, which may be
    so far from it that the posterior does not lead there, and from farther out than the prior; and
    from crossings of two draws of the fit, some coordinates from one and some from the other, which
    may be of two modes.
    """
    prior, rng, draws, most = job.prior, job.rng, fit.draws.xs, scouting_of(job)
    part = min(1.0, most / FULL_SCOUTING)
    n, n_crossed = int(part * N_FURTHER), int(part * N_CROSSED)
    n_drawn, n_wide = int(INSIDE * most), int(OUTSIDE * most)
    if prior.path.density.data.evaluator is not None:
        n_wide = 0  # a user's own code may know no such numbers
    many = evaluate_states(prior, fit.components.draw(n_drawn, rng), job.value_cores)
    best = np.argsort(-many.log_ratio(fit.components))[:n]
    inside = np.concatenate([rng.choice(draws, n), many.xs[best]])
    drawn = prior.draw(n, prior.spawn(rng))
    one, other = (rng.choice(draws, n_crossed) for _ in range(2))
    crossed = np.where(rng.random(one.shape) < 0.5, one, other)
    widths, center = 10.0 ** rng.uniform(0.0, WIDEST, (n_wide, 1)), np.median(prior.sample, axis=0)
    wide = center + widths * (prior.draw(n_wide, prior.spawn(rng)) - center)
    climb = partial(
        ascend, prior.path, scale=scale, max_steps=FURTHER_STEPS, deadline=job.deadline,
        cores=job.value_cores,
    )  # fmt: skip
    ends = [
        climb(inside, known=_nowhere),
        climb(drawn, known=_nowhere, likelihood=True, max_steps=FAR_STEPS),
        climb(crossed, known=fit.locate),
        climb(wide, known=fit.locate, max_steps=FAR_STEPS, longest=np.inf),
    ]
    job.tally.work["scouts"] += n_drawn + sum(cost for _, cost in ends)
    return join([states for states, _ in ends])


def _nowhere(states: Evaluated) -> tuple[np.ndarray, np.ndarray]:
    """Tell that no state is home, and each as far from it: a `Region` that ends no climb."""
    return np.zeros(states.n, dtype=bool), np.full(states.n, np.inf)


def spread_of(xs: np.ndarray) -> np.ndarray:
    """Width of each variable between its quartiles, as a standard deviation; safe in any tail."""
    xs = xs[np.isfinite(xs).all(axis=1)]
    low, high = np.quantile(xs, [0.25, 0.75], axis=0)
    width = (high - low) / 1.349
    return np.where(np.isfinite(width) & (width > 0), width, 1.0)
