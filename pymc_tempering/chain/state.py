"""The state of one chain: start it, run it in chunks, feed it fresh reference draws."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pymc_tempering.chain.loop import LADDER_MOVES, NEEDS_REFERENCE, run
from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.record import (
    AWAITS_TOUR,
    DIRECTION,
    LOWEST,
    N_COUNTERS,
    N_DRAWS,
    N_ITERATIONS,
    N_TRACE,
    REF_USED,
    RUNG,
    SCALAR_STATS,
    STEPS,
    Chain,
    Record,
    new_work,
)
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.model.compiled import call_loop, new_point

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


def new_record(
    n_draws: int, n_rungs: int, dim: int, n_trace: int = 0, *, keep_states: bool = False
) -> Record:
    """Space for `n_draws` draws and a flat trace of `n_trace` iterations, with states or not."""
    return Record(
        np.empty((n_draws, dim)),
        np.empty((n_draws, len(RUNG_STATS), n_rungs)),
        np.empty((n_draws, len(SCALAR_STATS))),
        np.empty(n_trace),
        np.empty(n_trace, dtype=np.int64),
        np.empty((n_trace if keep_states else 0, dim)),
    )


def clear_record(state: ChainState) -> None:
    """Make the chain write to the beginning of its record again."""
    state.chain.counters[N_DRAWS] = 0
    state.chain.counters[N_TRACE] = 0


def make_runner(plan: Plan) -> Callable[[ChainState, Record, int, int], int]:
    """Bind a plan to the compiled loop.

    Returns
    -------
    callable
        `advance(state, record, n_draws, n_iterations)`: runs until the record holds `n_draws`
        draws or `n_iterations` iterations are over, and returns how many iterations it was.
        Safe to call for several chains at once, from several threads.
    """
    reference, path = plan.reference, plan.reference.path
    rungs, explore, parts = plan.rungs, plan.kernel.explore, plan.kernel.parts
    move = LADDER_MOVES[plan.ladder_move]

    def advance(state: ChainState, record: Record, n_draws: int, n_iterations: int) -> int:
        scratch = np.empty((plan.kernel.n_scratch, path.dim))
        work = new_work(plan.kernel.n_blocks, rungs.betas.size)
        start, left = state.n_iterations, n_iterations
        while left > 0:
            status = call_loop(
                run,
                path.density,
                explore,
                parts,
                rungs,
                state.chain,
                record,
                state.references,
                path.circular,
                scratch,
                state.rng,
                move,
                n_draws,
                left,
                work,
            )
            left = n_iterations - (state.n_iterations - start)
            if status != NEEDS_REFERENCE:
                break
            state.references = reference.draw(REFERENCE_BATCH, state.reference_rngs)
            state.chain.counters[REF_USED] = 0
        return n_iterations - left

    return advance
