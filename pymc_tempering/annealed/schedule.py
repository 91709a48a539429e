"""What the front doors share: kernels that move particles, a schedule from a pilot, and blocks."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import perf_counter

import numpy as np

from pymc_tempering.arguments import RandomSeed, check_whole, rng_of
from pymc_tempering.arrays.carried import (
    N_SHARE,
    Betas,
    Carried,
    check_schedule,
    given_betas,
    log_share,
    merge_sums,
)
from pymc_tempering.chain.particles import Particles, carry, draw_particles, place
from pymc_tempering.chain.pieces import crew_of
from pymc_tempering.chain.plan import Tuning
from pymc_tempering.core.cycles import OVERFLOW_SAID
from pymc_tempering.core.findings import Finding
from pymc_tempering.core.ladder import barrier_of, space_betas
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import with_findings
from pymc_tempering.exceptions import LadderError, ModelError, PriorDrawsError
from pymc_tempering.executors.chunks import Workers, check_executor, run_work
from pymc_tempering.kernels import HMC, Compound, Kernel
from pymc_tempering.kernels.assign import KernelChoice, assign_kernels, compile_with_kernels
from pymc_tempering.kernels.hmc import Persistent
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.references.as_written import findings_at
from pymc_tempering.references.prior import Prior, Reference, evaluate_draws
from pymc_tempering.summed.sum_out import without_sums
from pymc_tempering.warmup.annealed_pass import AnnealedPass, anneal

SINGLE_STEPS: dict[str, Callable[[], Kernel]] = {
    "leapfrog": partial(HMC, max_steps=1),
    "persistent": Persistent,
}
"""Transitions of one leapfrog step, for schedules of many rungs: with a fresh momentum, and with
one that goes along from rung to rung."""

TARGET_ACCEPT = 0.8
"""Acceptance that kernels with gradients are tuned for, where they do not say otherwise."""

BLOCK = 32
"""Particles of one block, which has its own generator and runs on one thread."""

TRIAL_PARTICLES = 128
MAX_LOG_SPREAD = 0.5
"""Variance of the log weights that an automatic schedule is made for."""

MIN_RUNGS, MAX_GROWTH, MAX_TRIALS = 8, 8.0, 6

MAX_RUNGS, MAX_CHEAP_RUNGS = 5_000, 50_000
"""Rungs of an automatic schedule at most; a trajectory costs several evaluations a rung."""

FIRST_RUNGS = 4.0
"""Rungs of the first trial, over the square of the path's length."""

PILOT_PARTICLES = 256

