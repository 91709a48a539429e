"""Mean and covariance of a nearly normal density, from draws and from the gradients there.

At draws of a normal density with covariance C the gradients of its log ("scores") have the
covariance C^-1, and the two belong together: the geometric mean G of the covariance of the draws
and of the inverse covariance of the scores, for which `G cov(scores) G = cov(draws)`, is C itself
with no error, once there are more draws than dimensions. A fit to the draws alone loses
d (d + 3) / (4 n) nats. Where the density is not normal, G may be worse than the draws. So the
covariance of the draws is shrunk toward G, or toward its own diagonal, as far as the likelihood of
held-out draws says.

G minimizes the Fisher divergence of a normal density (Seyboldt, Carlson & Carpenter 2026).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

SHRINKAGES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0])
"""Shares of the target in the shrunk covariance that are tried."""

FOLDS, BLOCKS = 4, 20
"""Parts that are held out in turn, each of several blocks of neighbors: draws of a chain, which are
alike, stay together."""

MIN_EXCESS = 1.5
"""Draws for each dimension that the scores need."""

CLEARLY, EDGE_ROOM = 4.0, 1.1
"""Standard errors by which the variance of a variable must exceed that of the fit to replace it,
and how many times the edge an eigenvalue must have."""

JITTER = 1e-9
"""Added to the diagonals of covariances, in units of the variances."""


@dataclass(frozen=True, eq=False)
class ScoredDraws:
    """Distinct draws with their weights, and scores of some of them.

    Attributes
    ----------
    xs : array, shape (n, d)
    weights : array, shape (n,)
    scored : array of int, shape (m,)
        Rows that have scores.
    scores : array, shape (m, d)
    """

    xs: np.ndarray
    weights: np.ndarray
    scored: np.ndarray
    scores: np.ndarray

    @property
    def effective(self) -> float:
        """Number of draws that the weights are worth."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())

    def part(self, inside: np.ndarray) -> "ScoredDraws":
        """Draws where a mask (n,) is True."""
        place = np.cumsum(inside) - 1
        kept = inside[self.scored]
        return ScoredDraws(
            self.xs[inside], self.weights[inside], place[self.scored[kept]], self.scores[kept]
        )


@dataclass(frozen=True, eq=False)
class _Target:
    """What a covariance is shrunk to: its lower factor, and a shift of the mean."""

    cholesky: np.ndarray
    shift: np.ndarray


