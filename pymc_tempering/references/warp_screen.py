"""Which coordinates are scales of which others: from draws of the prior and of the posterior."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from pymc_tempering.references.warp import log_scale

MIN_SCORE = 8.0
"""Least |z| of a scale coordinate and an effect in draws from the prior."""

MIN_STRENGTH = 10.0
"""Least standardized sum of squared z-scores of a scale coordinate in posterior draws."""

MAX_SCALES = 4
"""Scale coordinates that are tried at most."""

KINDS = ((1.0, 0.0), (0.5, 0.0), (-1.0, 0.0), (-0.5, 0.0), (1.0, 1.0), (0.5, 1.0))
"""gamma, and whether the scale is bounded: of log tau, log tau^2, logs of precisions, and the
logits of a bounded tau or tau^2."""

KIND_EFFECTS = 6
"""Effects by which the kind of a scale is chosen."""

MAX_REGRESSORS = 6
"""Regressors of a coordinate at most."""

SIGNIFICANT = 5.0
"""Standard errors at which a coefficient differs from zero, or from a whole number."""

FAR = 1e6
"""Median distances from the median beyond which a draw shows no moments."""

MAX_LOG_WEIGHT = 8.0
"""Bound of the log of a weight over its median."""


@dataclass(frozen=True)
class Effect:
    """A coordinate that follows a scale; its prior part is `N(A(x), exp(2 (log_sd + c s)))`.

    Attributes
    ----------
    index, scale : int
    gamma, bounded, log_sd : float
        `s = log_scale(x_t, gamma, bounded)`.
    regressors : tuple of int
        Coordinates in A.
    mean : array, shape (1 + number of regressors,)
        Constant and coefficients of A.
    centered, falls : float
        c, and f of its likelihood part; those of a centered effect by default.
    """

    index: int
    scale: int
    gamma: float
    bounded: float
    log_sd: float
    regressors: tuple[int, ...]
    mean: np.ndarray
    centered: float = 1.0
    falls: float = 0.0


@dataclass(frozen=True, eq=False)
class PriorDraws:
    """Draws from the prior, unconstrained, shape (n, d), and what they show once and for all."""

    xs: np.ndarray

    @cached_property
    def finite(self) -> np.ndarray:
        """The draws that neither overflow nor come near to it, which show no moments."""
        xs = self.xs[np.isfinite(self.xs).all(axis=1)]
        if not len(xs):
            return xs
        far = np.abs(xs - np.median(xs, axis=0))
        spread = np.median(far, axis=0)
        return xs[(far <= FAR * np.where(spread > 0, spread, np.inf)).all(axis=1)]

    @cached_property
    def effects(self) -> list[Effect]:
        """Centered effects of the prior."""
        return prior_effects(self.finite)

    @cached_property
    def _parts(self) -> dict[tuple[int, tuple[int, ...]], tuple[np.ndarray, float]]:
        return {}

    def part(self, i: int, regressors: tuple[int, ...]) -> tuple[np.ndarray, float]:
        """`prior_part` of a coordinate without a scale; all fits of a run ask for the same ones."""
        if (i, regressors) not in self._parts:
            self._parts[i, regressors] = prior_part(self.finite, i, regressors)
        return self._parts[i, regressors]


def spread_scores(xs: np.ndarray, *, ordered: bool = False) -> np.ndarray:
    """z-scores of pairs (t, i): does the spread of i given others grow with x_t; shape (d, d).

    Rank correlations of x_t with the size of the residual of x_i in the linear regression on all
    other coordinates; or on earlier ones (`ordered`), and then t must be earlier too. One inverse
    or one Cholesky factor of the correlation matrix gives the residuals of all regressions.
    """
    from scipy.stats import rankdata  # slow to import

    n, dim = xs.shape
    inner = np.clip(xs, *np.quantile(xs, (0.005, 0.995), axis=0))
    spread = inner.std(axis=0)
    inner = (inner - inner.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    shrink = max(1e-6, min(0.5, dim / n)) * (not ordered) + 1e-6
    correlations = (1 - shrink) * inner.T @ inner / n + shrink * np.eye(dim)
    if ordered:
        residuals = solve_triangular(np.linalg.cholesky(correlations), inner.T, lower=True).T
    else:
        residuals = inner @ np.linalg.inv(correlations)
    ranks, size_ranks = (
        (rankdata(each, axis=0) - 0.5 * (n + 1)) * np.sqrt(12.0) / n
        for each in (inner, np.abs(residuals))
    )
    scores: np.ndarray = ranks.T @ size_ranks / np.sqrt(n)
    scores[spread == 0], scores[:, spread == 0] = 0.0, 0.0
    return np.triu(scores, 1) if ordered else scores - np.diag(np.diag(scores))


def strong_scales(xs: np.ndarray) -> list[int]:
    """Coordinates that the spread of others depends on, the strongest first."""
    freedom = max(xs.shape[1] - 1, 1)
    strength = ((spread_scores(xs) ** 2).sum(axis=1) - freedom) / np.sqrt(2 * freedom)
    order = np.argsort(-strength)[:MAX_SCALES]
    return [int(t) for t in order if strength[t] > MIN_STRENGTH]


def least_squares(design: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their standard errors; columns may be degenerate."""
    size = np.sqrt((design**2).sum(axis=0))
    size[size == 0] = 1.0
    scaled = design / size
    inverse = np.linalg.pinv(scaled.T @ scaled, rcond=1e-12, hermitian=True)
    coefficients = np.linalg.lstsq(scaled, y, rcond=1e-10)[0] / size
    variance = np.mean((y - design @ coefficients) ** 2)
    return coefficients, np.sqrt(np.diag(inverse) * variance) / size


