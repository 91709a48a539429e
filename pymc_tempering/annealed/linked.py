"""Linked importance sampling: a Markov chain at each rung, linked to the next by a bridge."""

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

import numpy as np
import pymc as pm
from numba import int64, types

from pymc_tempering.annealed.schedule import (
    Annealing,
    BetaSchedule,
    block_sizes,
    make_schedule,
    opened,
    run_blocks,
)
from pymc_tempering.arguments import check_whole
from pymc_tempering.arrays.carried import MIN_PARTICLES, Carried, carried_evidence
from pymc_tempering.chain.particles import STATES, Particles, draw_particles, move_state
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.compiled import (
    DENSITY,
    EXPLORE,
    LOG_RATIO,
    MATRIX,
    PARTS,
    RNG,
    VECTOR,
    Parts,
    call_loop,
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
    >>> evidence = pmt.annealed.linked_importance_sampling(system.model, random_seed=1, quiet=True)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_whole(1, chain_length=chain_length)
    show = progressbar and not quiet
    with opened(
        model, transition, betas, cores, executor, random_seed, show, reversal=True, carried=False
    ) as call:

        def link(schedule: BetaSchedule, n: int) -> Carried:
            return link_blocks(call, schedule, n, chain_length)

        schedule, _ = make_schedule(call, betas, run=link, density=1.0)
        done = link(schedule, n_particles)
        evidence = carried_evidence(
            done, call.rng,
            method="linked_importance_sampling",
            asked=n_particles,
            n_evaluations=schedule.n_evaluations,
            seconds=call.seconds,
            advice="use more rungs (betas), longer chains (chain_length), or more particles",
        )  # fmt: skip
    return emit_warnings(evidence)


def link_blocks(call: Annealing, schedule: BetaSchedule, n: int, length: int) -> Carried:
    """Run n independent particles in blocks, each on a thread; log weights are log r-hat."""
    reference, back = call.reference, schedule.reversed()

    def begin(size: int, own: np.random.Generator) -> tuple[Particles, np.ndarray, np.ndarray]:
        return *start_links(reference, schedule, size, length, own), np.empty((0, 3))

    def advance(
        particles: Particles, log_r: np.ndarray, sums: np.ndarray, first: int, last: int
    ) -> None:
        link_rungs(particles, schedule, back, first + 1, last + 1, length, log_r)

    sizes = block_sizes(n)
    owns = call.rng.spawn(len(sizes))
    begins = [partial(begin, size, own) for size, own in zip(sizes, owns, strict=True)]
    return run_blocks(
        begins, advance, schedule.betas.size - 1, call.workers, call.report, "Linking",
        first_evaluations=length,
    )  # fmt: skip


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


START, LINK = 0, 1
"""States that are kept aside: where a chain has started, and its link to the next rung."""


@njit(types.void(STATES, int64, STATES, int64))
def _copy_state(target, i, source, j):  # type: ignore[no-untyped-def]
    """Make the state `i` of some states what the state `j` of others is."""
    copy_numbers(target.xs[i], source.xs[j])
    copy_numbers(target.values[i], source.values[j])
    for row in range(source.grads.shape[1]):
        copy_row(target.grads[i], row, source.grads[j], row)


class Way(NamedTuple):
    """A direction of time: which coordinates its kernels move, and their tuning at each rung."""

    parts: Parts
    params: np.ndarray


WAY = types.NamedTuple((PARTS, MATRIX), Way)


@njit(
    types.void(DENSITY, EXPLORE, EXPLORE, WAY, WAY, STATES, STATES, int64, int64, VECTOR, int64,
               VECTOR, RNG),
    error_model="numpy",
)  # fmt: skip
def _link(  # type: ignore[no-untyped-def]
    density, forth, back, way_forth, way_back, states, kept, k, i, betas, length, log_r, rng
):
    """Simulate the chain of the state `i` at the rung `k`, and leave it at its link to the next."""
    top = betas.size - 1
    below = -0.5 * (betas[k] - betas[k - 1])
    above = 0.5 * (betas[k + 1] - betas[k]) if k < top else 0.0
    place = int(rng.random() * length)
    _copy_state(kept, START, states, i)
    log_below = log_above = -np.inf
    for s in range(length):
        # The shared state first, then those after its place, then those before it.
        if s == length - place and s > 0:
            _copy_state(states, i, kept, START)
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
            _copy_state(kept, LINK, states, i)
    log_r[i] -= log_below - np.log(length)
    if k < top:
        log_r[i] += log_above - np.log(length)
    _copy_state(states, i, kept, LINK)


@njit(
    types.void(DENSITY, EXPLORE, EXPLORE, WAY, WAY, STATES, STATES, int64, int64, VECTOR, int64,
               VECTOR, RNG),
)  # fmt: skip
def _link_rungs(  # type: ignore[no-untyped-def]
    density, forth, back, way_forth, way_back, states, kept, first, last, betas, length, log_r, rng
):
    # Rungs outside, particles inside: where a caller cuts the path must not change the draws.
    for k in range(first, last):
        for i in range(states.xs.shape[0]):
            if log_r[i] > -np.inf:
                _link(
                    density, forth, back, way_forth, way_back, states, kept, k, i, betas, length,
                    log_r, rng,
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
    forth, states = particles.kernel, particles.states()
    dim = states.xs.shape[1]
    kept = states._replace(
        xs=np.empty((2, dim)), values=np.empty((2, 2)), grads=np.empty((2, 2, dim))
    )
    call_loop(
        _link_rungs, particles.density, forth.explore, back.kernel.explore,
        Way(forth.parts, schedule.params), Way(back.kernel.parts, back.params),
        states, kept, first, last, schedule.betas, length, log_r, particles.rng,
    )  # fmt: skip
