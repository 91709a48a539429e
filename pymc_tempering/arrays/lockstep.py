"""The lockstep loop: all chains move at once, each at its rung; and its trace as rows of sweeps.

Chains that stop after a number of sweeps do not end at beta = 1, so their rows are no cycles. They
are pieces of the trace, cut where tours start, and further, so that all chains have as many.
"""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.arrays.array_density import ArrayDensity, States, checked_ratio, move_states
from pymc_tempering.core.cycles import RUNG_STATS, CycleStats, FlatTrace
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.core.weighting import rung_probabilities

LADDER_MOVES = ("metropolized_gibbs", "gibbs")
"""How a chain moves on the ladder; the first is the default."""


@dataclass(frozen=True, eq=False)
class LockstepChains:
    """Where C chains are.

    Attributes
    ----------
    states : array, shape (C, ...)
    log_ratio : array, shape (C,)
        Of the states, in nats.
    rung : array of int, shape (C,)
        Rung that each is to explore next.
    awaits_tour : array of bool, shape (C,)
        Whether the next arrival at beta = 0 starts a tour: beta = 1 was visited since the last.
    """

    states: States
    log_ratio: np.ndarray
    rung: np.ndarray
    awaits_tour: np.ndarray

    @property
    def n_chains(self) -> int:
        """Number of chains C."""
        return self.rung.size


@dataclass(frozen=True, eq=False)
class SweepTrace:
    """What C chains did in T sweeps on a frozen ladder.

    Attributes
    ----------
    ladder : Ladder
    log_ratio : array, shape (T, C)
        After each sweep, in nats.
    rung : array of int, shape (T, C)
        That was explored.
    start : LockstepChains
        Where they were before.
    cold_states : array, shape (n, ...)
        States of all visits to beta = 1 in the order of time, if they were to be kept.
    cold_chain : array of int, shape (n,)
        Chain of each of them.
    """

    ladder: Ladder
    log_ratio: np.ndarray
    rung: np.ndarray
    start: LockstepChains
    cold_states: States
    cold_chain: np.ndarray

    @property
    def n_sweeps(self) -> int:
        """Number of sweeps T."""
        return len(self.rung)

    def probabilities(self) -> np.ndarray:
        """Mean of q(beta_k | x) over the sweeps of each chain, shape (C, K)."""
        ladder = self.ladder
        rows = [
            rung_probabilities(own, ladder.betas, ladder.offsets).mean(axis=0)
            for own in self.log_ratio.T
        ]
        return np.array(rows)


def run_sweeps(
    density: ArrayDensity,
    ladder: Ladder,
    chains: LockstepChains,
    n_sweeps: int,
    rng: np.random.Generator,
    *,
    ladder_move: str = LADDER_MOVES[0],
    keep_cold: bool = False,
) -> tuple[LockstepChains, SweepTrace]:
    """Move all chains ``n_sweeps`` times: each state at its rung, then each rung given its state.

    At beta = 0 the state is a fresh draw of the reference. No input is changed.

    Parameters
    ----------
    density : ArrayDensity
    ladder : Ladder
        Frozen.
    chains : LockstepChains
    n_sweeps : int
    rng : numpy.random.Generator
    ladder_move : {"metropolized_gibbs", "gibbs"}, default "metropolized_gibbs"
    keep_cold : bool, default False
        Whether to keep the states of visits to beta = 1.

    Returns
    -------
    chains : LockstepChains
        Where they are afterwards.
    trace : SweepTrace
    """
    start, top = chains, ladder.n_rungs - 1
    move_rungs = _metropolized if ladder_move == LADDER_MOVES[0] else _gibbs
    states, ratio, rung = chains.states, chains.log_ratio, chains.rung
    awaits = chains.awaits_tour.copy()
    ratios = np.empty((n_sweeps, chains.n_chains))
    rungs = np.empty((n_sweeps, chains.n_chains), dtype=np.intp)
    cold: list[States] = []
    for t in range(n_sweeps):
        states, ratio = explore(density, ladder.betas, states, rung, rng)
        ratios[t], rungs[t] = ratio, rung
        awaits = (awaits & (rung != 0)) | (rung == top)
        if keep_cold:
            cold.append(states[rung == top])
        q = rung_probabilities(ratio, ladder.betas, ladder.offsets)
        rung = move_rungs(q, rung, rng)
    kept = np.concatenate(cold) if cold else states[:0]
    where = np.nonzero(rungs == top)[1] if keep_cold else np.empty(0, dtype=np.intp)
    end = LockstepChains(states, ratio, rung, awaits)
    return end, SweepTrace(ladder, ratios, rungs, start, kept, where)


