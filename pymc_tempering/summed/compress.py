"""Tables of sums from a few of their cells, where all others are linear in these.

The log table of a count, or of a switch point, is often of an exponential family: numbers that the
data give, times a few functions of the parameters. Then the cells at a few values tell all others,
at all parameters, and only those few are computed by the model's own terms. Whether it is so, and
with what weights, is learned at draws of the prior, and checked at others and at posterior draws.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from pymc_tempering.summed.elimination import LOWEST

N_LEARN, N_CHECK = 60, 40
"""Draws of the prior by which weights are learned, and checked."""

MOST_PIVOTS = 12
WORTH = 20
"""Values of an element beyond which it may be worth it."""

NEGLIGIBLE, TOLERANCE = 1e-11, 1e-9
"""Singular values, and errors in the check, relative to the largest number of a table."""


class Compressed(NamedTuple):
    """How a table follows from some of its cells.

    Attributes
    ----------
    pivots : array of int, shape (R, n)
        Places of the values at which each element's cells are computed.
    weights : array, shape (R, n, m)
        Of these in each cell.
    never : array of bool, shape (n, m)
        Cells of probability zero, whatever the parameters are.
    """

    pivots: np.ndarray
    weights: np.ndarray
    never: np.ndarray


def compress(tables: np.ndarray) -> Compressed | None:
    """Learn how tables follow from a few cells; None if they do not.

    Parameters
    ----------
    tables : array, shape (N, m, n)
        Log tables of n elements with m values each, at N points.
    """
    n_points, m, n = tables.shape
    never = (tables <= LOWEST / 2).all(axis=0)
    usable = ((tables > LOWEST / 2) | never).all(axis=(1, 2)) & np.isfinite(tables).all(axis=(1, 2))
    tables = tables[usable]
    if m < WORTH or len(tables) < 0.8 * n_points or never.all(axis=0).any():
        return None
    found = [_of_element(tables[:, :, j], ~never[:, j]) for j in range(n)]
    if any(each is None for each in found):
        return None
    most = max(len(each[0]) for each in found if each is not None)
    pivots, weights = np.zeros((most, n), dtype=np.int64), np.zeros((most, n, m))
    for j, each in enumerate(found):
        assert each is not None
        places, own = each
        pivots[:, j] = places[0]
        pivots[: len(places), j] = places
        weights[: len(places), j] = own
    return Compressed(pivots, weights, never.T)


def _of_element(rows: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Pivots and weights, shape (R, m), of one element's tables, shape (N, m)."""
    places = np.flatnonzero(used)
    scale = np.abs(rows[:, used]).max(axis=1, keepdims=True)
    scaled = rows[:, used] / np.maximum(scale, 1.0)
    learn, check = scaled[: -len(rows) // 3], scaled[-len(rows) // 3 :]
    _, triangle, order = qr(learn, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    rank = int((sizes > NEGLIGIBLE * sizes[0] * len(sizes)).sum())
    if rank > min(MOST_PIVOTS, len(learn) // 2, places.size // 2):
        return None
    chosen = np.sort(order[:rank])
    own = np.linalg.lstsq(learn[:, chosen], learn, rcond=None)[0]
    if np.abs(check[:, chosen] @ own - check).max() > TOLERANCE:
        return None
    weights = np.zeros((rank, used.size))
    weights[:, used] = own
    return places[chosen], weights