type Report = Callable[[str], None]
type Start = Callable[[Compound], Particles]


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
    model: ModelLike | None,
    transition: KernelChoice,
    report: Callable[[str], None],
    *,
    reversal: bool = False,
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

    Raises
    ------
    KernelError
        The method needs a reversal, and a kernel does not say what its reversal is.
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError, PriorDrawsError
        The model has no such path; see their messages.
    """
    single = isinstance(transition, str) and transition in SINGLE_STEPS
    choice = SINGLE_STEPS[str(transition)]() if single else transition
    model = without_sums(find_model(model), choice)
    reference, kernel = compile_with_kernels(
        model, choice, TARGET_ACCEPT, report, carried=True, reversal=reversal
    )
    if not reference.path.terms.normalized_prior:
        raise ModelError(
            f"The priors of {', '.join(reference.path.terms.wide)} have no random draws that fit "
            "their densities, so annealing would start from another prior than the model's. "
            "pmt.sample finds the missing constant in a run of its own."
        )
    if not np.isfinite(reference.prior_constant[1]):
        raise PriorDrawsError(OVERFLOW_SAID)
    mixing = assign_kernels(model, reference.path.layout) if single else kernel
    return Movers(reference, kernel, mixing)


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


@dataclass(frozen=True, eq=False)
class Annealing:
    """What one call of a front door works with, once its model is compiled.

    Attributes
    ----------
    movers : Movers
    rng : numpy.random.Generator
    workers : int or Crew, optional
    report : callable
        Called with a line of progress.
    started : float
        From when its seconds count.
    """

    movers: Movers
    rng: np.random.Generator
    workers: Workers = None
    report: Report = lambda line: None
    started: float = field(default_factory=perf_counter)

    @property
    def reference(self) -> Prior:
        """Where the path begins."""
        return self.movers.reference

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return perf_counter() - self.started

    def from_now(self) -> "Annealing":
        """Let its seconds count from now on."""
        return replace(self, started=perf_counter())

    def noted(self, evidence: Evidence, xs: np.ndarray, searched_by: str = "") -> Evidence:
        """Return an evidence with what was noticed about the model, at states of the target.

        If these come from the prior, `searched_by` says what they are.
        """
        searched = (Finding("not_searched", searched_by),) if searched_by else ()
        return with_findings(evidence, (*searched, *findings_at(self.reference.path, xs)))

    def up(self, schedule: BetaSchedule, n: int) -> Carried:
        """Carry n draws of the reference to the target."""
        starts = prior_blocks(self.reference, n, self.rng)
        return anneal_blocks(starts, schedule, self.workers, report=self.report)

    def down(self, schedule: BetaSchedule, xs: np.ndarray) -> Carried:
        """Carry states of the target, shape (n, d), to the reference."""
        starts = placed_blocks(self.reference, xs, self.rng)
        return anneal_blocks(starts, schedule, self.workers, down=True, report=self.report)

    def log_share_alive(self) -> tuple[float, float]:
        """Log of the share of the prior with a positive likelihood, and its error (nats)."""
        return log_share(prior_log_ratios(self.reference, N_SHARE, self.rng))


def compile_annealing(
    model: ModelLike | None,
    transition: KernelChoice,
    rng: np.random.Generator,
    cores: int | None,
    executor: Executor | None,
    report: Report,
    *,
    reversal: bool = False,
) -> Annealing:
    """Compile a model, see `compile_movers`, and put together what a call works with."""
    movers = compile_movers(model, transition, report, reversal=reversal)
    workers = crew_of(executor, movers.reference, movers.kernel) or cores
    return Annealing(movers, rng, workers, report)


@contextmanager
def opened(
    model: ModelLike | None,
    transition: KernelChoice,
    betas: Betas,
    cores: int | None,
    executor: Executor | None,
    random_seed: RandomSeed,
    progressbar: bool,
    *,
    reversal: bool = False,
) -> Iterator[Annealing]:
    """Check the arguments that all front doors take, and compile the model.

    See :func:`pymc_tempering.ais` for these, and `compile_movers` for `reversal`.
    """
    check_whole(1, cores=cores)
    check_executor(executor)
    check_schedule(betas)
    rng = rng_of(random_seed)
    with compiling_status(progressbar) as report:
        yield compile_annealing(model, transition, rng, cores, executor, report, reversal=reversal)


def prior_log_ratios(reference: Reference, n: int, rng: np.random.Generator) -> np.ndarray:
    """log_ratio at n exact, independent prior draws, shape (n,), in nats."""
    draws = reference.draw(n, reference.spawn(rng))
    return evaluate_draws(reference.path, draws)[1]


def learn_path(call: Annealing, *, keep_states: bool = False) -> AnnealedPass:
    """Learn the path with a small population, which no estimate uses."""
    call.report("Learning the path with a pilot")
    movers = call.movers
    return anneal(
        movers.reference, movers.mixing, call.rng, n_particles=PILOT_PARTICLES,
        keep_states=keep_states, other=movers.kernel if movers.cheap else None,
    )  # fmt: skip


def freeze(movers: Movers, path: AnnealedPass, betas: np.ndarray) -> BetaSchedule:
    """Schedule at given inverse temperatures, with the tuning that a path has there."""
    tuning = path.tuning if path.other is None else path.other
    return BetaSchedule(movers.kernel, tuning.at(betas), path.n_evaluations)


def prior_blocks(reference: Reference, n: int, rng: np.random.Generator) -> list[Start]:
    """Blocks of exact, independent reference draws, n particles in all."""
    sizes = [min(BLOCK, n - at) for at in range(0, n, BLOCK)]
    owns = rng.spawn(len(sizes))
    return [
        partial(draw_particles, reference, n=size, rng=own)
        for size, own in zip(sizes, owns, strict=True)
    ]


def placed_blocks(reference: Reference, xs: np.ndarray, rng: np.random.Generator) -> list[Start]:
    """Blocks of particles at given states, shape (n, d)."""
    parts = [xs[at : at + BLOCK].copy() for at in range(0, len(xs), BLOCK)]
    owns = rng.spawn(len(parts))
    return [
        partial(place, reference, xs=part, rng=own) for part, own in zip(parts, owns, strict=True)
    ]


def anneal_blocks(
    starts: Sequence[Start],
    schedule: BetaSchedule,
    workers: Workers,
    *,
    down: bool = False,
    report: Report = lambda line: None,
) -> Carried:
    """Carry blocks of particles along a schedule, each on a thread.

    Parameters
    ----------
    starts : sequence of callables
        Make the particles of each block for a kernel, with a generator of its own.
    schedule : BetaSchedule
    workers : int or Crew, optional
    down : bool, default False
        From beta = 1 to 0, with the reversals of the schedule's kernels.
    report : callable, optional

    Raises
    ------
    KeyboardInterrupt
        No block was finished.
    """
    schedule = schedule.reversed() if down else schedule
    betas, params, n_steps = schedule.betas, schedule.params, schedule.betas.size - 1

    def task(start: Start, which: int) -> Task:
        def run(stop: threading.Event) -> tuple[Particles, np.ndarray, np.ndarray, int] | None:
            particles = start(schedule.kernel)
            sums = np.tile([-np.inf, 0.0, 0.0], (betas.size, 1))
            log_w, done = np.zeros(particles.n), 0
            sums[0] = 0.0, particles.n, particles.n
            for first, done in paced(n_steps, stop):
                carry(particles, betas, params, first, done, log_w, sums, down=down)
            return (particles, log_w, sums, which) if done == n_steps else None

        return run

    tasks = [task(start, which) for which, start in enumerate(starts)]
    results, interrupted = run_work(
        tasks,
        workers,
        lambda done: report(f"Annealing: {done} of {len(tasks)} blocks of particles"),
    )
    if not results:
        raise KeyboardInterrupt("Interrupted before the first block of particles was finished.")
    blocks, log_w, sums, which = zip(*results, strict=True)
    return Carried(
        np.concatenate(log_w),
        np.concatenate([block.xs for block in blocks]),
        merge_sums(list(sums)),
        np.concatenate([i * BLOCK + np.arange(b.n) for b, i in zip(blocks, which, strict=True)]),
        int(sum(block.n + block.n_evaluations for block in blocks)),
        sum(block.n_nan for block in blocks),
        interrupted,
    )


def make_schedule(
    call: Annealing,
    betas: Betas,
    *,
    run: Callable[[BetaSchedule, int], Carried] | None = None,
    most: int | None = None,
) -> tuple[BetaSchedule, AnnealedPass]:
    """Find a schedule by a pilot, and freeze it.

    Without `betas`, rungs stand at equal distances along the path, and their number grows until
    the weights of a trial of 128 particles, which are then thrown away, are nearly equal.

    Parameters
    ----------
    call : Annealing
    betas : None, int or sequence of float
    run : callable, optional
        Runs n particles along a schedule; by default they are annealed upward.
    most : int, optional
        Rungs at most, else a LadderError.
    """
    movers, run = call.movers, run or call.up
    path = learn_path(call)
    if betas is not None:
        return freeze(movers, path, given_betas(betas, path.alive)), path
    barrier, evaluations = barrier_of(path.alive), path.n_evaluations
    max_rungs = most or (MAX_CHEAP_RUNGS if movers.cheap else MAX_RUNGS)
    n_rungs = int(np.clip(FIRST_RUNGS * barrier[1][-1] ** 2, MIN_RUNGS, max_rungs))
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