def prior_part(
    prior: np.ndarray, i: int, regressors: tuple[int, ...], s: np.ndarray | float = 0.0
) -> tuple[np.ndarray, float]:
    """Coefficients of A, whole numbers where these are near, and log sd of x_i over the scale."""
    weight = weights_of(s) * np.ones(len(prior))
    design = np.column_stack([np.ones(len(prior)), prior[:, list(regressors)]]) * weight[:, None]
    mean, errors = least_squares(design, prior[:, i] * weight)
    whole = np.round(mean)
    mean = np.where(np.abs(mean - whole) < SIGNIFICANT * errors, whole, mean)
    residual = prior[:, i] * weight - design @ mean
    return mean, 0.5 * float(np.log(max(np.mean(residual**2), 1e-300)))


def weights_of(s: np.ndarray | float) -> np.ndarray:
    """Weights exp(-s); those of the smallest and largest scales are bounded."""
    middle = np.median(s)
    return np.asarray(np.exp(-middle - np.clip(s - middle, -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)))


def prior_effects(prior: np.ndarray) -> list[Effect]:
    """Centered effects of a prior, from its draws of shape (n, d).

    Free variables stand after those that their priors depend on.
    """
    scores = np.abs(spread_scores(prior, ordered=True))
    best, dim = scores.argmax(axis=0), prior.shape[1]
    found = scores.max(axis=0) > MIN_SCORE
    scales = sorted({int(best[i]) for i in range(dim) if found[i]})
    plain = [i for i in range(dim) if not found[i] and i not in scales]
    effects: list[Effect] = []
    for t in scales:
        own = [i for i in range(dim) if found[i] and best[i] == t and i not in scales]
        if own:
            effects += _effects_of(prior, t, own, plain)
    return effects


def _effects_of(prior: np.ndarray, t: int, own: list[int], plain: list[int]) -> list[Effect]:
    """Effects of one scale coordinate, with the kind of scale that is most likely for the first."""
    some = own[:KIND_EFFECTS]
    best, highest = None, -np.inf
    for kind in KINDS:
        effects = _of_kind(prior, t, kind, some, plain)
        mean_scale = log_scale(prior[:, t], *kind).mean()
        likelihood = -sum(effect.log_sd for effect in effects) - len(some) * mean_scale
        if likelihood > highest:
            best, highest = effects, likelihood
    assert best is not None
    slope, error = _left_over(prior, best)
    kind = (best[0].gamma, best[0].bounded)
    if not best[0].bounded and abs(slope) > SIGNIFICANT * error:
        kind = (best[0].gamma + slope, 0.0)
    return _of_kind(prior, t, kind, own, plain)


def _left_over(prior: np.ndarray, effects: list[Effect]) -> tuple[float, float]:
    """Slope along x_t of the log size of the effects' residuals over the scale; and its error."""
    t, total = prior[:, effects[0].scale], np.zeros(len(prior))
    for effect in effects:
        mean = effect.mean[0] + prior[:, list(effect.regressors)] @ effect.mean[1:]
        size = np.abs(prior[:, effect.index] - mean) + 1e-300
        total += np.log(size) - log_scale(t, effect.gamma, effect.bounded)
    design = np.column_stack([np.ones(len(t)), t])
    coefficients, errors = least_squares(design, total / len(effects))
    return float(coefficients[1]), float(errors[1])


def _of_kind(
    prior: np.ndarray, t: int, kind: tuple[float, float], own: list[int], plain: list[int]
) -> list[Effect]:
    """Effects for a kind of scale: each may depend on plain coordinates and on earlier effects."""
    s = log_scale(prior[:, t], *kind)
    weighted = np.column_stack([np.ones(len(prior)), prior]) * weights_of(s)[:, None]
    size = np.sqrt((weighted**2).sum(axis=0))
    weighted /= np.where(size > 0, size, 1.0)
    gram = weighted.T @ weighted
    effects = []
    for k, i in enumerate(own):
        regressors = _pursuit(gram, 1 + i, [1 + j for j in plain + own[:k] if j < i], len(prior))
        mean, log_sd = prior_part(prior, i, regressors, s)
        effects.append(Effect(i, t, *kind, log_sd, regressors, mean))
    return effects


def _pursuit(gram: np.ndarray, i: int, others: list[int], n: int) -> tuple[int, ...]:
    """Regressors of column i, one by one: that of the highest partial correlation, if it counts."""
    chosen = [0]
    while len(chosen) <= MAX_REGRESSORS and others:
        block = np.linalg.pinv(gram[np.ix_(chosen, chosen)], rcond=1e-12, hermitian=True)
        of_own = block @ gram[chosen, i]
        of_others = block @ gram[np.ix_(chosen, others)]
        covariance = gram[others, i] - gram[np.ix_(others, chosen)] @ of_own
        own = gram[i, i] - gram[i, chosen] @ of_own
        left = np.diag(gram)[others] - (gram[np.ix_(chosen, others)] * of_others).sum(axis=0)
        usable = left > 1e-9
        if own < 1e-12 or not usable.any():
            break
        squared = np.where(usable, covariance**2 / np.where(usable, left * own, 1.0), 0.0)
        best = int(squared.argmax())
        if squared[best] * n < SIGNIFICANT**2 * max(1.0 - squared[best], 1e-12):
            break
        chosen.append(others[best])
        others = [j for j in others if j != others[best]]
    return tuple(j - 1 for j in chosen[1:])
