"""Chains whose density does not come back: how long one waits for it, and what is left of them.

A thread cannot be ended from outside. So a chain that hangs is set back to where it stood before
the call, and its thread may go on with what is nobody's any more.
"""

from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.record import Chain
from pymc_tempering.chain.state import ChainState
from pymc_tempering.model.compiled import Point

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
