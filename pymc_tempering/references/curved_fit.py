"""A reference of one mode in many dimensions, from the curvature and few gradients.

In the coordinates of a warp by curvature a mode is nearly a standard normal. What is left is the
law of the scales and of the few coordinates that many others hang on. Draws of the fit itself, with
the gradients there, improve it step by step, as if it were normal: then a single step would do,
wherever it starts. So the draws that it begins with need not be from the posterior.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

from pymc_tempering.references.curved_warp import warp_by_curvature
from pymc_tempering.references.mixture import LowRankScales, Mixture
from pymc_tempering.references.mixture_fit import MAX_STRETCHED, PRIOR_SHARE, STRETCHES, n_clusters
from pymc_tempering.references.score_covariance import geometric_mean
from pymc_tempering.references.warp import FunnelWarp, warped_scores
from pymc_tempering.references.warp_fit import Effect

MAX_WARPS, MAX_STEPS = 10, 5
"""Warps that are made at most, each about the scales of the one before, and steps with each."""

STEP_DRAWS, LAST_DRAWS = 200, 1000
"""Draws of a step, and of the last one, which fits the spread of each coordinate."""

NEAR, FARTHEST, MAX_FACTOR = 0.5, 1.0, 4.0
"""Standard deviations that a step may move by to be the last; and the farthest that one can go, in
logs of scales, and the factor by which it can change a standard deviation."""

WIDER = 1.3
"""Factor of the spread of common coordinates: a fit by its own draws is too narrow for a law that
is not normal."""

MAX_WIDE, WIDE, LEAST_CURVED = 4, 0.7, 0.01
"""Directions at most in which a fit is widened, the curvature of u below which it is, where one
would be right, and the least that is believed."""

N_BASES, TURN = 4, 0.1
"""Draws at which that curvature is taken, and the step of the differences."""

MAX_COMMON = 16
"""Common coordinates at most that have a full covariance; with more, the first of them."""

type Terms = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Log prior and log likelihood, shape (n, 2), and their gradients, (n, 2, d), at states (n, d)."""


@dataclass(frozen=True, eq=False)
class Common:
    """Normal law of the common coordinates, in those of the warp."""

    at: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def fit_by_curvature(
    draws: np.ndarray,
    rows: Sequence[Effect],
    terms: Terms,
    rng: np.random.Generator,
    *,
    rough: bool,
) -> tuple[Mixture, np.ndarray] | None:
    """Fit a single component by curvature, and by draws of its own.

    Parameters
    ----------
    draws : array, shape (n, d)
        From where about the posterior is, unconstrained.
    rows : sequence of Effect
        Coordinates that follow scales; at least one.
    terms : callable
    rng : numpy.random.Generator
    rough : bool
        Whether the draws may lie beside the posterior, so that their clusters tell nothing.

    Returns
    -------
    mixture : Mixture
    log_ratio : array, shape (m,)
        Log of the target over the component, at draws of that (nats).

    None where there is no such fit, or the draws have several clusters.
    """
    draws = draws[np.isfinite(draws).all(axis=1)]
    xs, found = draws, None
    scales = sorted({row.scale for row in rows})
    spread = Common(np.array(scales), *_moments(xs[:, scales]))
    try:
        for _ in range(MAX_WARPS):
            warp, common = warp_by_curvature(rows, xs, lambda at: terms(at)[1])
            spread = _with_others(spread, common[:MAX_COMMON])
            first = spread
            for _ in range(MAX_STEPS):
                spread, moved = _step(warp, spread, terms, rng)
                if moved < NEAR:
                    break
            xs = warp.inverse(_draw(spread, xs.shape[1], STEP_DRAWS, rng))
            found = warp, spread
            if _moved(first, spread) < NEAR:
                break
        assert found is not None
        made = _whole(*found, terms, rng)
    except (ArithmeticError, np.linalg.LinAlgError):
        return None
    if not rough and n_clusters(found[0].forward(draws)[0], rng) > 1:
        return None
    return made


