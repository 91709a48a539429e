"""Cut the chains of a run into pieces and tours, sum over them, and state the errors of sums."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.core.weighting import batch_labels, error_of_influence, kish


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
    return np.cumsum(tour_start, axis=1) + chain * (tour_start.shape[1] + 1)


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
    n_draws, n_rungs = rb_weight.shape[1:]
    label = tour_labels(tour_start)
    halves = np.stack([label - tour_start, label], axis=2).ravel()
    weights = head_and_tail(rb_weight, rb_weight_head, tour_start).reshape(-1, n_rungs)
    first = np.flatnonzero(np.diff(halves, prepend=-1))
    sums, chain = sum_by(halves, weights), first // (2 * n_draws)
    position = halves[first] - chain * (n_draws + 1)  # 0 = before the first start of this chain
    complete = (position > 0) & (position < tour_start.sum(axis=1)[chain])
    # A chain that begins with a tour start has nothing in front of it.
    keep = (position > 0) | np.any(sums != 0.0, axis=1)
    return Tours(sums[keep], chain[keep], complete[keep])


def head_and_tail(weight: FloatArray, head: FloatArray, tour_start: BoolArray) -> FloatArray:
    """Cut the sums of each cycle where a tour starts in it, shape (chain, draw, 2, K)."""
    head = np.where(tour_start[..., None], head, 0.0)
    # Rounding may leave the difference at -1e-17, and a sum of weights is never negative.
    return np.stack([head, np.maximum(weight - head, 0.0)], axis=2)


@dataclass(frozen=True, eq=False)
class Pieces:
    """The smallest pieces that a run is cut into, in the order of time, one chain after another.

    Attributes
    ----------
    chain, tour, batch : ndarray of int, shape (P,)
        Chain, tour (or unfinished fragment) and batch of consecutive draws of each piece.
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
    cut = head_and_tail(stats.rb_weight, stats.rb_weight_head, stats.tour_start)
    return cut.reshape(-1, stats.beta.size)


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
    return sound & np.isfinite(stats.rb_weight_head).all(axis=(1, 2))


def finite_tours(stats: CycleStats) -> Tours:
    """Return the tours of the chains that :func:`finite_chains` marks, numbered anew."""
    chains = np.flatnonzero(finite_chains(stats))
    weight, head = stats.rb_weight[chains], stats.rb_weight_head[chains]
    return tour_sums(weight, head, stats.tour_start[chains])


def sum_by(label: NDArray[np.intp], values: FloatArray) -> FloatArray:
    """Sum the rows of ``values`` that have the same ``label``; labels do not decrease."""
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    if starts.size == 0:
        return np.empty((0, *values.shape[1:]))
    return np.add.reduceat(values, starts, axis=0)


def sum_at(piece: NDArray[np.intp], values: FloatArray, n: int) -> FloatArray:
    """Sum the rows (m, K) of the pieces that they belong to, in order, shape (n, K)."""
    result = np.zeros((n, values.shape[1]))
    result[piece[np.flatnonzero(np.diff(piece, prepend=-1))]] = sum_by(piece, values)
    return result


def effective_tours(sums: FloatArray) -> float:
    """Return Kish's effective number of blocks, (sum a)^2 / sum a^2.

    The smaller of two: with the weights a of the first rung and of the last rung in ``sums``,
    shape (B, K).
    """
    return float(np.min(kish(sums[:, [0, -1]])))


def influence(sums: FloatArray) -> FloatArray:
    """Return the first-order effect of every block of iterations on log Z_k.

    e_bk = A_bk / sum_b A_bk - A_b1 / sum_b A_b1 for ``sums`` A of shape (B, K); the log ratio of
    two totals is their sum to first order.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = sums / sums.sum(axis=0)
    return share - share[:, :1]


def delta_error(sums: FloatArray) -> FloatArray:
    """Return the standard error of log Z_k from independent blocks, shape (B, K) -> (K,).

    The delta method for a ratio of means: B / (B - 1) sum_b e_bk^2, which is equation (16) of
    Carlson et al. (2016) with variances over blocks; infinite for fewer than two blocks.
    """
    return error_of_influence(influence(sums))


def error_of_neighbors(effects: FloatArray, chain: NDArray[np.intp]) -> FloatArray:
    """Return the standard error where neighboring blocks of a chain are correlated, (B, K) -> (K,).

    Tours that are cut at draws, and not where they start, share a cycle with the tour before and
    are independent of all others. So the variance of their sum is that of the blocks plus twice the
    covariance of neighbors. It is kept above half of the first term, since the covariance is noisy.

    Parameters
    ----------
    effects : ndarray, shape (B, K)
        Effect of every block on log Z_k, in the order of the chain.
    chain : ndarray of int, shape (B,)
        Chain of each block.
    """
    n = len(effects)
    if n < 2:
        return np.full(effects.shape[1], np.inf)
    square = np.sum(effects**2, axis=0)
    same = (chain[1:] == chain[:-1])[:, None]
    product = np.sum(effects[1:] * effects[:-1] * same, axis=0)
    error = np.sqrt(n / (n - 1) * np.maximum(square + 2.0 * product, 0.5 * square))
    return np.where(np.isnan(error), np.inf, error)


def errors(influence: FloatArray, pieces: Pieces, mask: BoolArray) -> FloatArray:
    """Return the standard error of log Z_k from the influence of some pieces, shape (K,).

    The larger of two: over tours, and over batches of about sqrt(draws) consecutive draws.

    Parameters
    ----------
    influence : ndarray, shape (n, K)
        Effect of each piece of the mask on log Z_k.
    pieces : Pieces
    mask : ndarray of bool, shape (P,)
        Which pieces these are.
    """
    tour = pieces.tour[mask]
    by_tour = sum_by(tour, influence)
    if pieces.independent:
        over_tours = error_of_influence(by_tour)
    else:
        first = np.flatnonzero(np.diff(tour, prepend=-1))
        over_tours = error_of_neighbors(by_tour, pieces.chain[mask][first])
    over_batches = error_of_influence(sum_by(pieces.batch[mask], influence))
    return np.maximum(over_tours, over_batches)
