"""A trace of lockstep chains as the rows that all estimators of a run read.

Chains that stop after a number of sweeps do not end at beta = 1, so their rows are no cycles. They
are pieces of the trace, cut where tours start, and further, so that all chains have as many.
"""

import heapq

import numpy as np

from pymc_tempering.arrays.lockstep import SweepTrace
from pymc_tempering.core.cycles import RUNG_STATS, CycleStats, FlatTrace
from pymc_tempering.core.weighting import rung_probabilities

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
    cuts = sorted({0, *starts.tolist()})
    rows = [(a - b, a, b) for a, b in zip(cuts, [*cuts[1:], n_sweeps], strict=True)]
    heapq.heapify(rows)
    while len(rows) < n_rows:
        _, begin, end = heapq.heappop(rows)
        middle = (begin + end) // 2
        for a, b in ((begin, middle), (middle, end)):
            heapq.heappush(rows, (a - b, a, b))
    return np.sort([begin for _, begin, _ in rows])


def rows_of_trace(trace: SweepTrace, acceptance: float = 1.0) -> tuple[CycleStats, FlatTrace]:
    """Sum a trace by rows, and number its sweeps by row.

    Parameters
    ----------
    trace : SweepTrace
    acceptance : float, default 1.0
        Of the move, where it is known; block Gibbs accepts always.

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
    steps, lowest = np.zeros(shape[:2]), np.zeros(shape[:2])
    zero, tour = np.zeros(shape[:2]), np.zeros(shape[:2], dtype=bool)
    labels = np.empty((n_chains, n_sweeps), dtype=np.intp)
    for c in range(n_chains):
        begin = cut_rows(starts[c], n_sweeps, int(n_rows))
        label = np.searchsorted(begin, np.arange(n_sweeps), side="right") - 1
        rung, ratio = trace.rung[:, c], trace.log_ratio[:, c]
        before = np.concatenate([[trace.start.log_ratio[c]], ratio[:-1]])
        for name, values in _sums_of_chain(trace, c, label, before, acceptance).items():
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
    trace: SweepTrace, chain: int, label: np.ndarray, before: np.ndarray, acceptance: float
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
        "accept_sum": acceptance * visits,
        "up_accept_sum": by_visit(np.where(rung < n_rungs - 1, up, 0.0)),
    }
