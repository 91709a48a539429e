"""Linked importance sampling: a Markov chain at each rung, linked to the next by a bridge."""

import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import pymc as pm
from numba import int64, types

from pymc_tempering.annealed.ais import MIN_PARTICLES
from pymc_tempering.annealed.schedule import (
    BLOCK,
    BetaSchedule,
    CarriedParticles,
    Clock,
    Report,
    block_sizes,
    check_schedule,
    compile_movers,
    make_schedule,
    run_warnings,
)
from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.particles import STATES, Particles, draw_particles, move_state
from pymc_tempering.chain.sent_model import workers_of
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.particle_weights import evidence_of_weights
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.executors.crew import Workers, run_work
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.compiled import (
    DENSITY,
    EXPLORE,
    LOG_RATIO,
    MATRIX,
    PARTS,
    RNG,
    VECTOR,
    Parts,
)
from pymc_tempering.model.copying import copy_numbers, copy_row
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.jit import njit
from pymc_tempering.references.prior import Reference


def linked_importance_sampling(
    model: pm.Model | CompiledModel | None = None,
    *,
    n_particles: int = 200,
    chain_length: int = 10,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by linked importance sampling.

    Each particle simulates a Markov chain of ``chain_length`` states at every rung. Two
    neighboring chains share one state, which is picked from the one with weights of the geometric
    bridge sqrt(pi_k pi_k+1) between them and put at a random place of the other. The product of
    bridge sampling estimates over all rungs is unbiased for Z, whether or not the chains mix;
    its logarithm lies below log Z in expectation.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    n_particles : int, default 200
        Independent repeats, of which the mean is taken.
    chain_length : int, default 10
        States of the chain at each rung.
    betas : int or sequence of float, optional
        Number of rungs, or the inverse temperatures from 0 to 1; as in :func:`ais`. By default as
        many rungs as make the estimates of the particles nearly equal.
    transition : str, Kernel, dict or None, optional
        What moves the states of a chain, as `kernel` of :func:`pymc_tempering.sample`. The states
        before the shared one come from its reversal in time: a kernel whose reversal is not known
        is refused.
    cores : int, optional
        Threads; by default all cores.
    executor : concurrent.futures.Executor, optional
        Who does the work in place of threads: a pool of processes, or ``client.get_executor()``
        of Dask. Each worker compiles the model once. The pilot runs in this process.
    random_seed : int or numpy.random.Generator, optional
        Same seeds give the same estimate, whatever `cores` and
        `executor` are.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    Evidence
        log Z with a bootstrap error over particles, which are independent (nats).

    Raises
    ------
    KernelError
        A kernel whose reversal in time is not known, or that keeps its momentum.
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model has no such path; the message says why and what to do.
    LadderError
        ``betas`` do not increase from 0 to 1.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        The estimates collapsed onto few particles (the mcse is then infinite).

    Notes
    -----
    Neal (2005), Estimating ratios of normalizing constants using linked importance sampling,
    section 3. Hamiltonian transitions are their own reversals; a sweep over coordinates is
    undone by the sweep in reverse order.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> evidence = pmt.linked_importance_sampling(system.model, random_seed=1, progressbar=False)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_whole(1, chain_length=chain_length, cores=cores)
    check_executor(executor)
    check_schedule(betas)
    rng = np.random.default_rng(random_seed)
    with compiling_status(progressbar and not quiet) as report:
        movers = compile_movers(model, transition, report, reversal=True, carried=False)
        workers = workers_of(executor, cores, movers.reference, movers.kernel)
        clock = Clock()

        def link(schedule: BetaSchedule, n: int) -> CarriedParticles:
            return link_blocks(movers.reference, schedule, n, chain_length, rng, workers, report)

        schedule, _ = make_schedule(
            movers, betas, rng, cores=workers, report=report, run=link, density=1.0
        )
        done = link(schedule, n_particles)
        evidence = evidence_of_weights(
            done.log_w, rng,
            method="linked_importance_sampling",
            n_evaluations=schedule.n_evaluations + done.n_evaluations,
            seconds=clock(),
            advice="use more rungs (betas), longer chains (chain_length), or more particles",
            warnings=run_warnings(done, n_particles),
            n_undefined=done.n_nan,
        )  # fmt: skip
    return emit_warnings(evidence)


def link_blocks(
    reference: Reference,
    schedule: BetaSchedule,
    n: int,
    length: int,
    rng: np.random.Generator,
    cores: Workers,
    report: Report = lambda line: None,
) -> CarriedParticles:
    """Run n independent particles in blocks, each on a thread; log weights are log r-hat."""
    sizes = block_sizes(n)
    n_rungs, back = schedule.betas.size, schedule.reversed()

    def task(size: int, own: np.random.Generator, which: int) -> Task:
        def run(stop: threading.Event) -> tuple[Particles, np.ndarray, int] | None:
            particles, log_r = start_links(reference, schedule, size, length, own)
            done = 1
            for begin, end in paced(n_rungs - 1, stop):
                link_rungs(particles, schedule, back, begin + 1, end + 1, length, log_r)
                done = end + 1
            return (particles, log_r, which) if done == n_rungs else None

        return run

    owns = rng.spawn(len(sizes))
    tasks = [task(size, own, i) for i, (size, own) in enumerate(zip(sizes, owns, strict=True))]
    results, interrupted = run_work(
        tasks, cores, lambda done: report(f"Linking: {done} of {len(tasks)} blocks of particles")
    )
    if not results:
        raise KeyboardInterrupt("Interrupted before the first block of particles was finished.")
    evaluations = sum(p.n * length + p.n_evaluations for p, _, _ in results)
    return CarriedParticles(
        np.concatenate([log_r for _, log_r, _ in results]),
        np.concatenate([p.xs for p, _, _ in results]),
        np.empty((0, 3)),
        np.concatenate([which * BLOCK + np.arange(len(p.xs)) for p, _, which in results]),
        int(evaluations),
        sum(p.n_nan for p, _, _ in results),
        interrupted,
    )


def start_links(
    reference: Reference, schedule: BetaSchedule, n: int, length: int, rng: np.random.Generator
) -> tuple[Particles, np.ndarray]:
    """Draw the chain at beta = 0, which is independent draws, and pick the first links.

    Returns
    -------
    particles : Particles
        At the states that link to the first rung above the reference.
    log_r : array, shape (n,)
        Log of the mean of the bridge weights at the reference.
    """
    particles = draw_particles(reference, schedule.kernel, n * length, rng)
    log_w = 0.5 * (schedule.betas[1] - schedule.betas[0]) * particles.log_ratio.reshape(n, length)
    peak = log_w.max(axis=1, keepdims=True)
    dead = np.isinf(peak[:, 0])
    with np.errstate(invalid="ignore", divide="ignore"):
        w = np.where(dead[:, None], 1.0, np.exp(log_w - peak))
        log_r = np.where(dead, -np.inf, np.log(w.mean(axis=1)) + peak[:, 0])
    cumulative = np.cumsum(w, axis=1)
    target = rng.random((n, 1)) * cumulative[:, -1:]
    pick = np.minimum((cumulative <= target).sum(axis=1), length - 1)
    particles.select(np.arange(n) * length + pick)
    return particles, log_r


class Kept(NamedTuple):
    """A state that is kept aside: x, values and gradients."""

    x: np.ndarray
    values: np.ndarray
    grads: np.ndarray


KEPT = types.NamedTuple((VECTOR, VECTOR, MATRIX), Kept)


@njit(types.void(STATES, int64, KEPT))
def _keep(states, i, kept):  # type: ignore[no-untyped-def]
    """Keep a copy of the state `i`."""
    copy_numbers(kept.x, states.xs[i])
    copy_numbers(kept.values, states.values[i])
    for row in range(kept.grads.shape[0]):
        copy_row(kept.grads, row, states.grads[i], row)


@njit(types.void(STATES, int64, KEPT))
def _put_back(states, i, kept):  # type: ignore[no-untyped-def]
    """Make the state `i` what was kept."""
    copy_numbers(states.xs[i], kept.x)
    copy_numbers(states.values[i], kept.values)
    for row in range(kept.grads.shape[0]):
        copy_row(states.grads[i], row, kept.grads, row)


class Way(NamedTuple):
    """A direction of time: which coordinates its kernels move, and their tuning at each rung."""

    parts: Parts
    params: np.ndarray


WAY = types.NamedTuple((PARTS, MATRIX), Way)


@njit(
    types.void(DENSITY, EXPLORE, EXPLORE, WAY, WAY, STATES, KEPT, KEPT, int64, int64, VECTOR, int64,
               VECTOR, RNG),
    error_model="numpy",
)  # fmt: skip
def _link(  # type: ignore[no-untyped-def]
    density, forth, back, way_forth, way_back, states, start, link, k, i, betas, length, log_r, rng
):
    """Simulate the chain of the state `i` at the rung `k`, and leave it at its link to the next."""
    top = betas.size - 1
    below = -0.5 * (betas[k] - betas[k - 1])
    above = 0.5 * (betas[k + 1] - betas[k]) if k < top else 0.0
    place = int(rng.random() * length)
    _keep(states, i, start)
    log_below = log_above = -np.inf
    for s in range(length):
        # The shared state first, then those after its place, then those before it.
        if s == length - place and s > 0:
            _put_back(states, i, start)
        if 0 < s < length - place:
            move_state(
                density, forth, way_forth.parts, states, i, betas[k], way_forth.params[k], rng
            )
        elif s > 0:
            move_state(density, back, way_back.parts, states, i, betas[k], way_back.params[k], rng)
        log_ratio = states.values[i, LOG_RATIO]
        log_below = np.logaddexp(log_below, below * log_ratio)
        log_above = np.logaddexp(log_above, above * log_ratio)
        # Each state replaces the link with its share of the weight so far.
        if rng.random() < np.exp(above * log_ratio - log_above):
            _keep(states, i, link)
    log_r[i] -= log_below - np.log(length)
    if k < top:
        log_r[i] += log_above - np.log(length)
    _put_back(states, i, link)


@njit(
    types.void(DENSITY, EXPLORE, EXPLORE, WAY, WAY, STATES, KEPT, KEPT, int64, int64, VECTOR, int64,
               VECTOR, RNG),
)  # fmt: skip
def _link_rungs(  # type: ignore[no-untyped-def]
    density, forth, back, way_forth, way_back, states, start, link, first, last, betas, length,
    log_r, rng,
):  # fmt: skip
    # Rungs outside, particles inside: where a caller cuts the path must not change the draws.
    for k in range(first, last):
        for i in range(states.xs.shape[0]):
            if log_r[i] > -np.inf:
                _link(
                    density, forth, back, way_forth, way_back, states, start, link, k, i, betas,
                    length, log_r, rng,
                )  # fmt: skip


def link_rungs(
    particles: Particles,
    schedule: BetaSchedule,
    back: BetaSchedule,
    first: int,
    last: int,
    length: int,
    log_r: np.ndarray,
) -> None:
    """Simulate the chains at rungs `first` to `last` (excluded), adding to log r-hat in place.

    `back` is the reversal of the schedule; states before the shared one come from it.
    """
    forth, dim = particles.kernel, particles.xs.shape[1]
    start, link = (Kept(np.empty(dim), np.empty(2), np.empty((2, dim))) for _ in range(2))
    _link_rungs(
        particles.density, forth.explore, back.kernel.explore,
        Way(forth.parts, schedule.params), Way(back.kernel.parts, back.params),
        particles.states(), start, link, first, last, schedule.betas, length, log_r, particles.rng,
    )  # fmt: skip
