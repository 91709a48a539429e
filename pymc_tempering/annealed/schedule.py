"""What the front doors share: checks of arguments, a schedule from a pilot, particles in blocks."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pymc as pm

from pymc_tempering.annealed.particle_weights import effective_number, merge_sums
from pymc_tempering.annealed.particles import Particles, anneal, draw_particles
from pymc_tempering.annealed.pilot import Pilot, run_pilot, space_betas
from pymc_tempering.annealed.transition import N_EVALUATIONS
from pymc_tempering.core.ladder import check_betas
from pymc_tempering.core.threads import Task, paced, run_tasks
from pymc_tempering.exceptions import LadderError
from pymc_tempering.model.check import find_model
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import Reference

BLOCK = 32
"""Particles of one block, which has its own generator and runs on one thread."""

TRIAL_PARTICLES = 128
MAX_LOG_SPREAD = 0.5
"""Variance of the log weights that an automatic schedule is made for."""

MIN_RUNGS, MAX_GROWTH, MAX_TRIALS = 8, 8.0, 6

type Betas = int | Sequence[float] | np.ndarray | None
type Report = Callable[[str], None]


@dataclass(frozen=True)
class BetaSchedule:
    """A frozen schedule: inverse temperatures, and the transition's tuning numbers at each.

    Attributes
    ----------
    betas : array, shape (K,)
    params : array, shape (K, P)
    n_evaluations : int
        Density evaluations that it took to find it.
    """

    betas: np.ndarray
    params: np.ndarray
    n_evaluations: int


@dataclass(frozen=True)
class CarriedParticles:
    """Particles that were carried along a schedule.

    Attributes
    ----------
    log_w : array, shape (n,)
    states : array, shape (n, d)
        At the end, unconstrained.
    sums : array, shape (K, 3)
        Running sums of the weights at each rung.
    index : array of int, shape (n,)
        Which of the particles asked for these are, where Ctrl-C left some out.
    n_evaluations, n_nan : int
    interrupted : bool
    """

    log_w: np.ndarray
    states: np.ndarray
    sums: np.ndarray
    index: np.ndarray
    n_evaluations: int
    n_nan: int
    interrupted: bool


def check_schedule(betas: Betas) -> None:
    """Refuse a schedule that does not run from 0 to 1, before any work."""
    if betas is None:
        return
    if np.ndim(betas) > 0:
        check_betas(betas)
    elif not isinstance(betas, int | np.integer) or isinstance(betas, bool) or betas < 2:
        raise LadderError(
            f"betas must be None, the number of rungs (2 or more), or the inverse temperatures "
            f"from 0 to 1, not {betas!r}."
        )


def given_betas(betas: int | Sequence[float] | np.ndarray, pilot: Pilot) -> np.ndarray:
    """Inverse temperatures as given, or so many at equal distances along the pilot's path."""
    if isinstance(betas, int | np.integer):
        return space_betas(pilot, int(betas))
    return check_betas(betas)


def compile_reference(model: pm.Model | None, report: Report) -> Reference:
    """Compile the path of a model from its prior, and check it there."""
    return compile_model(find_model(model), report)


def anneal_blocks(
    starts: Sequence[Callable[[], Particles]],
    schedule: BetaSchedule,
    cores: int | None,
    *,
    down: bool = False,
    report: Report = lambda line: None,
) -> CarriedParticles:
    """Carry blocks of particles along a schedule, each on a thread.

    Parameters
    ----------
    starts : sequence of callables
        Make the particles of each block, with a generator of its own.
    schedule : BetaSchedule
    cores : int, optional
    down : bool, default False
        From beta = 1 to 0.
    report : callable, optional

    Returns
    -------
    Annealed

    Raises
    ------
    KeyboardInterrupt
        No block was finished.
    """
    n_intervals = schedule.betas.size - 1

    def task(start: Callable[[], Particles], first: int) -> Task:
        def run(stop: threading.Event) -> tuple[Particles, np.ndarray, np.ndarray, int] | None:
            particles = start()
            n = len(particles.xs)
            log_w, sums = np.zeros(n), np.zeros((n_intervals + 1, 3))
            sums[:, 0] = -np.inf
            sums[0] = 0.0, n, n
            done = 0
            for begin, end in paced(n_intervals, stop):
                anneal(
                    particles, schedule.betas, schedule.params, begin, end, log_w, sums, down=down
                )
                done = end
            return (particles, log_w, sums, first) if done == n_intervals else None

        return run

    tasks = [task(start, i) for i, start in enumerate(starts)]
    results, interrupted = run_tasks(
        tasks, cores, lambda done: report(f"Annealing: {done} of {len(tasks)} blocks of particles")
    )
    if not results:
        raise KeyboardInterrupt("Interrupted before the first block of particles was finished.")
    blocks = [particles for particles, *_ in results]
    index = [i * BLOCK + np.arange(len(p.xs)) for p, _, _, i in results]
    evaluations = sum(len(p.xs) + p.totals[N_EVALUATIONS] for p in blocks)
    return CarriedParticles(
        np.concatenate([log_w for _, log_w, _, _ in results]),
        np.concatenate([p.xs for p in blocks]),
        merge_sums([sums for _, _, sums, _ in results]),
        np.concatenate(index),
        int(evaluations),
        sum(p.n_nan for p in blocks),
        interrupted,
    )


