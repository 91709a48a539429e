"""A warp whose numbers come from the curvature of the density, and not from draws.

Where one coordinate after the other is taken out of a normal law, the Cholesky factor of its
precision says what each of them is, given those that are left: its precision, and its regression on
its neighbors. Of crossed effects, say, each person is given the items that it has met. The factor
of the posterior's precision gives the product of prior and likelihood part of a warped coordinate,
that of the prior's the former. What a row of the factor has beside its largest elements is left
out, as long as little is lost.

The precisions are means over draws, in which the scales are at their means: for a normal law that
is nearest to the density they are so (Opper & Archambeau 2009).

M. Opper, C. Archambeau: The variational Gaussian approximation revisited, Neural Computation 21,
2009.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import coo_array, csc_array, csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from pymc_tempering.core.sparse_curvature import (
    LEAST_CORRELATION,
    color_columns,
    find_pattern,
    full_rows,
    told_by,
)
from pymc_tempering.references.warp import MAX_LOG, FunnelWarp, log_scale
from pymc_tempering.references.warp_fit import Effect

N_STATES = 16
"""Draws at which the curvature is taken."""

STEP = 1e-3
"""Step of the differences of gradients, in standard deviations."""

CHUNK = 200
"""Gradients that are taken together."""

MAX_LOSS, MAX_REGRESSORS = 1.0, 16
"""Nats that the regressors that are left out may cost, and regressors of a coordinate on average at
most."""

MIN_WEIGHT = 0.02
"""Share of the likelihood in a coordinate's precision below which it is taken to have this one, and
no regression of its own."""

type Slopes = Callable[[np.ndarray], np.ndarray]
"""Gradients of log prior and log likelihood, shape (n, 2, d), at states of shape (n, d)."""


@dataclass(frozen=True, eq=False)
class Precisions:
    """Precisions of n coordinates given all others, in the order in which they are taken out.

    Attributes
    ----------
    order : array of int, shape (n,)
        Their places among the coordinates.
    full : array of bool, shape (n,)
        Whether a coordinate touches so many others that it is none of many alike.
    prior, whole : array, shape (n, n)
        Lower Cholesky factors of the precisions of prior and posterior.
    states, by_prior, by_whole : array, shape (m, n)
        Some states, and the mean that prior and posterior give each coordinate at the values that
        those after it have there.
    """

    order: np.ndarray
    full: np.ndarray
    prior: np.ndarray
    whole: np.ndarray
    states: np.ndarray
    by_prior: np.ndarray
    by_whole: np.ndarray


def precisions_at(states: np.ndarray, inside: np.ndarray, slopes: Slopes) -> Precisions:
    """Take the mean precisions of prior and posterior at states, shape (m, d), along coordinates.

    Raises
    ------
    ArithmeticError
        They have too many elements, or some that are not finite.
    numpy.linalg.LinAlgError
        That of the posterior is not positive.
    """
    steps = STEP * np.maximum(states.std(axis=0)[inside], 1e-8)
    first = states[0]

    def whole_slopes(xs: np.ndarray) -> np.ndarray:
        full = np.repeat(first[None], len(xs), axis=0)
        full[:, inside] = xs
        return -slopes(full)[:, :, inside].sum(axis=1)

    pattern = find_pattern(whole_slopes, first[inside], steps, CHUNK)
    prior, likelihood = _mean_curvatures(states, inside, slopes, pattern, steps)
    order = _elimination(prior, pattern)
    both = [each.toarray()[np.ix_(order, order)] for each in (prior, csr_array(prior + likelihood))]
    if not np.isfinite(both).all():
        raise ArithmeticError("The curvature is not finite.")
    whole = cholesky(both[1], lower=True, check_finite=False)
    try:
        own = cholesky(both[0], lower=True, check_finite=False)
    except np.linalg.LinAlgError:  # as of heavy tails
        own = np.diag(np.sqrt(np.maximum(np.diag(both[0]), 1e-300)))
    inside = inside[order]
    at, slope = states[:, inside], slopes(states)[:, :, inside]
    # In these units the gradient is the distance of each coordinate from its mean.
    by_prior, by_whole = (
        at + solve_triangular(factor, g.T, lower=True).T / np.diag(factor)
        for factor, g in ((own, slope[:, 0]), (whole, slope.sum(axis=1)))
    )
    if not (np.isfinite(by_prior).all() and np.isfinite(by_whole).all()):
        raise ArithmeticError("The mean is not finite.")
    return Precisions(inside, full_rows(pattern)[order], own, whole, at, by_prior, by_whole)


def _mean_curvatures(
    states: np.ndarray, inside: np.ndarray, slopes: Slopes, pattern: csr_array, steps: np.ndarray
) -> list[csr_array]:
    """Mean curvatures of minus log prior and log likelihood, shape (n, n)."""
    n, apart = inside.size, full_rows(pattern)
    color = color_columns(pattern, np.argsort(np.diff(pattern.indptr), kind="stable"), apart)
    moves = np.zeros((color.max() + 1, n))
    moves[color, np.arange(n)] = steps
    rows, columns = pattern.nonzero()
    told, moved = told_by(color, rows, columns)
    total = np.zeros((rows.size, 2))
    for x in states:
        xs = np.repeat(x[None], len(moves) + 1, axis=0)
        xs[1:, inside] += moves
        slope = slopes(xs)[:, :, inside]
        total += (slope[0] - slope[1:])[color[moved], :, told] / steps[moved][:, None]
    found = [coo_array((each / len(states), (rows, columns)), shape=(n, n)) for each in total.T]
    return [csr_array(0.5 * (each + each.T)) for each in found]


def _elimination(prior: csr_array, pattern: csr_array) -> np.ndarray:
    """Order in which coordinates are taken out, so that few others become neighbors by it.

    Those that touch many others go last. Those that hang together by their prior go together, the
    last of them first: free variables stand after those that their priors depend on.
    """
    n, own = prior.shape[0], np.sqrt(np.abs(prior.diagonal()))
    rows, columns = prior.nonzero()
    tied = np.abs(prior[rows, columns]) > LEAST_CORRELATION * own[rows] * own[columns]
    of_prior = csr_array((np.ones(tied.sum()), (rows[tied], columns[tied])), shape=(n, n))
    full = full_rows(of_prior)
    tied &= ~full[rows] & ~full[columns]
    inner = csr_array((np.ones(tied.sum()), (rows[tied], columns[tied])), shape=(n, n))
    n_parts, part = connected_components(inner, directed=False)
    rows, columns = part[pattern.nonzero()[0]], part[pattern.nonzero()[1]]
    apart = rows != columns
    touching = csr_array(
        (np.ones(apart.sum()), (rows[apart], columns[apart])), shape=(n_parts, n_parts)
    )
    touching.data[:] = -1.0
    dominant = diags_array(1.0 - np.asarray(touching.sum(axis=1)).ravel())
    minimum_degree = splu(
        csc_array(touching + dominant), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )  # fmt: skip
    return np.lexsort((-np.arange(n), minimum_degree.perm_c[part], full_rows(pattern)))


def _kept(factor: np.ndarray, least: float) -> np.ndarray:
    """Whether elements below the diagonal of a factor cost more than `least` nats if left out."""
    diagonal = np.diag(factor)
    return np.tril(0.5 * (factor / diagonal[:, None]) ** 2 > least, -1)


def _least_cost(factor: np.ndarray) -> float:
    """Cost of an element up to which all of them are left out (nats)."""
    below = np.tril(factor / np.diag(factor)[:, None], -1)
    costs = np.sort(0.5 * below[below != 0.0] ** 2)
    if not costs.size:
        return 0.0
    n = int(np.searchsorted(np.cumsum(costs), MAX_LOSS))
    return float(costs[min(max(n, costs.size - MAX_REGRESSORS * len(factor)), costs.size - 1)])


def warp_by_curvature(
    rows: Sequence[Effect], draws: np.ndarray, slopes: Slopes
) -> tuple[FunnelWarp, np.ndarray]:
    """Fit a warp of all coordinates but the scales.

    Parameters
    ----------
    rows : sequence of Effect
        The coordinates that follow a scale, and how.
    draws : array, shape (n, d)
        From about the posterior, unconstrained.
    slopes : callable

    Returns
    -------
    warp : FunnelWarp
    common : array of int
        The scales, and the coordinates that touch many others.

    Raises
    ------
    ArithmeticError, numpy.linalg.LinAlgError
        There is no such warp.
    """
    scales = sorted({row.scale for row in rows})
    mean = draws.mean(axis=0)
    inside = np.setdiff1d(np.arange(mean.size), scales)
    states = draws[np.linspace(0, len(draws) - 1, N_STATES).astype(int)]
    states[:, scales] = mean[scales]
    found = precisions_at(states, inside, slopes)
    least = _least_cost(found.whole)
    kept = _kept(found.whole, least) | _kept(found.prior, max(least, LEAST_CORRELATION))
    width = max(1, int(kept.sum(axis=0).max()))
    follows = {row.index: row for row in rows if row.centered or row.falls}
    plain = replace(rows[0], centered=0.0, falls=0.0)
    made = [
        _row(follows.get(int(i), plain), found, kept[:, e], e, width, mean)
        for e, i in enumerate(found.order)
    ]
    columns = (np.array(each) for each in zip(*made[::-1], strict=True))
    return FunnelWarp(*columns), np.append(scales, found.order[found.full])


def _row(
    row: Effect, found: Precisions, kept: np.ndarray, e: int, width: int, mean: np.ndarray
) -> tuple[float | np.ndarray, ...]:
    """Numbers of the coordinate that is taken out as number `e`, in the order of a warp's."""
    at = np.flatnonzero(kept)
    i, others = found.order[e], found.order[at]
    s = float(log_scale(mean[row.scale], row.gamma, row.bounded))
    own, precision = found.prior[e, e] ** 2, found.whole[e, e] ** 2
    a, c = (-each[at, e] / each[e, e] for each in (found.prior, found.whole))
    first_a, first_c = (
        (each[:, e] - found.states[:, at] @ slope).mean()
        for each, slope in ((found.by_prior, a), (found.by_whole, c))
    )
    if found.full[e]:
        first_c = mean[i] - c @ mean[others]
    if not (row.centered or row.falls):  # it follows no scale: all of it may be likelihood
        own, a, first_a = 1e-12 * precision, 0.0 * a, 0.0
    weight, fading = (precision - own) / precision, np.exp(-row.falls * s)
    if weight > MIN_WEIGHT:
        b = (c - (1.0 - weight) * a) / (weight * fading)
        first_b = (first_c - (1.0 - weight) * first_a) / (weight * fading)
    else:
        weight, b, first_b = MIN_WEIGHT, a, first_a
    regressors = np.full(width, row.scale)
    regressors[: at.size] = others
    of_prior, of_likelihood = np.zeros((2, 1 + width))
    of_prior[: 1 + at.size] = np.append(first_a, a)
    of_likelihood[: 1 + at.size] = np.append(first_b, b)
    log_sd = -0.5 * np.log(own) - row.centered * s
    log_v = 2.0 * row.falls * s - np.log(weight * precision)
    return (
        i, row.scale, row.gamma, row.bounded, row.centered, row.falls,
        log_sd, log_v, -MAX_LOG, regressors, of_prior, of_likelihood,
    )  # fmt: skip
