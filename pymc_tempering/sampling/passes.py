"""Independent annealed passes from the prior: what a fit starts from, and what checks it.

One pass follows its own particles: where phases part it may end in the wrong one, with all its
weight, and nothing in it shows that. Passes that know nothing of each other do not fail together
as often. Their number is fixed before they are made; where they differ there are more, and
agreement never makes them fewer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Event

import numpy as np

from pymc_tempering.core.deadline import annealing_lines
from pymc_tempering.core.threads import Task, run_tasks
from pymc_tempering.exceptions import LikelihoodError, TimeLimitError
from pymc_tempering.sampling.setup import Job
from pymc_tempering.warmup.annealed_pass import AnnealedPass, anneal

N_PARTICLES = 256
"""Particles of a pass."""

N_PASSES, MORE_PASSES = 3, 3
"""Passes of every search, and how many more there are where these differ."""

MAX_SPREAD, MODE_SHARE = 2.0, 0.1
"""Passes differ if their log Z do by more than so many nats, or if one has no particle in a mode
that holds this share of all."""

STAGE_COST = 20.0
"""Gradients for each particle after which a stage of a pass does not go on to tune its step
sizes. In the funnel of a centered prior they are tiny, and stages near the prior took nearly all
evaluations of the pass: they have little to do there, as their particles are nearly exact."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Annealed passes that are independent of each other.

    Attributes
    ----------
    each : tuple of AnnealedPass
        At least one.
    """

    each: tuple[AnnealedPass, ...]

    @cached_property
    def best(self) -> AnnealedPass:
        """The pass of the largest log Z: a pass misses what it misses, and states less."""
        return max(self.each, key=lambda one: float(one.log_z[-1]))

    @property
    def particles(self) -> np.ndarray:
        """Of all passes at beta = 1, shape (n, d), unconstrained."""
        return np.concatenate([one.particles for one in self.each])

    @property
    def log_z(self) -> np.ndarray:
        """Of each pass, in nats, shape (P,)."""
        return np.array([one.log_z[-1] for one in self.each])

    @property
    def n_evaluations(self) -> int:
        """Density evaluations of all passes."""
        return sum(one.n_evaluations for one in self.each)

    @property
    def complete(self) -> bool:
        """Whether no deadline cut one of them short."""
        return all(one.complete for one in self.each)

    def shares(self, marked: np.ndarray) -> np.ndarray:
        """Share of the particles of each pass that are marked, shape (P,); `marked` is (n,)."""
        sizes = np.cumsum([len(one.particles) for one in self.each])[:-1]
        return np.array([part.mean() for part in np.split(marked, sizes)])


def make_passes(job: Job) -> Passes:
    """Anneal particles from the prior, several times.

    Raises
    ------
    LikelihoodError, TimeLimitError
        No pass has come to its end.
    KeyboardInterrupt
    """
    return Passes(tuple(_make(job, N_PASSES, annealing_lines(job.report))))


def more_passes(job: Job, passes: Passes, mode: np.ndarray) -> Passes:
    """Make more passes where these differ: in log Z, or in the modes where their particles are.

    Parameters
    ----------
    job : Job
    passes : Passes
    mode : array of int, shape (n,)
        Of each particle.
    """
    here = np.array([passes.shares(mode == j) for j in range(mode.max() + 1)])
    lacking = (here.mean(axis=1) >= MODE_SHARE) & (here.min(axis=1) == 0.0)
    if job.deadline.late or not (np.ptp(passes.log_z) > MAX_SPREAD or lacking.any()):
        return passes
    job.report(f"Annealed passes differ: {MORE_PASSES} more of them")
    try:
        more = _make(job, MORE_PASSES, lambda beta: None)
    except (LikelihoodError, TimeLimitError):
        return passes
    return Passes((*passes.each, *(one for one in more if one.complete)))


def _make(job: Job, n: int, report: Callable[[float], None]) -> list[AnnealedPass]:
    """Make `n` passes, each with a generator of its own; those that fail are left out."""

    def work(own: np.random.Generator, tell: Callable[[float], None], stop: Event) -> _Made:
        def tell_or_stop(beta: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            tell(beta)

        if begun and job.deadline.late:
            return None
        begun.append(1)
        try:
            return anneal(
                job.prior, job.kernel, own, n_particles=N_PARTICLES, report=tell_or_stop,
                deadline=job.deadline, stage_cost=STAGE_COST,
            )  # fmt: skip
        except (LikelihoodError, TimeLimitError) as error:
            return error
        except KeyboardInterrupt:
            return None

    begun = list[int]()  # before the time is over
    tells = [report, *[lambda beta: None] * (n - 1)]
    tasks: list[Task[AnnealedPass | LikelihoodError | TimeLimitError]] = [
        partial(work, own, tell) for own, tell in zip(job.rng.spawn(n), tells, strict=True)
    ]
    results, interrupted = run_tasks(tasks, job.cores)
    if interrupted:
        raise KeyboardInterrupt("Interrupted while particles were annealed.")
    made = [one for one in results if isinstance(one, AnnealedPass)]
    if not made:
        raise next(one for one in results if isinstance(one, Exception))
    # What the time has cut short is of no use beside one that came to its end.
    return [one for one in made if one.complete] or made[:1]


type _Made = AnnealedPass | LikelihoodError | TimeLimitError | None