def evaluated_draws(
    density: ArrayDensity, n: int, rng: np.random.Generator
) -> tuple[States, np.ndarray]:
    """Return n draws of the reference and their log_ratio (n,)."""
    states = density.reference_draw(n, rng)
    return states, checked_ratio(density.log_ratio(states), n, "draws of the reference")


def explore(
    density: ArrayDensity,
    betas: np.ndarray,
    states: States,
    rung: np.ndarray,
    rng: np.random.Generator,
) -> tuple[States, np.ndarray]:
    """Explore once at each chain's rung of ``betas`` (K,); new states and their log_ratio (C,)."""
    zero = np.flatnonzero(rung == 0)
    if zero.size == 0:
        return move_states(density, density.move, states, betas[rung], rng)
    new, ratio, hot = np.empty_like(states), np.empty(rung.size), np.flatnonzero(rung)
    new[zero], ratio[zero] = evaluated_draws(density, zero.size, rng)
    if hot.size:
        new[hot], ratio[hot] = move_states(
            density, density.move, states[hot], betas[rung[hot]], rng
        )
    return new, ratio


def _draw_rows(q: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draw a column of each row of ``q`` (n, K), which sums to anything, shape (n,)."""
    below = np.cumsum(q, axis=1)
    return (below[:, :-1] <= (uniform * below[:, -1])[:, None]).sum(axis=1)


def _gibbs(q: np.ndarray, rung: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw rungs from q(beta | x), RTS equation (7)."""
    return _draw_rows(q, rng.random(rung.size))


def _metropolized(q: np.ndarray, rung: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Propose another rung by q(beta | x), always, and accept by Metropolis (Liu 1996)."""
    every = np.arange(rung.size)
    others = q.copy()
    others[every, rung] = 0.0
    rest = others.sum(axis=1)
    uniform = rng.random((2, rung.size))
    proposal = _draw_rows(others, uniform[0])
    accepted = (rest > 0.0) & (uniform[1] * (1.0 - q[every, proposal]) < rest)
    return np.where(accepted, proposal, rung)


MIN_ROWS = 16
"""Rows of a chain, if it has as many sweeps: batches for an error are made of them."""


def tour_starts(rung: np.ndarray, awaits_tour: np.ndarray, top: int) -> list[np.ndarray]:
    """Sweeps at which tours start, an array for each chain.

    A tour starts at the first arrival at beta = 0 after a visit to beta = 1.

    Parameters
    ----------
    rung : array of int, shape (T, C)
    awaits_tour : array of bool, shape (C,)
        Whether beta = 1 was visited before the trace, since the last start.
    top : int
        Rung of beta = 1.
    """
    starts = []
    for own, awaits in zip(rung.T, awaits_tour, strict=True):
        ends = np.flatnonzero((own == 0) | (own == top))
        at_top = own[ends] == top
        before = np.concatenate([[awaits], at_top[:-1]])
        starts.append(ends[before & ~at_top])
    return starts


def cut_rows(starts: np.ndarray, n_sweeps: int, n_rows: int) -> np.ndarray:
    """First sweeps of ``n_rows`` rows of a chain: 0, starts of tours, halves of long rows."""
    cuts = np.union1d(0, starts)
    while cuts.size < n_rows:
        length = np.diff(cuts, append=n_sweeps)
        longest = int(length.argmax())
        cuts = np.insert(cuts, longest + 1, cuts[longest] + length[longest] // 2)
    return cuts


def rows_of_trace(trace: SweepTrace) -> tuple[CycleStats, FlatTrace]:
    """Sum a trace by rows, and number its sweeps by row.

    Parameters
    ----------
    trace : SweepTrace

    Returns
    -------
    stats : CycleStats
        N rows of each chain. A tour starts with a row, so that heads are empty.
    flat : FlatTrace
    """
    ladder, (n_sweeps, n_chains) = trace.ladder, trace.rung.shape
    starts = tour_starts(trace.rung, trace.start.awaits_tour, ladder.n_rungs - 1)
    starts = [own[own > 0] for own in starts]  # what a trace begins with has no tour before it
    n_rows = max(min(MIN_ROWS, n_sweeps), *(1 + own.size for own in starts))
    shape = (n_chains, int(n_rows), ladder.n_rungs)
    sums = {name: np.zeros(shape) for name in RUNG_STATS}
    steps, lowest, zero = np.zeros((3, *shape[:2]))
    tour = np.zeros(shape[:2], dtype=bool)
    labels = np.empty((n_chains, n_sweeps), dtype=np.intp)
    for c in range(n_chains):
        begin = cut_rows(starts[c], n_sweeps, int(n_rows))
        label = np.searchsorted(begin, np.arange(n_sweeps), side="right") - 1
        rung, ratio = trace.rung[:, c], trace.log_ratio[:, c]
        before = np.concatenate([[trace.start.log_ratio[c]], ratio[:-1]])
        for name, values in _sums_of_chain(trace, c, label, before).items():
            sums[name][c] = values
        steps[c] = np.bincount(label, minlength=n_rows)
        lowest[c] = ladder.betas[np.minimum.reduceat(rung, begin)]
        zero[c] = np.bincount(label, ratio == -np.inf, minlength=n_rows)
        tour[c] = np.isin(begin, starts[c])
        labels[c] = label + c * n_rows
    stats = CycleStats(
        beta=ladder.betas,
        log_z_ladder=ladder.log_z,
        log_weight=ladder.log_weights,
        **sums,
        tempering_steps=steps,
        beta_min=lowest,
        n_divergences=np.zeros(shape[:2]),
        tour_start=tour,
        n_zero_likelihood=zero,
    )
    flat = FlatTrace(
        trace.log_ratio.T.ravel(),
        trace.rung.T.ravel(),
        labels.ravel(),
        np.zeros(labels.size, dtype=bool),
        np.tile(np.arange(n_sweeps), n_chains),
    )
    return stats, flat


def _sums_of_chain(
    trace: SweepTrace, chain: int, label: np.ndarray, before: np.ndarray
) -> dict[str, np.ndarray]:
    """Sum one chain by rows, shape (N, K) each; ``before`` is log_ratio before a sweep."""
    ladder, rung, ratio = trace.ladder, trace.rung[:, chain], trace.log_ratio[:, chain]
    n_rows, n_rungs = int(label[-1]) + 1, ladder.n_rungs
    q = rung_probabilities(ratio, ladder.betas, ladder.offsets)
    alive = ratio > -np.inf
    finite = np.where(alive, ratio, 0.0)
    rows = np.zeros((n_rows, label.size))
    rows[label, np.arange(label.size)] = 1.0
    weighted = np.concatenate([rows, rows * finite, rows * finite**2]) @ q
    jump = np.where(rung > 0, finite - np.where(before > -np.inf, before, 0.0), 0.0)
    every, above = np.arange(rung.size), np.minimum(rung + 1, n_rungs - 1)
    here = q[every, rung]
    up = np.minimum(1.0, q[every, above] / np.where(here > 0.0, here, np.inf))
    place = label * n_rungs + rung

    def by_visit(values: np.ndarray) -> np.ndarray:
        summed = np.bincount(place, values, minlength=n_rows * n_rungs)
        return summed.reshape(n_rows, n_rungs)

    visits = by_visit(np.ones(rung.size))
    return {
        "rb_weight": weighted[:n_rows],
        "visits": visits,
        "log_ratio_sum": by_visit(finite),
        "log_ratio_sqsum": by_visit(finite**2),
        "rb_log_ratio_sum": weighted[n_rows : 2 * n_rows],
        "rb_log_ratio_sqsum": weighted[2 * n_rows :],
        "jump_sqsum": by_visit(jump**2),
        "accept_sum": visits,  # of the moves nothing is known; block Gibbs accepts always
        "up_accept_sum": by_visit(np.where(rung < n_rungs - 1, up, 0.0)),
    }