def _moments(xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of draws, shape (n, k)."""
    covariance = np.cov(xs, rowvar=False).reshape(2 * xs.shape[1:])
    return xs.mean(axis=0), covariance + 1e-10 * np.eye(xs.shape[1])


def _with_others(spread: Common, common: np.ndarray) -> Common:
    """Add coordinates that are new to a law, as standard normal; others are left out."""
    known = {int(i): k for k, i in enumerate(spread.at)}
    old = np.array([known.get(int(i), -1) for i in common])
    mean = np.where(old >= 0, spread.mean[old], 0.0)
    both = (old[:, None] >= 0) & (old >= 0)
    covariance = np.where(both, spread.covariance[np.ix_(old, old)], np.eye(old.size))
    return Common(common, mean, covariance)


def _draw(spread: Common, dim: int, n: int, rng: np.random.Generator) -> np.ndarray:
    us = rng.standard_normal((n, dim))
    us[:, spread.at] = rng.multivariate_normal(spread.mean, spread.covariance, n, method="cholesky")
    return us


def _scores(warp: FunnelWarp, us: np.ndarray, terms: Terms) -> np.ndarray:
    """Gradients along u of the log density of u, shape (n, d)."""
    xs = warp.inverse(us)
    return warped_scores(warp, xs, terms(xs)[1].sum(axis=1))[1]


def _finite(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows in which all is finite; there must be enough."""
    fine = np.all([np.isfinite(each.reshape(len(each), -1)).all(axis=1) for each in arrays], axis=0)
    if fine.mean() < 0.5:
        raise ArithmeticError("The density is not finite at most draws.")
    return tuple(each[fine] for each in arrays)


def _improved(us: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a normal density by draws, shape (n, k), and the gradients there."""
    covariance = geometric_mean(_moments(us)[1], _moments(scores)[1])
    return us.mean(axis=0) + covariance @ scores.mean(axis=0), covariance


def _step(
    warp: FunnelWarp, spread: Common, terms: Terms, rng: np.random.Generator
) -> tuple[Common, float]:
    """Improve the law of the common coordinates; tell by how many deviations it moved at most."""
    at = spread.at
    us = _draw(spread, int(warp.index.max()) + 1, STEP_DRAWS, rng)
    us, scores = _finite(us, _scores(warp, us, terms))
    mean, covariance = _improved(us[:, at], scores[:, at])
    before, after = (np.sqrt(np.diag(each)) for each in (spread.covariance, covariance))
    bounded = np.clip(after, before / MAX_FACTOR, before * MAX_FACTOR)
    covariance = covariance * np.outer(bounded / after, bounded / after)
    far = np.maximum(FARTHEST, 2.0 * before)
    new = Common(at, np.clip(mean, spread.mean - far, spread.mean + far), covariance)
    return new, _moved(spread, new)


def _moved(before: Common, after: Common) -> float:
    """Farthest that a common coordinate has moved, in the new standard deviations."""
    return float(
        (np.abs(after.mean - before.mean) / np.sqrt(np.diag(after.covariance))).max(initial=0.0)
    )


def _wide_directions(
    warp: FunnelWarp, spread: Common, bases: np.ndarray, terms: Terms, rng: np.random.Generator
) -> np.ndarray:
    """Directions in which the density of u is wider than it should be, shape (d, r).

    Of all that was left out of the warp, little in each coordinate may be much in all of them: the
    mean of crossed effects, say. Products with the curvature of u are differences of gradients.
    """
    inside, size = np.ones(bases.shape[1], dtype=bool), bases.shape[1]
    inside[spread.at] = False

    def product(v: np.ndarray) -> np.ndarray:
        step = TURN * np.where(inside, v.ravel(), 0.0)
        up, down = (_scores(warp, bases + sign * step, terms) for sign in (1.0, -1.0))
        bent = (down - up).mean(axis=0) / (2.0 * TURN)
        return np.where(inside, np.nan_to_num(bent), v.ravel())

    curvature = LinearOperator((size, size), matvec=product, dtype=float)
    first = np.where(inside, rng.standard_normal(size), 0.0)
    try:
        values, vectors = eigsh(
            curvature, k=min(MAX_WIDE, size - 2), which="SA", tol=0.05, maxiter=30, v0=first
        )
    except ArpackNoConvergence as error:
        values, vectors = error.eigenvalues, error.eigenvectors
    except ArpackError:
        return np.zeros((size, 0))
    wide = (values > LEAST_CURVED) & (values < WIDE)
    return vectors[:, wide] * np.sqrt(1.0 / values[wide] - 1.0)


def _whole(
    warp: FunnelWarp, spread: Common, terms: Terms, rng: np.random.Generator
) -> tuple[Mixture, np.ndarray]:
    """Make the component: mean and spread of each coordinate by the gradients at its draws."""
    dim, at = int(warp.index.max()) + 1, spread.at
    us = _draw(spread, dim, LAST_DRAWS, rng)
    us, scores = _finite(us, _scores(warp, us, terms))
    sds = np.sqrt(us.std(axis=0) / np.maximum(scores.std(axis=0), 1e-300))
    sds = np.clip(sds, us.std(axis=0) / MAX_FACTOR, us.std(axis=0) * MAX_FACTOR)
    mean = us.mean(axis=0) + sds**2 * scores.mean(axis=0)
    mean[at], covariance = _improved(us[:, at], scores[:, at])
    covariance *= WIDER**2
    own = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(own, own)
    rest = 0.5 * np.linalg.eigvalsh(correlation)[0]
    loadings = np.zeros((dim, at.size))
    loadings[at] = own[:, None] * np.linalg.cholesky(correlation - rest * np.eye(at.size))
    sds[at] = np.sqrt(rest) * own
    loadings = np.hstack([loadings, _wide_directions(warp, spread, us[:N_BASES], terms, rng)])
    scales = LowRankScales(sds[None], loadings[None])
    one = Mixture(
        np.ones(1), mean[None], scales, np.array([float(dim)]), PRIOR_SHARE, warp=warp, curved=True
    )
    draws = one.draw(STEP_DRAWS, rng)
    values, _ = terms(draws)
    [log_ratio] = _finite(values.sum(axis=1) - one.log_t(draws)[:, 0])
    for factor, share in STRETCHES:
        one = one.with_stretched(warp.scales[:MAX_STRETCHED], share, factor)
    return one, log_ratio
