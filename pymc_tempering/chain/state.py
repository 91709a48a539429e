"""The state of one chain: start it, run it in chunks, and find out that it does not come back.

A chain is stuck if it does not come back to beta = 1, and hangs if its density does not come back.
A thread cannot be ended from outside. So a chain that hangs is set back to where it stood before
the call, and its thread may go on with what is nobody's any more.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from pymc_tempering.chain.loop import (
    AWAITS_TOUR,
    DIRECTION,
    LOWEST,
    N_COUNTERS,
    N_DRAWS,
    N_ITERATIONS,
    N_TRACE,
    NEEDS_REFERENCE,
    REF_USED,
    RUNG,
    SCALAR_STATS,
    STEPS,
    Chain,
    Record,
    Rungs,
    new_work,
    run,
)
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.model.compiled import Point, call_loop, new_point

REFERENCE_BATCH = 256
"""Reference draws that are made at once; each is used for one visit."""


@dataclass
class ChainState:
    """All that a chain needs to go on; copies and pickles as it is."""

    chain: Chain
    references: np.ndarray
    rng: np.random.Generator
    reference_rngs: list[np.random.Generator] = field(default_factory=list)
    n_draws_ever: int = 0

    @property
    def rung(self) -> int:
        """Rung that the next iteration explores."""
        return int(self.chain.counters[RUNG])

    @property
    def n_iterations(self) -> int:
        """Iterations since the chain was started."""
        return int(self.chain.counters[N_ITERATIONS])

    @property
    def steps_in_cycle(self) -> int:
        """Iterations since the last visit to beta = 1."""
        return int(self.chain.scalars[STEPS])

    @property
    def n_draws(self) -> int:
        """Draws in the record so far."""
        return int(self.chain.counters[N_DRAWS])

    @property
    def n_trace(self) -> int:
        """Iterations in the flat trace so far."""
        return int(self.chain.counters[N_TRACE])


def start_chain(plan: Plan, rng: np.random.Generator) -> ChainState:
    """Start a chain where a tour starts: at a fresh reference draw.

    The direction is down, as it is whenever the nonreversible move arrives at beta = 0, so
    that the first tour has the law of all others.
    """
    n_rungs, dim = plan.ladder.n_rungs, plan.reference.path.dim
    counters = np.zeros(N_COUNTERS, dtype=np.int64)
    counters[DIRECTION] = -1
    counters[AWAITS_TOUR] = 1
    scalars = np.zeros(len(SCALAR_STATS))
    scalars[LOWEST] = n_rungs - 1
    chain = Chain(
        new_point(dim, plan.reference.mixture),
        counters,
        np.zeros((len(RUNG_STATS), n_rungs)),
        scalars,
        np.zeros((plan.kernel.n_blocks, n_rungs)),
    )
    return ChainState(chain, np.empty((0, dim)), rng, plan.reference.spawn(rng))


def new_record(n_draws: int, n_rungs: int, dim: int, n_trace: int = 0) -> Record:
    """Space for `n_draws` draws and a flat trace of `n_trace` iterations, without states."""
    return Record(
        np.empty((n_draws, dim)),
        np.empty((n_draws, len(RUNG_STATS), n_rungs)),
        np.empty((n_draws, len(SCALAR_STATS))),
        np.empty(n_trace),
        np.empty(n_trace, dtype=np.int64),
        np.empty((0, dim)),
    )


def clear_record(state: ChainState) -> None:
    """Make the chain write to the beginning of its record again."""
    state.chain.counters[N_DRAWS] = 0
    state.chain.counters[N_TRACE] = 0


def call_chain(
    loop: Any, plan: Plan, rungs: Rungs, state: ChainState, record: Record, *more: Any
) -> int:
    """Call a loop of one chain, and give it new reference draws where it has used them up."""
    path, kernel = plan.reference.path, plan.kernel
    status: int = call_loop(
        loop, path.density, kernel.explore, kernel.parts, rungs, state.chain, record,
        state.references, state.rng, *more,
    )  # fmt: skip
    if status == NEEDS_REFERENCE:
        state.references = plan.reference.draw(REFERENCE_BATCH, state.reference_rngs)
        state.chain.counters[REF_USED] = 0
    return status


def make_runner(plan: Plan) -> Callable[[ChainState, Record, int, int], int]:
    """Bind a plan to the compiled loop.

    Returns
    -------
    callable
        `advance(state, record, n_draws, n_iterations)`: runs until the record holds `n_draws`
        draws or `n_iterations` iterations are over, and returns how many iterations it was.
        Safe to call for several chains at once, from several threads.
    """
    rungs, dim = plan.rungs, plan.reference.path.dim

    def advance(state: ChainState, record: Record, n_draws: int, n_iterations: int) -> int:
        work = new_work(plan.kernel, rungs.betas.size, dim)
        start, left, status = state.n_iterations, n_iterations, NEEDS_REFERENCE
        while left > 0 and status == NEEDS_REFERENCE:
            status = call_chain(run, plan, rungs, state, record, work, n_draws, left)
            left = n_iterations - (state.n_iterations - start)
        return n_iterations - left

    return advance


CYCLE_BOUND = 2000
"""A chain that has not come back to beta = 1 within this many iterations per rung is stuck."""


def cycle_bound(plan: Plan) -> int:
    """Bound the iterations without a visit to beta = 1, after which a chain counts as stuck."""
    return CYCLE_BOUND * plan.ladder.n_rungs


def stuck_message(plan: Plan, rung: int) -> str:
    """Say where a chain hangs, and what to do."""
    beta = plan.ladder.betas[rung]
    return (
        f"A chain has not come back to beta = 1 in {cycle_bound(plan)} iterations; it hangs at "
        f"rung {rung} of {plan.ladder.n_rungs} (beta = {beta:.3g}). Likely the likelihood changes "
        "abruptly there (a phase transition), or the kernel does not move: try a larger "
        "target_accept, more rungs (rungs_per_barrier), or a tighter prior."
    )


SILENCE, SILENCE_TIMES = 30.0, 20.0
"""Seconds in one piece of its work after which a chain hangs; and at least so many times the
longest piece that any chain has come back from."""


@dataclass(frozen=True, eq=False)
class Mark:
    """Where a chain stands when a piece of its work begins.

    Attributes
    ----------
    began : float
        By `perf_counter`.
    state : ChainState
        What the piece changes.
    copies : tuple of ndarray
        x, values, gradients, counters, sums, scalars and acceptance at that time.
    references : ndarray
    generators : list of dict
        States of the chain's generator and of those of its reference draws.
    """

    began: float
    state: ChainState
    copies: tuple[np.ndarray, ...]
    references: np.ndarray
    generators: list[Any]


def mark_of(state: ChainState) -> Mark:
    """Note where a chain stands."""
    chain = state.chain
    arrays = (*chain.point[:3], *chain[1:])
    generators = [rng.bit_generator.state for rng in (state.rng, *state.reference_rngs)]
    copies = tuple(np.copy(array) for array in arrays)
    return Mark(perf_counter(), state, copies, state.references, generators)


def state_at(mark: Mark, plan: Plan) -> ChainState:
    """Make a state that stands where a chain stood, and shares nothing with it that can change."""
    x, values, grads, *cycle = mark.copies
    point = Point(x, values, grads, plan.reference.mixture.copy())
    rngs = [deepcopy(rng) for rng in (mark.state.rng, *mark.state.reference_rngs)]
    for rng, stood in zip(rngs, mark.generators, strict=True):
        rng.bit_generator.state = stood
    chain = Chain(point, *cycle)
    return ChainState(chain, mark.references, rngs[0], rngs[1:], mark.state.n_draws_ever)


def patience(longest: float) -> float:
    """Seconds after which a chain hangs, given those of the longest piece so far."""
    return max(SILENCE, SILENCE_TIMES * longest)


def hanging_message(seconds: float, longest: float) -> str:
    """Say that a chain hangs, and what to do."""
    usual = f", where the longest so far took {longest:.2g} s" if longest else ""
    return (
        f"A chain has been in one piece of its work for {seconds:.0f} s{usual}: its likelihood "
        "seems to hang at some values of the variables. Give the solver in it a limit of its own, "
        "after which it returns NaN."
    )
