"""Cut the cycles of tempering chains into tours, the independent pieces of the run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.core.cycles import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class Tours:
    """Sums over tours and over the unfinished pieces at the two ends of each chain.

    Attributes
    ----------
    sums : ndarray, shape (F, K)
        Sum of q(beta_k | x) over the iterations of each of the F fragments.
    chain : ndarray of int, shape (F,)
        Chain that each fragment comes from.
    complete : ndarray of bool, shape (F,)
        True for a tour with a beginning and an end. False for the iterations of a chain before its
        first tour start (tuning draws were thrown away) and for its last, unfinished tour.
    """

    sums: FloatArray
    chain: NDArray[np.intp]
    complete: BoolArray

    def of_chain(self, chain: int) -> "Tours":
        """Return the fragments of one chain."""
        mine = self.chain == chain
        return Tours(self.sums[mine], self.chain[mine], self.complete[mine])

    def round_trips(self, n_chains: int) -> tuple[int, ...]:
        """Return the number of complete tours in each of ``n_chains`` chains."""
        return tuple(np.bincount(self.chain[self.complete], minlength=n_chains).tolist())


def tour_labels(tour_start: BoolArray) -> NDArray[np.intp]:
    """Return the number of the tour, finished or not, of each draw, shape (chain, draw)."""
    chain = np.arange(len(tour_start))[:, None]
    return np.asarray(np.cumsum(tour_start, axis=1) + chain * (tour_start.shape[1] + 1))


def tour_sums(rb_weight: FloatArray, rb_weight_head: FloatArray, tour_start: BoolArray) -> Tours:
    """Sum per-cycle statistics over tours.

    A tour starts with the first exploration at beta = 0 after a visit to beta = 1, which is a
    fresh draw from the reference: tours are independent and identically distributed (a
    regenerative simulation in the sense of Mykland, Tierney & Yu 1995). A cycle in which a tour
    starts is split there: its head belongs to the tour before.

    Parameters
    ----------
    rb_weight, rb_weight_head : ndarray, shape (chain, draw, K)
        Sums over each cycle, and over its part before the start of a tour.
    tour_start : ndarray of bool, shape (chain, draw)
        Whether a tour starts in the cycle.

    Returns
    -------
    Tours
        Every iteration of every chain is in exactly one fragment: the sums add up to the total.

    Raises
    ------
    ValueError
        If the shapes do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence import tour_sums
    >>> weight = np.array([[[2.0, 1.0], [0.0, 1.0], [1.5, 1.5]]])
    >>> head = np.array([[[0.0, 0.0], [0.0, 0.0], [0.5, 0.5]]])
    >>> tours = tour_sums(weight, head, np.array([[True, False, True]]))
    >>> tours.sums.tolist()
    [[2.5, 2.5], [1.0, 1.0]]
    >>> tours.complete.tolist()
    [True, False]
    """
    if rb_weight.ndim != 3 or rb_weight_head.shape != rb_weight.shape:
        raise ValueError("rb_weight and rb_weight_head must both have shape (chain, draw, K)")
    if tour_start.shape != rb_weight.shape[:2]:
        raise ValueError("tour_start must have shape (chain, draw)")
    n_chains, _, n_rungs = rb_weight.shape
    head = np.where(tour_start[..., None], rb_weight_head, 0.0)
    # Rounding may leave the difference at -1e-17, and a sum of weights is never negative.
    tail = np.maximum(rb_weight - head, 0.0)

    index = np.cumsum(tour_start, axis=1)  # 0 = before the first start of this chain
    n_starts = index[:, -1]
    offset = np.concatenate([[0], np.cumsum(n_starts + 1)[:-1]])
    row = index + offset[:, None]
    sums = np.zeros((int(np.sum(n_starts + 1)), n_rungs))
    np.add.at(sums, row, tail)
    np.add.at(sums, (row - 1)[tour_start], head[tour_start])

    chain = np.repeat(np.arange(n_chains), n_starts + 1)
    position = np.arange(len(sums)) - offset[chain]
    complete = (position > 0) & (position < n_starts[chain])
    # A chain that begins with a tour start has nothing in front of it.
    keep = (position > 0) | np.any(sums != 0.0, axis=1)
    return Tours(sums[keep], chain[keep], complete[keep])


def join_tours(parts: Sequence[Tours], n_chains: Sequence[int]) -> Tours:
    """Put the tours of several runs behind each other, with chains numbered through all."""
    offset = np.cumsum([0, *n_chains[:-1]])
    return Tours(
        np.concatenate([own.sums for own in parts]),
        np.concatenate([own.chain + start for own, start in zip(parts, offset, strict=True)]),
        np.concatenate([own.complete for own in parts]),
    )
