"""Linked Markov chains: the loop of linked importance sampling, a chain at each rung."""

import threading
from typing import NamedTuple

import numpy as np
from numba import int64, types

from pymc_tempering.annealed.schedule import (
    BLOCK,
    BetaSchedule,
    CarriedParticles,
    Report,
    block_sizes,
)
from pymc_tempering.chain.particles import STATES, Particles, draw_particles, move_state
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.executors.crew import Workers, run_work
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
from pymc_tempering.model.jit import njit
from pymc_tempering.references.prior import Reference


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
    call_loop(
        _link_rungs, particles.density, forth.explore, back.kernel.explore,
        Way(forth.parts, schedule.params), Way(back.kernel.parts, back.params),
        particles.states(), start, link, first, last, schedule.betas, length, log_r, particles.rng,
    )  # fmt: skip
