"""A tempering run by single iterations, for the estimators that read the flat trace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_tempering.core.cycles import CycleStats, FlatTrace, FloatArray
from pymc_tempering.core.weighting import rung_probabilities
from pymc_tempering.evidence.datatree import read_cycles, read_reference
from pymc_tempering.evidence.pieces import Pieces, split_pieces
from pymc_tempering.evidence.standard_errors import sum_by
from pymc_tempering.exceptions import NotTemperedError

CHUNK = 1 << 20
"""Largest table of iterations by rungs that is made at a time, in numbers."""


@dataclass(frozen=True, eq=False)
class Run:
    """Statistics of a run, and every iteration of it.

    Attributes
    ----------
    stats : CycleStats
    trace : FlatTrace
    reference : ndarray, shape (n,), optional
        log_ratio (nats) at independent draws of the reference, made beside the chains.
    n_undefined : int
        How many of these draws have no density; their log_ratio is minus infinity.
    """

    stats: CycleStats
    trace: FlatTrace
    reference: FloatArray | None = None
    n_undefined: int = 0

    @cached_property
    def pieces(self) -> Pieces:
        """Cycles, each cut where a tour starts."""
        return split_pieces(self.stats)

    @cached_property
    def piece(self) -> NDArray[np.intp]:
        """Piece of each iteration, shape (n,); it does not decrease."""
        return np.asarray(2 * self.trace.cycle + ~self.trace.head)

    def sum_pieces(self, values: FloatArray, where: NDArray[np.intp] | None = None) -> FloatArray:
        """Sum numbers of iterations (n,), or of the iterations ``where``, by piece, shape (P,)."""
        piece = self.piece if where is None else self.piece[where]
        return np.bincount(piece, values, minlength=self.pieces.chain.size)

    def sum_table(self, values: FloatArray, piece: NDArray[np.intp]) -> FloatArray:
        """Sum a table (m, K) of consecutive iterations by their ``piece`` (m,), shape (P, K)."""
        result = np.zeros((self.pieces.chain.size, values.shape[1]))
        if len(piece):
            result[piece[np.flatnonzero(np.diff(piece, prepend=-1))]] = sum_by(piece, values)
        return result


def read_run(idata: xr.DataTree) -> Run:
    """Read a run with its flat trace from a DataTree.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="log_ratio"``, its default.

    Returns
    -------
    Run

    Raises
    ------
    NotTemperedError
        If there is no trace, or it does not belong to the draws.
    LadderError
        If the draws do not come from one ladder.
    """
    return Run(*read_trace(idata), *read_reference(idata))


def probabilities_of(stats: CycleStats, log_ratio: FloatArray) -> FloatArray:
    """Return q(beta_k | x) of every iteration, equation (7) of Carlson et al., shape (n, K)."""
    return rung_probabilities(log_ratio, stats.beta, stats.log_weight - stats.log_z_ladder)


def chunks(n: int, width: int) -> Iterator[slice]:
    """Cut n rows into slices so that a table of ``width`` columns stays small."""
    step = max(1, CHUNK // width)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def read_trace(idata: xr.DataTree) -> tuple[CycleStats, FlatTrace]:
    """Read every iteration of the recorded cycles, and the statistics of the cycles.

    Iterations of tuning draws (in ``warmup_sample_stats``) and those after the last recorded draw
    are left out.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="log_ratio"``, its default.

    Returns
    -------
    CycleStats, FlatTrace

    Raises
    ------
    NotTemperedError
        If there is no trace, or it does not belong to the draws (some of them were selected).
    LadderError
        As in :func:`read_cycles`.
    """
    stats = read_cycles(idata)
    if "tempering_trace" not in idata.children:
        raise NotTemperedError(
            "this DataTree has no group 'tempering_trace', which holds log_ratio and rung of every "
            'iteration: sample with pymc_tempering.sample(keep="log_ratio"), its default '
            '(pm.sample cannot keep it; method="rts" does without)'
        )
    trace = idata["tempering_trace"].to_dataset().transpose("chain", "iteration")
    skip = 0
    if "warmup_sample_stats" in idata.children:
        skip = idata["warmup_sample_stats"].sizes["draw"]
    if trace.sizes["chain"] != stats.n_chains:
        raise NotTemperedError(
            f"tempering_trace has {trace.sizes['chain']} chains and sample_stats {stats.n_chains}: "
            "pass the DataTree as the sampler returned it"
        )
    log_ratio, rung = trace["log_ratio"].values, trace["rung"].values
    if "row" in trace:  # chains over arrays
        return stats, _rows_of_trace(stats, log_ratio, rung, trace["row"].values)
    return stats, flat_trace(stats, log_ratio, rung, skip)


def flat_trace(
    stats: CycleStats,
    log_ratio: Sequence[FloatArray] | FloatArray,
    rung: Sequence[np.ndarray] | np.ndarray,
    skip: int = 0,
) -> FlatTrace:
    """Put the traces of the chains behind each other, without their first ``skip`` draws.

    Raises
    ------
    NotTemperedError
        If a trace does not belong to the draws.
    """
    parts = [_cycles_of_trace(stats, c, log_ratio[c], rung[c], skip) for c in range(len(rung))]
    return FlatTrace(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _rows_of_trace(
    stats: CycleStats, log_ratio: FloatArray, rung: np.ndarray, row: np.ndarray
) -> FlatTrace:
    """Put a trace that names the row of each iteration behind each other, and check it."""
    n_rungs, n_rows = stats.beta.size, stats.n_draws
    chain = np.arange(len(rung))[:, None]
    place = ((chain * n_rows + row) * n_rungs + rung).ravel()
    size = len(rung) * n_rows * n_rungs
    if not np.array_equal(np.bincount(place, minlength=size), stats.visits.ravel()):
        raise NotTemperedError(
            "tempering_trace is not that of the rows of sample_stats: pass the DataTree as "
            "ArrayRun.to_datatree() returned it"
        )
    iteration = np.broadcast_to(np.arange(rung.shape[1]), rung.shape)
    return FlatTrace(
        log_ratio.ravel().astype(float),
        rung.ravel().astype(np.intp),
        (chain * n_rows + row).ravel().astype(np.intp),
        np.zeros(rung.size, dtype=bool),
        iteration.ravel(),
    )


def _cycles_of_trace(
    stats: CycleStats, chain: int, log_ratio: FloatArray, rung: np.ndarray, skip: int
) -> tuple[np.ndarray, ...]:
    """Cut the trace of one chain into cycles, and check that they are the recorded ones."""
    top, n = stats.beta.size - 1, stats.n_draws
    ends = np.flatnonzero(rung == top) + 1
    begin = int(ends[skip - 1]) if skip and ends.size >= skip else 0
    end = int(ends[skip + n - 1]) if ends.size >= skip + n else 0
    iteration = np.arange(begin, end)
    k, ratio = rung[begin:end].astype(np.intp), log_ratio[begin:end].astype(float)
    cycle = np.searchsorted(ends[skip : skip + n], iteration, side="right")
    first_zero = np.full(n, end)
    np.minimum.at(first_zero, cycle[k == 0], iteration[k == 0])
    visits = np.bincount(k, minlength=top + 1) if k.size else np.zeros(top + 1)
    same = np.array_equal(visits, stats.visits[chain].sum(axis=0))
    if not (same and np.array_equal(first_zero < end, stats.tour_start[chain])):
        raise NotTemperedError(
            f"the trace of chain {chain} in tempering_trace is not that of its draws (draws were "
            "selected, or runs joined): pass the DataTree as the sampler returned it"
        )
    head = (first_zero[cycle] < end) & (iteration < first_zero[cycle])
    return ratio, k, cycle + chain * n, head, iteration
