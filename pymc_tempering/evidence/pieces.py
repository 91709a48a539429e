"""Cut the chains of a run into pieces and tours: what the estimators sum over."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.core.weighting import batch_labels
from pymc_tempering.evidence.tours import Tours, tour_labels, tour_sums


@dataclass(frozen=True, eq=False)
class Pieces:
    """The smallest pieces that a run is cut into, in the order of time, one chain after another.

    A run may have several parts, each with a ladder of its own. Chains, tours and batches are
    numbered through all parts.

    Attributes
    ----------
    part, chain, tour, batch : ndarray of int, shape (P,)
        Part, chain, tour (or unfinished fragment) and batch of consecutive draws of each piece.
    early : ndarray of bool, shape (P,)
        Whether the piece is in the first half of the draws.
    counted : ndarray of bool, shape (P,)
        False for the first cycle of a chain that starts at a fresh reference draw. Such a chain
        has climbed the ladder once more often than it has come down, so that counting its first
        cycle would bias log Z.
    sound : ndarray of bool, shape (P,)
        Whether the numbers of its chain are all finite.
    independent : bool
        Whether the pieces are cut where tours start. If not, tours are cut at the draw before,
        and a tour shares a cycle with its neighbor.
    """

    part: NDArray[np.intp]
    chain: NDArray[np.intp]
    tour: NDArray[np.intp]
    batch: NDArray[np.intp]
    early: BoolArray
    counted: BoolArray
    sound: BoolArray
    independent: bool

    @property
    def used(self) -> BoolArray:
        """The pieces that an estimate from the whole run is made of."""
        return self.counted & self.sound


ARRAYS = tuple(item.name for item in fields(Pieces) if item.name != "independent")
"""The fields of ``Pieces`` that have an entry for each piece."""


def cycle_pieces(stats: CycleStats) -> Pieces:
    """Cut a run into its cycles: one piece a draw, in the order of ``reshape(-1)``."""
    chain, draw = (np.asarray(v, dtype=np.intp) for v in np.indices(stats.tour_start.shape))
    return Pieces(
        part=np.zeros(chain.size, dtype=np.intp),
        chain=chain.ravel(),
        tour=tour_labels(stats.tour_start).ravel(),
        batch=batch_labels(stats.n_chains, stats.n_draws).ravel(),
        early=(draw < stats.n_draws // 2).ravel(),
        counted=~_first_of_fresh_chain(stats).ravel(),
        sound=finite_chains(stats)[chain.ravel()],
        independent=False,
    )


def split_pieces(stats: CycleStats) -> Pieces:
    """Cut each cycle where a tour starts: a head (2 i) and a tail (2 i + 1) for cycle i.

    Without a start in the cycle all of it is tail.
    """
    whole = cycle_pieces(stats)
    twice = {name: np.repeat(getattr(whole, name), 2) for name in ARRAYS}
    head_tour = whole.tour - stats.tour_start.ravel()
    twice["tour"] = np.column_stack([head_tour, whole.tour]).ravel()
    return Pieces(**twice, independent=True)


def split_weights(stats: CycleStats) -> FloatArray:
    """Return the Rao-Blackwell weights of the pieces of :func:`split_pieces`, shape (P, K)."""
    head = np.where(stats.tour_start[..., None], stats.rb_weight_head, 0.0)
    tail = np.maximum(stats.rb_weight - head, 0.0)
    return np.stack([head, tail], axis=2).reshape(-1, stats.beta.size)


def join_pieces(parts: Sequence[Pieces]) -> Pieces:
    """Put the pieces of several runs behind each other, as parts of one run."""
    joined = {name: np.concatenate([getattr(own, name) for own in parts]) for name in ARRAYS}
    for name in ("part", "chain", "tour", "batch"):
        sizes = [int(getattr(own, name).max()) + 1 for own in parts]
        offset = np.cumsum([0, *sizes[:-1]])
        joined[name] = joined[name] + np.repeat(offset, [own.chain.size for own in parts])
    return Pieces(**joined, independent=parts[0].independent)


def _first_of_fresh_chain(stats: CycleStats) -> BoolArray:
    """Mark the first cycle of each chain that starts at a reference draw, shape (chain, draw)."""
    first = np.zeros(stats.tour_start.shape, dtype=bool)
    if stats.n_draws > 1:
        head = stats.rb_weight_head[:, 0]
        first[:, 0] = stats.tour_start[:, 0] & np.all(head == 0.0, axis=1)
    return first


def finite_chains(stats: CycleStats) -> BoolArray:
    """Mark the chains whose Rao-Blackwell weights are all finite, shape (chain,)."""
    sound = np.isfinite(stats.rb_weight).all(axis=(1, 2))
    return np.asarray(sound & np.isfinite(stats.rb_weight_head).all(axis=(1, 2)))


def finite_tours(stats: CycleStats) -> Tours:
    """Return the tours of the chains that :func:`finite_chains` marks, numbered anew."""
    chains = np.flatnonzero(finite_chains(stats))
    weight, head = stats.rb_weight[chains], stats.rb_weight_head[chains]
    return tour_sums(weight, head, stats.tour_start[chains])