def block_sizes(n: int) -> list[int]:
    """Numbers of particles in the blocks that n particles make."""
    return [min(BLOCK, n - at) for at in range(0, n, BLOCK)]


def prior_blocks(
    reference: Reference, n: int, rng: np.random.Generator
) -> list[Callable[[], Particles]]:
    """Blocks of exact, independent reference draws, n particles in all."""
    sizes = block_sizes(n)

    def start(size: int, own: np.random.Generator) -> Callable[[], Particles]:
        return lambda: draw_particles(reference, size, own)

    return [start(size, own) for size, own in zip(sizes, rng.spawn(len(sizes)), strict=True)]


def make_schedule(
    reference: Reference,
    betas: Betas,
    transition: str,
    rng: np.random.Generator,
    *,
    max_rungs: int,
    cores: int | None = None,
    report: Report = lambda line: None,
    run: Callable[[BetaSchedule, int], CarriedParticles] | None = None,
    density: float = 4.0,
) -> tuple[BetaSchedule, Pilot]:
    """Find a schedule by a pilot, and freeze it.

    Without `betas`, rungs stand at equal distances along the path, and their number grows until
    the weights of a trial of 128 particles, which are then thrown away, are nearly equal.

    Parameters
    ----------
    reference : Reference
    betas : None, int or sequence of float
    transition : str
    rng : numpy.random.Generator
    max_rungs : int
    cores : int, optional
    report : callable, optional
    run : callable, optional
        Runs n particles along a schedule; by default they are annealed upward.
    density : float, default 4.0
        Rungs of the first trial, over the square of the path's length.

    Returns
    -------
    BetaSchedule, Pilot
    """
    report("Learning the path with a pilot")
    pilot = run_pilot(reference, rng, transition)
    evaluations = pilot.n_evaluations
    if betas is not None:
        fixed = given_betas(betas, pilot)
        return BetaSchedule(fixed, pilot.params(fixed), evaluations), pilot
    barrier = pilot.barrier[1][-1]
    n_rungs = int(np.clip(density * barrier**2, MIN_RUNGS, max_rungs))
    for _ in range(MAX_TRIALS):
        spaced = space_betas(pilot, n_rungs)
        schedule = BetaSchedule(spaced, pilot.params(spaced), evaluations)
        if run is None:
            starts = prior_blocks(reference, TRIAL_PARTICLES, rng)
            trial = anneal_blocks(starts, schedule, cores, report=report)
        else:
            trial = run(schedule, TRIAL_PARTICLES)
        if trial.interrupted:
            raise KeyboardInterrupt("Interrupted before the particles that count started.")
        evaluations += trial.n_evaluations
        # Particles of zero likelihood from the start are not to be helped by more rungs.
        alive = max(int(np.sum(trial.log_w > -np.inf)), 1)
        spread = float(np.log(alive / max(effective_number(trial.log_w), 1.0)))
        if spread < MAX_LOG_SPREAD or n_rungs >= max_rungs:
            break
        growth = min(MAX_GROWTH, 1.3 * spread / MAX_LOG_SPREAD)
        n_rungs = min(max_rungs, int(np.ceil(growth * n_rungs)))
    return BetaSchedule(schedule.betas, schedule.params, evaluations), pilot


def run_warnings(annealed: CarriedParticles, asked: int) -> tuple[str, ...]:
    """Sentences about particles that are missing or that met a NaN."""
    said = []
    if annealed.interrupted:
        said.append(
            f"Interrupted: {annealed.log_w.size} of {asked} particles were finished; the estimate "
            "uses these alone."
        )
    if annealed.n_nan:
        said.append(
            f"The log-likelihood was not a number at {annealed.n_nan} of {annealed.log_w.size} "
            "starting states, which count as zero likelihood: look for NaN in the model."
        )
    return tuple(said)


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.start = perf_counter()

    def __call__(self) -> float:
        """Return the seconds so far."""
        return perf_counter() - self.start