def refine_normals(
    xs: np.ndarray,
    shares: np.ndarray,
    scored: np.ndarray,
    scores: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit the components of a normal mixture anew, with the scores of some draws.

    Parameters
    ----------
    xs : array, shape (n, d)
        Draws; equal ones count as one with their number as its weight.
    shares : array, shape (n, J)
        Share of each component in each draw.
    scored : array of int, shape (m,)
        Distinct draws that have scores.
    scores : array, shape (m, d)
    means, covariances : array, shape (J, d) and (J, d, d)
        For components that have too few draws.

    Returns
    -------
    means, covariances : array, shape (J, d) and (J, d, d)
    """
    rows, counts = distinct_rows(xs)
    place = {int(row): k for k, row in enumerate(rows)}
    at = np.array([place[int(row)] for row in scored], dtype=int)
    means, covariances = means.copy(), covariances.copy()
    for j in range(len(means)):
        draws = ScoredDraws(xs[rows], counts * shares[rows, j], at, scores)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = normal_by_scores(draws)
        if found is not None:
            means[j], covariances[j] = found
    return means, covariances


def distinct_rows(xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First rows of those that are equal, in their order, and how many there are of each."""
    _, first, counts = np.unique(xs, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order].astype(float)


def normal_by_scores(draws: ScoredDraws) -> tuple[np.ndarray, np.ndarray] | None:
    """Find mean and covariance with the highest likelihood of held-out draws.

    Returns
    -------
    (mean, covariance) or None
        None if there are too few draws, or nothing is finite.
    """
    n, dim = draws.xs.shape
    if draws.weights.sum() < 1.0 or draws.effective < MIN_EXCESS * dim + 10:
        return None
    block = (np.arange(n) * BLOCKS // n) % FOLDS
    totals = np.zeros((len(TARGETS), SHRINKAGES.size))
    for fold in range(FOLDS):
        used, held = draws.part(block != fold), draws.part(block == fold)
        for k, target_of in enumerate(TARGETS):
            totals[k] += _held_out(used, held, target_of)
    if not np.isfinite(totals.max()):
        return None
    best, at = np.unravel_index(int(totals.argmax()), totals.shape)
    target = TARGETS[best](draws)
    if target is None:
        return None
    share = SHRINKAGES[at]
    mean = _mean(draws.xs, draws.weights)
    z = _whitened(target.cholesky, draws.xs - mean)
    shrunk = (1.0 - share) * _second_moment(z, draws.weights) + share * np.eye(dim)
    try:
        covariance = widened(target.cholesky @ shrunk @ target.cholesky.T, draws.xs - mean, draws)
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    return mean + share * target.shift, covariance


def widened(covariance: np.ndarray, centered: np.ndarray, draws: ScoredDraws) -> np.ndarray:
    """Widen a covariance along the directions in which the draws are wider by more than chance.

    These are the eigenvectors of whitened draws with eigenvalues above the edge
    `(1 + sqrt(d / n))^2` of Marchenko & Pastur, and then the variables themselves: the log of a
    scale has a long tail, of which gradients know little.
    """
    dim = len(covariance)
    n = draws.effective
    factor = np.linalg.cholesky(0.5 * (covariance + covariance.T))
    values, directions = np.linalg.eigh(_second_moment(_whitened(factor, centered), draws.weights))
    wide = values > EDGE_ROOM * (1.0 + np.sqrt(dim / n)) ** 2
    along = (factor @ directions[:, wide]) * np.sqrt(values[wide] - 1.0)
    covariance = factor @ factor.T + along @ along.T
    variance = draws.weights @ centered**2 / draws.weights.sum()
    ratio = variance / np.diag(covariance)
    stretch = np.sqrt(np.where(ratio > 1.0 + CLEARLY * np.sqrt(2.0 / n), ratio, 1.0))
    return covariance * np.outer(stretch, stretch)


def _held_out(
    used: ScoredDraws, held: ScoredDraws, target_of: Callable[[ScoredDraws], _Target | None]
) -> np.ndarray:
    """Log likelihood of held-out draws for each shrinkage; minus infinity without a target."""
    target = target_of(used)
    if target is None:
        return np.full(SHRINKAGES.size, -np.inf)
    mean = _mean(used.xs, used.weights)
    values, directions = np.linalg.eigh(
        _second_moment(_whitened(target.cholesky, used.xs - mean), used.weights)
    )
    ys = _whitened(target.cholesky, held.xs - mean) @ directions
    shift = _whitened(target.cholesky, target.shift[None])[0] @ directions
    constant = held.weights.sum() * np.log(np.diag(target.cholesky)).sum()
    found = np.empty(SHRINKAGES.size)
    for j, share in enumerate(SHRINKAGES):
        variance = (1.0 - share) * np.maximum(values, JITTER) + share
        squares = ((ys - share * shift) ** 2 / variance).sum(axis=1)
        logs = np.log(variance).sum()
        found[j] = -0.5 * (held.weights @ (squares + logs)) - constant
    return np.where(np.isfinite(found), found, -np.inf)


def _diagonal(draws: ScoredDraws) -> _Target | None:
    """Variances of the draws."""
    centered = draws.xs - _mean(draws.xs, draws.weights)
    variance = draws.weights @ centered**2 / draws.weights.sum()
    if not (np.isfinite(variance).all() and (variance > 0).all()):
        return None
    return _Target(np.diag(np.sqrt(variance)), np.zeros(variance.size))


def _geometric(draws: ScoredDraws) -> _Target | None:
    """Take the geometric mean of covariance and inverse covariance of the scores."""
    xs, weights, scores = draws.xs[draws.scored], draws.weights[draws.scored], draws.scores
    sound = np.isfinite(scores).all(axis=1)
    xs, weights, scores = xs[sound], weights[sound], scores[sound]
    dim = draws.xs.shape[1]
    if len(xs) < MIN_EXCESS * dim:
        return None
    mean, mean_score = _mean(xs, weights), _mean(scores, weights)
    of_draws = _second_moment(xs - mean, weights)
    of_scores = _second_moment(scores - mean_score, weights)
    try:
        covariance = geometric_mean(of_draws, of_scores)
        cholesky = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    # The mean where the scores would vanish, from the mean of all draws.
    shift = mean - _mean(draws.xs, draws.weights) + covariance @ mean_score
    return _Target(cholesky, shift) if np.isfinite(cholesky).all() else None


TARGETS = (_diagonal, _geometric)


def geometric_mean(of_draws: np.ndarray, of_scores: np.ndarray) -> np.ndarray:
    """Return the positive definite G, shape (d, d), for which ``G of_scores G = of_draws``.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not positive definite.
    """
    eye = np.eye(len(of_draws))
    low, high = np.sqrt(np.diag(of_draws)), np.sqrt(np.diag(of_scores))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and low.all() and high.all()):
        raise np.linalg.LinAlgError("a variance is zero or not finite")
    scale = np.sqrt(low / high)  # both are of unit size in these units, if there is no correlation
    draws = of_draws / np.outer(scale, scale)
    scores = of_scores * np.outer(scale, scale)
    factor = np.linalg.cholesky(scores + JITTER * np.diag(np.diag(scores)))
    values, directions = np.linalg.eigh(factor.T @ draws @ factor)
    root = (directions * np.sqrt(np.maximum(values, 0.0))) @ directions.T
    inverse = solve_triangular(factor, eye, lower=True)
    mean = inverse.T @ root @ inverse
    mean = 0.5 * (mean + mean.T) * np.outer(scale, scale)
    return mean


def _mean(xs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return weights @ xs / weights.sum()


def _second_moment(xs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return (weights[:, None] * xs).T @ xs / weights.sum()


def _whitened(factor: np.ndarray, xs: np.ndarray) -> np.ndarray:
    return solve_triangular(factor, xs.T, lower=True).T
