"""What the front doors share: kernels that move particles, a schedule from a pilot, and blocks."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter

import numpy as np
import pymc as pm

from pymc_tempering.chain.carry import carry
from pymc_tempering.chain.particles import Particles, draw_particles, place
from pymc_tempering.chain.tuning import Tuning
from pymc_tempering.core.ladder import barrier_of, check_betas, space_betas
from pymc_tempering.core.overflows import SENTENCE
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.evidence.particle_weights import merge_sums
from pymc_tempering.exceptions import LadderError, ModelError, PriorDrawsError
from pymc_tempering.executors.crew import Workers, run_work
from pymc_tempering.kernels import CONTINUOUS, HMC, Compound, Kernel
from pymc_tempering.kernels.assign import KernelChoice, assign_kernels
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.kernels.persistent import Persistent
from pymc_tempering.kernels.variables import free_variables
from pymc_tempering.model.check import find_model
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.layout import model_layout
from pymc_tempering.references.prior import Prior, Reference
from pymc_tempering.warmup.annealed_pass import AnnealedPass, anneal

SINGLE_STEPS: dict[str, Callable[[], Kernel]] = {
    "leapfrog": partial(HMC, max_steps=1),
    "persistent": Persistent,
}
"""Transitions of one leapfrog step, for schedules of many rungs: with a fresh momentum, and with
one that goes along from rung to rung."""

TARGET_ACCEPT = 0.8
"""Acceptance that kernels with gradients are tuned for, where they do not say otherwise."""


@dataclass(frozen=True, eq=False)
class Movers:
    """A compiled model and the kernels that move its particles.

    Attributes
    ----------
    reference : Prior
    kernel : Compound
        Of the particles that count.
    mixing : Compound
        Of the particles that learn the path; the same unless `kernel` makes single steps, which
        would not mix by themselves.
    """

    reference: Prior
    kernel: Compound
    mixing: Compound

    @property
    def cheap(self) -> bool:
        """Whether a transition is a single step, so that a schedule can have many rungs."""
        return self.kernel is not self.mixing


def compile_movers(
    model: pm.Model | CompiledModel | None,
    transition: KernelChoice,
    report: Callable[[str], None],
    *,
    reversal: bool = False,
    carried: bool = True,
) -> Movers:
    """Compile a model with the kernels of an annealing method, and check it at prior draws.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    transition : str, Kernel, mapping or None
        As `kernel` of `pmt.sample`, or a name in `SINGLE_STEPS`.
    report : callable
        Called with a line of progress.
    reversal : bool, default False
        Whether the method needs the kernels' reversal in time.
    carried : bool, default True
        Whether a kernel may keep a momentum from one transition to the next.

    Raises
    ------
    KernelError
        The method needs a reversal, and a kernel does not say what its reversal is.
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError, PriorDrawsError
        The model has no such path; see their messages.
    """
    model = find_model(model)
    single = isinstance(transition, str) and transition in SINGLE_STEPS
    choice = SINGLE_STEPS[str(transition)]() if single else transition
    reference, kernel = compile_with_kernels(
        model, choice, TARGET_ACCEPT, report, carried=carried, reversal=reversal
    )
    if not reference.path.terms.normalized_prior:
        raise ModelError(
            f"The priors of {', '.join(reference.path.terms.wide)} have no random draws that fit "
            "their densities, so annealing would start from another prior than the model's. "
            "pmt.sample finds the missing constant in a run of its own."
        )
    if not np.isfinite(reference.prior_constant[1]):
        raise PriorDrawsError(SENTENCE)
    mixing = assign_kernels(model, reference.path.layout) if single else kernel
    return Movers(reference, kernel, mixing)


def check_continuous(model: pm.Model, method: str) -> None:
    """Refuse a model without real variables, which have no momentum."""
    kinds = {variable.kind for variable in free_variables(model, model_layout(model))}
    if CONTINUOUS not in kinds:
        raise ModelError(
            f"{method} keeps the momentum of real variables, and this model has none: all its free "
            "variables are discrete. Use pmt.ais, whose kernels move them."
        )


BLOCK = 32
"""Particles of one block, which has its own generator and runs on one thread."""

TRIAL_PARTICLES = 128
MAX_LOG_SPREAD = 0.5
"""Variance of the log weights that an automatic schedule is made for."""

MIN_RUNGS, MAX_GROWTH, MAX_TRIALS = 8, 8.0, 6

MAX_RUNGS, MAX_CHEAP_RUNGS = 5_000, 50_000
"""Rungs of an automatic schedule at most; a trajectory costs several evaluations a rung."""

PILOT_PARTICLES = 256

type Betas = int | Sequence[float] | np.ndarray | None
type Report = Callable[[str], None]
type Start = Callable[[Compound], Particles]


@dataclass(frozen=True, eq=False)
class BetaSchedule:
    """A frozen schedule: inverse temperatures, and the kernels with their tuning at each.

    Attributes
    ----------
    kernel : Compound
    tuning : Tuning
    n_evaluations : int
        Density evaluations that it took to find it.
    """

    kernel: Compound
    tuning: Tuning
    n_evaluations: int = 0

    @property
    def betas(self) -> np.ndarray:
        """Inverse temperatures from 0 to 1, shape (K,)."""
        return self.tuning.betas

    @cached_property
    def params(self) -> np.ndarray:
        """Tuning numbers as compiled code reads them, shape (K, P)."""
        return self.tuning.pack(self.kernel)

    def reversed(self) -> "BetaSchedule":
        """Schedule with the reversals in time of its kernels."""
        return BetaSchedule(self.kernel.reversed(), self.tuning.reversed(), self.n_evaluations)


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


@dataclass(frozen=True, eq=False)
class WeightedEnds:
    """Particles from the prior at the end of the path: weighted posterior draws.

    Groups are independent of each other; within one the particles may share ancestors.

    Attributes
    ----------
    states : array, shape (n, d)
        Unconstrained.
    log_w : array, shape (n,)
        Log weights (nats), such that the mean of the weights estimates Z.
    group : array of int, shape (n,)
    """

    states: np.ndarray
    log_w: np.ndarray
    group: np.ndarray


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


def learn_path(
    movers: Movers, rng: np.random.Generator, report: Report, *, keep_states: bool = False
) -> AnnealedPass:
    """Learn the path with a small population, which no estimate uses."""
    report("Learning the path with a pilot")
    single = movers.kernel is not movers.mixing
    return anneal(
        movers.reference, movers.mixing, rng, n_particles=PILOT_PARTICLES, keep_states=keep_states,
        other=movers.kernel if single else None,
    )  # fmt: skip


def freeze(movers: Movers, path: AnnealedPass, betas: np.ndarray) -> BetaSchedule:
    """Schedule at given inverse temperatures, with the tuning that a path has there."""
    tuning = path.tuning if path.other is None else path.other
    return BetaSchedule(movers.kernel, tuning.at(betas), path.n_evaluations)


def given_betas(betas: int | Sequence[float] | np.ndarray, path: AnnealedPass) -> np.ndarray:
    """Inverse temperatures as given, or so many at equal distances along the path."""
    if isinstance(betas, int | np.integer):
        return space_betas(barrier_of(path.alive), int(betas))
    return check_betas(betas)


def anneal_blocks(
    starts: Sequence[Start],
    schedule: BetaSchedule,
    cores: Workers,
    *,
    down: bool = False,
    report: Report = lambda line: None,
) -> CarriedParticles:
    """Carry blocks of particles along a schedule, each on a thread.

    Parameters
    ----------
    starts : sequence of callables
        Make the particles of each block for a kernel, with a generator of its own.
    schedule : BetaSchedule
    cores : int or Crew, optional
    down : bool, default False
        From beta = 1 to 0, with the reversals of the schedule's kernels.
    report : callable, optional

    Returns
    -------
    CarriedParticles

    Raises
    ------
    KeyboardInterrupt
        No block was finished.
    """
    schedule = schedule.reversed() if down else schedule
    n_intervals, params = schedule.betas.size - 1, schedule.params

    def task(start: Start, first: int) -> Task:
        def run(stop: threading.Event) -> tuple[Particles, np.ndarray, np.ndarray, int] | None:
            particles = start(schedule.kernel)
            n = particles.n
            log_w, sums = np.zeros(n), np.zeros((n_intervals + 1, 3))
            sums[:, 0] = -np.inf
            sums[0] = 0.0, n, n
            done = 0
            for begin, end in paced(n_intervals, stop):
                carry(particles, schedule.betas, params, begin, end, log_w, sums, down=down)
                done = end
            return (particles, log_w, sums, first) if done == n_intervals else None

        return run

    tasks = [task(start, i) for i, start in enumerate(starts)]
    results, interrupted = run_work(
        tasks, cores, lambda done: report(f"Annealing: {done} of {len(tasks)} blocks of particles")
    )
    if not results:
        raise KeyboardInterrupt("Interrupted before the first block of particles was finished.")
    blocks = [particles for particles, *_ in results]
    index = [i * BLOCK + np.arange(p.n) for p, _, _, i in results]
    evaluations = sum(p.n + p.n_evaluations for p in blocks)
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


def prior_blocks(reference: Reference, n: int, rng: np.random.Generator) -> list[Start]:
    """Blocks of exact, independent reference draws, n particles in all."""
    sizes = block_sizes(n)

    def start(size: int, own: np.random.Generator) -> Start:
        return lambda kernel: draw_particles(reference, kernel, size, own)

    return [start(size, own) for size, own in zip(sizes, rng.spawn(len(sizes)), strict=True)]


def placed_blocks(reference: Reference, xs: np.ndarray, rng: np.random.Generator) -> list[Start]:
    """Blocks of particles at given states, shape (n, d)."""
    parts = [xs[at : at + BLOCK] for at in range(0, len(xs), BLOCK)]

    def start(part: np.ndarray, own: np.random.Generator) -> Start:
        return lambda kernel: place(reference, kernel, part.copy(), own)

    return [start(part, own) for part, own in zip(parts, rng.spawn(len(parts)), strict=True)]


def make_schedule(
    movers: Movers,
    betas: Betas,
    rng: np.random.Generator,
    *,
    cores: Workers = None,
    report: Report = lambda line: None,
    run: Callable[[BetaSchedule, int], CarriedParticles] | None = None,
    density: float = 4.0,
    most: int | None = None,
) -> tuple[BetaSchedule, AnnealedPass]:
    """Find a schedule by a pilot, and freeze it.

    Without `betas`, rungs stand at equal distances along the path, and their number grows until
    the weights of a trial of 128 particles, which are then thrown away, are nearly equal.

    Parameters
    ----------
    movers : Movers
    betas : None, int or sequence of float
    rng : numpy.random.Generator
    cores : int, optional
    report : callable, optional
    run : callable, optional
        Runs n particles along a schedule; by default they are annealed upward.
    density : float, default 4.0
        Rungs of the first trial, over the square of the path's length.
    most : int, optional
        Rungs at most, else a LadderError.
    """
    path = learn_path(movers, rng, report)
    if betas is not None:
        return freeze(movers, path, given_betas(betas, path)), path

    def upward(schedule: BetaSchedule, n: int) -> CarriedParticles:
        return anneal_blocks(prior_blocks(movers.reference, n, rng), schedule, cores, report=report)

    run = upward if run is None else run
    barrier, evaluations = barrier_of(path.alive), path.n_evaluations
    max_rungs = most or (MAX_CHEAP_RUNGS if movers.cheap else MAX_RUNGS)
    n_rungs = int(np.clip(density * barrier[1][-1] ** 2, MIN_RUNGS, max_rungs))
    for _ in range(MAX_TRIALS):
        schedule = freeze(movers, path, space_betas(barrier, n_rungs))
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
        if most is not None and growth * n_rungs > most:
            raise LadderError(
                f"it would take about {growth * n_rungs:,.0f} rungs, more than {most}, for weights "
                'that are nearly equal; "smc" goes the same way at less cost'
            )
        n_rungs = min(max_rungs, int(np.ceil(growth * n_rungs)))
    return replace(schedule, n_evaluations=evaluations), path


def run_warnings(annealed: CarriedParticles, asked: int) -> tuple[str, ...]:
    """Sentence about particles that are missing, if some are."""
    if not annealed.interrupted:
        return ()
    return (
        f"Interrupted: {annealed.log_w.size} of {asked} particles were finished; the estimate "
        "uses these alone.",
    )


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.start = perf_counter()

    def __call__(self) -> float:
        """Return the seconds so far."""
        return perf_counter() - self.start
