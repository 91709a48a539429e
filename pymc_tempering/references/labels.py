"""Labels that can be exchanged, such as those of the components of a mixture model.

A posterior that stays what it is when K labels are permuted has each of its modes K! times. So
draws are relabeled until all are of one labeling, a mixture is fitted to them, and its components
are copied to every labeling. Each copy owes its shape to all draws, and none can be missed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import factorial
from typing import NamedTuple

import numpy as np

from pymc_tempering.model.layout import Layout
from pymc_tempering.references.mixture import FullScales, Mixture

MAX_LABELS, MAX_VARIABLES = 5, 6
"""Labels at most, since 6 have 720 labelings; and variables that are tried together at most."""

MAX_NUMBERS = 80_000
"""Numbers of the scale matrices of all labelings, for each component, above which a value of the
copied mixture takes too long: two of 200 dimensions, or 120 of 25."""

N_TRIED, OF, CLOSE = 5, 20, 1e-8
"""Draws at which the density must stay what it is, of how many, and how near."""

CENTERINGS = 10
"""Rounds in which draws are brought near the middle of all."""


class Labeled(NamedTuple):
    """A variable with an axis of labels; of weights that sum to one the last label is left out."""

    part: slice
    shape: tuple[int, ...]
    axis: int
    short: bool

    def permuted(self, xs: np.ndarray, labels: Sequence[int]) -> np.ndarray:
        """Its elements in states (n, d) with other labels; the logs of weights sum to zero."""
        values = xs[:, self.part].reshape(-1, *self.shape)
        if self.short:
            values = np.concatenate([values, -values.sum(axis=-1, keepdims=True)], axis=-1)
        values = values.take(labels, axis=self.axis + 1)
        return (values[..., :-1] if self.short else values).reshape(len(xs), -1)


def find_labelings(
    layout: Layout, draws: np.ndarray, terms: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray | None:
    """Find labels that can be permuted: prior and likelihood are the same at some draws then.

    Parameters
    ----------
    layout : Layout
    draws : array, shape (n, d)
        From the prior, unconstrained.
    terms : callable
        Log prior and log likelihood, shape (m, 2), at states (m, d).

    Returns
    -------
    array, shape (G, d, d), or None
        The linear maps of a state to all labelings, the one that it has first.
    """
    choices = list(_choices(layout))
    if not choices:
        return None
    values = terms(draws[:OF])
    fine = np.isfinite(values).all(axis=1).nonzero()[0][:N_TRIED]
    draws, values = draws[fine], values[fine]
    for moved, k in choices if fine.size == N_TRIED else ():
        swapped, turned = (1, 0, *range(2, k)), (*range(1, k), 0)
        if all(
            np.allclose(terms(_permuted(draws, moved, labels)), values, CLOSE, CLOSE)
            for labels in (swapped, turned)
        ):
            every = [
                _permuted(np.eye(layout.dim), moved, each).T for each in permutations(range(k))
            ]
            return np.array(every)
    return None


def _choices(layout: Layout) -> Iterator[tuple[tuple[Labeled, ...], int]]:
    """List sets of variables that may share labels, and how many: small sets, many labels first."""
    shapes = [shape or (1,) for shape in layout.shapes]  # a scalar may be the odds of two labels
    few = [k for k in range(MAX_LABELS, 1, -1) if factorial(k) * layout.dim**2 <= MAX_NUMBERS]
    for k in few:
        every = [
            Labeled(part, shape, shape.index(k) if k in shape else len(shape) - 1, k not in shape)
            for part, shape in zip(layout.slices, shapes, strict=True)
            if k in shape or shape[-1] == k - 1
        ][:MAX_VARIABLES]
        for n in range(1, len(every) + 1):
            yield from ((moved, k) for moved in combinations(every, n))


def _permuted(xs: np.ndarray, moved: Sequence[Labeled], labels: Sequence[int]) -> np.ndarray:
    xs = xs.copy()
    for each in moved:
        xs[:, each.part] = each.permuted(xs, labels)
    return xs


def one_labeling(mixture: Mixture) -> Mixture:
    """Components of a mixture that are of its first labeling; all modes of one without labels."""
    modes = mixture.modes
    if modes.labelings is None:
        return modes
    g = modes.n_labelings
    n = modes.n_components // g
    return replace(
        modes, weights=g * modes.weights[:n], means=modes.means[:n], scales=modes.scales.first(n),
        dofs=modes.dofs[:n], labelings=None,
    )  # fmt: skip


def all_labelings(modes: Mixture, maps: np.ndarray | None) -> Mixture:
    """Mixture with a copy of its components for each labeling, (G, d, d); itself without any."""
    if maps is None:
        return modes
    assert isinstance(modes.scales, FullScales)  # labelings are of few dimensions
    g, dim = len(maps), modes.dim
    means = np.einsum("gij,cj->gci", maps, modes.means)
    turned = np.einsum("gij,cjk->gcik", maps, modes.scales.cholesky)
    covariances = np.einsum("gcik,gcjk->gcij", turned, turned).reshape(-1, dim, dim)
    return replace(
        modes, weights=np.tile(modes.weights, g) / g, means=means.reshape(-1, dim),
        scales=FullScales(np.linalg.cholesky(covariances)), dofs=np.tile(modes.dofs, g),
        labelings=maps,
    )  # fmt: skip


def relabeled(mixture: Mixture, xs: np.ndarray) -> np.ndarray:
    """States (n, d) with those labels that make them likeliest in the first labeling."""
    if mixture.labelings is None:
        return xs
    first, maps = one_labeling(mixture), mixture.labelings
    log_t = [np.logaddexp.reduce(first.log_t(xs @ each.T), axis=1) for each in maps]
    return _turned(xs, maps, np.argmax(log_t, axis=0))


def near_each_other(xs: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """States (n, d) with labels, of all labelings (G, d, d), that bring them near their median."""
    near = xs[:1]
    for _ in range(CENTERINGS):
        center, variance = np.median(near, axis=0), near.var(axis=0)
        variance = np.where(variance > 0, variance, 1.0)
        squares = [((xs @ each.T - center) ** 2 / variance).sum(axis=1) for each in maps]
        near = _turned(xs, maps, np.argmin(squares, axis=0))
    return near


def in_any_labeling(xs: np.ndarray, maps: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """States (n, d), each in a labeling that is drawn at random."""
    return _turned(xs, maps, rng.integers(len(maps), size=len(xs)))


def _turned(xs: np.ndarray, maps: np.ndarray, labelings: np.ndarray) -> np.ndarray:
    """Bring each state, (n, d), to a labeling, (n,)."""
    made = np.empty_like(xs)
    for g in np.unique(labelings):
        made[labelings == g] = xs[labelings == g] @ maps[g].T
    return made
