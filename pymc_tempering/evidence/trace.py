"""A tempering run by single iterations, for the estimators that read the flat trace."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_tempering.core.cycles import CycleStats, FlatTrace, FloatArray
from pymc_tempering.core.weighting import rung_probabilities
from pymc_tempering.evidence.datatree import read_trace
from pymc_tempering.evidence.pieces import Pieces, split_pieces
from pymc_tempering.evidence.standard_errors import sum_by

CHUNK = 1 << 20
"""Largest table of iterations by rungs that is made at a time, in numbers."""


@dataclass(frozen=True, eq=False)
class Run:
    """Statistics of a run, and every iteration of it.

    Attributes
    ----------
    stats : CycleStats
    trace : FlatTrace
    """

    stats: CycleStats
    trace: FlatTrace

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
    return Run(*read_trace(idata))


def probabilities_of(stats: CycleStats, log_ratio: FloatArray) -> FloatArray:
    """Return q(beta_k | x) of every iteration, equation (7) of Carlson et al., shape (n, K)."""
    return rung_probabilities(log_ratio, stats.beta, stats.log_weight - stats.log_z_ladder)


def chunks(n: int, width: int) -> Iterator[slice]:
    """Cut n rows into slices so that a table of ``width`` columns stays small."""
    step = max(1, CHUNK // width)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))
