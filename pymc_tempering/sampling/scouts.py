"""Scouts: many short gradient ascents from draws of the prior, in search of unknown modes.

A narrow mode is seldom met by chance, but the region from which the gradient leads into it is far
wider than the mode. A scout says where to look, and never enters an estimate.
"""

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from pymc_tempering.core.deadline import NEVER, Deadline, time_left
from pymc_tempering.model.path import Path
from pymc_tempering.sampling.evaluated import Evaluated, join
from pymc_tempering.sampling.gradients import slopes_at
from pymc_tempering.sampling.known import Known, Region
from pymc_tempering.sampling.setup import Job

MAX_STEPS = 12
"""Steps of a scout at most."""

SCOUT_BATCH, MAX_SCOUT_BATCH = 500, 8000
"""Scouts that climb together at first, and at most."""

SCOUT_WORK, SCOUTING = 80_000_000, (10_000, 400_000)
"""Elements that the scouts of a round compute, and the bounds of the evaluations that these buy.
Where a value takes a microsecond they are some tenths of a second, as the run itself is."""

HEADING, NEARER = 3, 0.9
"""Steps in a row that each bring a scout nearer to a known region, to this part of its squared
distance at most, before it is taken to be on its way there."""

FIRST_STEP, LONGEST_STEP = 0.05, 3.0
"""Lengths of a scout's first step and of its longest, in standard deviations of the prior."""


@dataclass(frozen=True, eq=False)
class Ascent:
    """Where ascents ended.

    Attributes
    ----------
    ends : Evaluated
        Only those that ended outside of the known regions, at a finite density.
    n_evaluations : int
        Gradient evaluations.
    """

    ends: Evaluated
    n_evaluations: int


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
        return np.asarray(self.values.sum(axis=1))

    def at(self, index: np.ndarray | slice) -> Evaluated:
        """Where some of them are."""
        values = self.values[index]
        return Evaluated(self.xs[index], values[:, 0], values[:, 1])


def ascend(
    path: Path,
    starts: np.ndarray,
    scale: np.ndarray,
    known: Region,
    max_steps: int = MAX_STEPS,
    deadline: Deadline = NEVER,
    *,
    turns_back: bool = False,
) -> Ascent:
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
    """
    starts = starts[np.isfinite(starts).all(axis=1)]
    climbers, evaluations = _place(path, starts, scale), len(starts)
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
        moved = at[_step(path, climbers, at, scale)]
        home, now = known(climbers.at(moved))
        nearer[moved] = np.where(now < NEARER * left[moved], nearer[moved] + 1, 0)
        left[moved] = now
        outside[moved] = ~(home | (nearer[moved] >= HEADING) if turns_back else home)
    return Ascent(climbers.at(outside), evaluations)


def _place(path: Path, xs: np.ndarray, scale: np.ndarray) -> _Climbers:
    """Put climbers at states."""
    return _Climbers(xs, *slopes_at(path, xs, scale), np.zeros(len(xs)))


def _step(path: Path, climbers: _Climbers, at: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Move the climbers `at`; returns which of them went up, shape (n,) of bool."""
    step = climbers.factors[at, None] * climbers.grads[at]
    length = np.linalg.norm(step, axis=1, keepdims=True)
    longest = LONGEST_STEP * np.sqrt(path.dim)
    step *= np.minimum(1.0, longest / np.maximum(length, 1e-300))
    new = _place(path, climbers.xs[at] + step * scale, scale)
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
    least, most = SCOUTING
    return int(np.clip(SCOUT_WORK / job.prior.path.work, least, most))


def send_scouts(job: Job, known: Known, scale: np.ndarray) -> tuple[Evaluated, int]:
    """Send scouts from the prior, as many as their work allows.

    Returns
    -------
    ends : Evaluated
        Where they ended outside of the known regions.
    n_evaluations : int
    """
    prior, evaluations, began = job.prior, 0, perf_counter()
    ends: list[Evaluated] = []
    sent, batch, most = 0, SCOUT_BATCH, scouting_of(job)
    while not sent or (evaluations < most and not job.deadline.late):
        left = time_left(evaluations / most, began)
        job.report(f"Scouts from the prior: {sent}{left}")
        starts = prior.draw(batch, prior.spawn(job.rng))
        ascent = ascend(
            prior.path, starts, scale, known.locate, deadline=job.deadline, turns_back=True
        )
        ends.append(ascent.ends)
        evaluations += ascent.n_evaluations
        sent, batch = sent + batch, min(2 * batch, MAX_SCOUT_BATCH)
    return join(ends), evaluations


def spread_of(xs: np.ndarray) -> np.ndarray:
    """Width of each variable between its quartiles, as a standard deviation; safe in any tail."""
    xs = xs[np.isfinite(xs).all(axis=1)]
    low, high = np.quantile(xs, [0.25, 0.75], axis=0)
    width = (high - low) / 1.349
    return np.where(np.isfinite(width) & (width > 0), width, 1.0)
