"""Fit a warp to draws: which coordinates follow which scale, by which regressors, and how.

Centered effects are found in draws from the prior, others in draws from the posterior. All
coordinates that follow a scale are warped, or none is.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from pymc_tempering.core.threads import one_thread
from pymc_tempering.references.conditional_scoring import Conditionals, fit_conditionals
from pymc_tempering.references.warp import KINDS_OF_ROWS, MAX_LOG, FunnelWarp, log_scale

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

WIDE_DIM, WIDE_CORRELATION = 200, 0.3
"""In more dimensions than the first a regression on all coordinates leaves little but noise: there
a coordinate depends on others only if a (partial) correlation is larger than the second."""

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
        residuals = solve_triangular(_factor_of(correlations), inner.T, lower=True).T
    else:
        residuals = inner @ np.linalg.inv(correlations)
    ranks, size_ranks = (
        (rankdata(each, axis=0) - 0.5 * (n + 1)) * np.sqrt(12.0) / n
        for each in (inner, np.abs(residuals))
    )
    scores = ranks.T @ size_ranks / np.sqrt(n)
    scores[spread == 0], scores[:, spread == 0] = 0.0, 0.0
    return np.triu(scores, 1) if ordered else scores - np.diag(np.diag(scores))


def _factor_of(correlations: np.ndarray) -> np.ndarray:
    """Cholesky factor of correlations; in many dimensions of the strong ones."""
    if len(correlations) <= WIDE_DIM:
        return np.linalg.cholesky(correlations)
    strong = np.where(np.abs(correlations) > WIDE_CORRELATION, correlations, 0.0)
    lowest = np.linalg.eigvalsh(strong)[0]
    if lowest < 1e-3:
        strong += (1e-3 - lowest) * np.eye(len(strong))
    return np.linalg.cholesky(strong)


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
    return np.exp(-middle - np.clip(s - middle, -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT))


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
    used = np.array([*plain, *own])
    place = {i: 1 + k for k, i in enumerate(used.tolist())}
    weighted = np.column_stack([np.ones(len(prior)), prior[:, used]]) * weights_of(s)[:, None]
    size = np.sqrt((weighted**2).sum(axis=0))
    weighted /= np.where(size > 0, size, 1.0)
    gram, wide = weighted.T @ weighted, prior.shape[1] > WIDE_DIM
    effects, before = [], np.array(plain, dtype=int)
    for i in own:
        earlier = np.array([place[j] for j in before[before < i].tolist()], dtype=int)
        chosen = _pursuit(gram, place[i], earlier, len(prior), wide=wide)
        regressors = tuple(int(used[k - 1]) for k in chosen)
        before = np.append(before, i)
        mean, log_sd = prior_part(prior, i, regressors, s)
        effects.append(Effect(i, t, *kind, log_sd, regressors, mean))
    return effects


def _pursuit(gram: np.ndarray, i: int, others: np.ndarray, n: int, *, wide: bool) -> list[int]:
    """Regressors of column i, one by one: that of the highest partial correlation, if it counts."""
    chosen = [0]
    while len(chosen) <= MAX_REGRESSORS and others.size:
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
        if wide and squared[best] < WIDE_CORRELATION**2:
            break
        chosen.append(int(others[best]))
        others = np.delete(others, best)
    return chosen[1:]


def correlated(xs: np.ndarray) -> np.ndarray:
    """Absolute correlations in draws (n, d), shape (d, d); 0 where one is within three errors."""
    spread = xs.std(axis=0)
    standard = (xs - xs.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    sizes = np.abs(standard.T @ standard) / len(xs)
    return np.where(sizes > 3 / np.sqrt(len(xs)), sizes, 0.0)


def with_regressors(
    prior: PriorDraws, correlations: np.ndarray, rows: list[Effect], barred: set[int]
) -> list[Effect]:
    """Give rows the regressors that correlate most: the unwarped, and globals of earlier rows."""
    apart = {row.index for row in rows} | barred
    usable = [i for i in range(len(correlations)) if i not in apart]
    filled = []
    for row in rows:
        i = row.index
        others = [j for j in usable if correlations[i, j] > 0.0]
        others.sort(key=(-correlations[i]).__getitem__)
        extra = [j for j in others if j not in row.regressors]
        regressors = (*row.regressors, *extra)[:MAX_REGRESSORS]
        if row.centered:
            mean = np.append(row.mean, np.zeros(len(regressors) - len(row.regressors)))
            filled.append(replace(row, regressors=regressors, mean=mean))
        else:
            mean, log_sd = prior.part(i, regressors)
            filled.append(replace(row, regressors=regressors, mean=mean, log_sd=log_sd))
        if not row.centered and not row.falls:
            usable.append(i)
    return filled


def conditionals_of(xs: np.ndarray, rows: list[Effect]) -> Conditionals:
    """Arrays that the fit of the likelihood parts takes."""
    width = max(len(row.regressors) for row in rows)
    s = np.array([log_scale(xs[:, row.scale], row.gamma, row.bounded) for row in rows])
    design = np.zeros((len(rows), len(xs), 1 + width))
    a = np.empty_like(s)
    for k, row in enumerate(rows):
        others = row.regressors
        design[k, :, 0] = 1.0
        design[k, :, 1 : 1 + len(others)] = xs[:, list(others)]
        a[k] = design[k, :, : 1 + len(others)] @ row.mean
    log_sd, centered = (
        np.array([getattr(row, name) for row in rows])[:, None] for name in ("log_sd", "centered")
    )
    return Conditionals(
        xs[:, [row.index for row in rows]].T,
        s,
        np.exp(-2.0 * (np.clip(log_sd, -MAX_LOG, MAX_LOG) + centered * s)),
        a,
        design,
        np.array([row.falls for row in rows]),
    )


def starts_of(rows: list[Effect], start: FunnelWarp | None) -> np.ndarray | None:
    """Log v and log kappa of an earlier fit, shape (W, 2); NaN for rows that it has not."""
    if start is None:
        return None
    keys = zip(start.index, start.scale, start.falls, strict=True)
    known = dict(zip(keys, zip(start.log_v, start.log_kappa, strict=True), strict=True))
    unknown = (np.nan, np.nan)
    return np.array([known.get((r.index, r.scale, r.falls), unknown) for r in rows])


def to_warp(rows: list[Effect], parameters: np.ndarray) -> FunnelWarp:
    """Put rows and the parameters of their likelihood parts into a warp."""
    width = parameters.shape[1] - 3
    regressors = np.repeat([[row.scale] for row in rows], width, axis=1)
    prior_mean = np.zeros((len(rows), 1 + width))
    for k, row in enumerate(rows):
        regressors[k, : len(row.regressors)] = row.regressors
        prior_mean[k, : len(row.mean)] = row.mean
    log_sd, log_v, log_kappa = np.clip(
        [[row.log_sd for row in rows], *parameters[:, :2].T], -MAX_LOG, MAX_LOG
    )
    return FunnelWarp(
        **{name: np.array([getattr(row, name) for row in rows]) for name in KINDS_OF_ROWS},
        log_sd=log_sd,
        log_v=log_v,
        log_kappa=log_kappa,
        regressors=regressors,
        prior_mean=prior_mean,
        likelihood_mean=parameters[:, 2:],
    )


MAX_DRAWS, MIN_DRAWS = 1000, 50
"""Draws that a fit uses at most, and draws that it needs of the prior and of the posterior."""

MIN_GAIN = 20.0
"""Gain of log likelihood for which the coordinates of a scale are warped (nats)."""

MIN_OWN_GAIN = 1.0
"""Gain for which a coordinate that is no effect of a scale is warped too (nats)."""

KIND_COORDINATES, KIND_DRAWS, QUICK_DRAWS = 6, 200, 500
"""Coordinates and draws by which a kind of scale is chosen; draws by which c and f are."""

CLEAR = 15.0
"""Difference of log likelihood at which c and f are clear without regressors (nats)."""

MAX_WEIGHT = 0.9
"""Effects whose likelihood part has a greater weight at nearly all draws need no warp."""

MIN_RANGE, WIDE_RANGE = 0.4, 1.0
"""Least distance of the 1 % and 99 % quantiles of s, the log of a scale; and that of a scale which
has no effects, such as the residual sd of a regression: t's follow it where it varies little."""


@dataclass(frozen=True)
class _Claim:
    """A coordinate that may follow a scale: log likelihood, and by how much f is clear (nats)."""

    likelihood: float
    margin: float
    row: Effect


def fit_warp(
    prior_draws: PriorDraws, draws: np.ndarray, start: FunnelWarp | None = None
) -> FunnelWarp | None:
    """Find scales and the coordinates that follow them, and fit the warp of these.

    Parameters
    ----------
    prior_draws : PriorDraws
    draws : array, shape (n, d)
        From the posterior, unconstrained.
    start : FunnelWarp, optional
        An earlier fit: its scales are tried first, and its numbers are where the new fit starts.

    Returns
    -------
    FunnelWarp or None
        None if no coordinate follows a scale.
    """
    xs = _some(draws)
    rows = find_followers(prior_draws, xs, start)
    with one_thread(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _fit_rows(xs, rows, start) if rows else None


def _some(draws: np.ndarray) -> np.ndarray:
    """Finite draws, and not too many of them."""
    xs = draws[np.isfinite(draws).all(axis=1)]
    return xs if len(xs) <= MAX_DRAWS else xs[np.linspace(0, len(xs) - 1, MAX_DRAWS).astype(int)]


def find_followers(
    prior_draws: PriorDraws, draws: np.ndarray, start: FunnelWarp | None = None
) -> list[Effect]:
    """Find coordinates that may follow a scale, by draws from the posterior, shape (n, d).

    They are in the order of a warp, each with the kind of its scale and c and f.
    """
    xs = _some(draws)
    if min(len(prior_draws.finite), len(xs)) < MIN_DRAWS or xs.shape[1] < 2:
        return []
    with one_thread(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _followers(prior_draws, xs, start)


def _followers(prior: PriorDraws, xs: np.ndarray, start: FunnelWarp | None) -> list[Effect]:
    effects = prior.effects
    own = {effect.index for effect in effects}
    sure = {effect.scale for effect in effects}
    moves = np.minimum(xs.std(axis=0), prior.finite.std(axis=0)) > 0
    free = [i for i in range(xs.shape[1]) if moves[i] and i not in own | sure]
    claims: dict[int, _Claim] = {}
    scales = set(sure)
    for t, kinds in _candidates(xs, effects, start).items():
        if t in claims and t not in sure:
            continue
        open_to = [i for i in free if i != t and i not in scales]
        found = _claims(xs, _of_likeliest_kind(prior, xs, t, kinds, open_to), t in sure)
        if found:
            scales.add(t)
        for i, new in found.items():
            if i not in claims or new.likelihood > claims[i].likelihood:
                claims[i] = new
    correlations = correlated(xs)
    sides = [claims[i] for i in claims if i not in scales]
    sides = _settled(prior, xs, correlations, sides, own | scales)
    chosen = [claim.row for claim in sides] + effects
    chosen.sort(key=lambda row: (row.centered, row.falls, row.index))
    return with_regressors(prior, correlations, chosen, own | scales)


def _settled(
    prior: PriorDraws,
    xs: np.ndarray,
    correlations: np.ndarray,
    claims: list[_Claim],
    barred: set[int],
) -> list[_Claim]:
    """Claims in which c and f that were not clear are chosen with regressors, which are clear."""
    clear = [claim for claim in claims if claim.margin > CLEAR]
    doubtful = [claim for claim in claims if claim.margin <= CLEAR]
    if not doubtful:
        return claims
    barred = barred | {claim.row.index for claim in doubtful}
    barred |= {claim.row.index for claim in clear if claim.row.falls}
    filled = [with_regressors(prior, correlations, [claim.row], barred)[0] for claim in doubtful]
    rows = [replace(row, falls=falls) for row in filled for falls in (0.0, 1.0)]
    few = xs[:: max(1, len(xs) // QUICK_DRAWS)]
    _, flat, _ = fit_conditionals(conditionals_of(few, rows))
    falls = flat.reshape(-1, 2).argmax(axis=1)
    return clear + [
        replace(claim, row=replace(claim.row, falls=float(f)))
        for claim, f in zip(doubtful, falls, strict=True)
    ]


def _candidates(
    xs: np.ndarray, effects: list[Effect], start: FunnelWarp | None
) -> dict[int, list[tuple[float, float]]]:
    """Coordinates that may be scales, and the kinds of each that are tried."""
    kinds = {effect.scale: [(effect.gamma, effect.bounded)] for effect in effects}
    if start is not None:
        for t, gamma, bounded in zip(start.scale, start.gamma, start.bounded, strict=True):
            kinds.setdefault(int(t), [(float(gamma), float(bounded))])
    own = {effect.index for effect in effects}
    for t in strong_scales(xs):
        wide = [kind for kind in KINDS if _range(log_scale(xs[:, t], *kind)) > MIN_RANGE]
        if t not in own and wide and len(kinds) < MAX_SCALES:
            kinds.setdefault(t, wide)
    return {t: each for t, each in kinds.items() if t not in own}


def _range(s: np.ndarray) -> float:
    low, high = np.quantile(s, (0.01, 0.99))
    return float(high - low)


def _of_likeliest_kind(
    prior: PriorDraws, xs: np.ndarray, t: int, kinds: list[tuple[float, float]], free: list[int]
) -> list[Effect]:
    """Rows with f = 0 and f = 1 for each coordinate, and the kind of scale that fits best.

    The kind is judged by few draws of the coordinates that follow t most.
    """
    parts = {i: prior.part(i, ()) for i in free}

    def rows_of(kind: tuple[float, float], some: list[int]) -> list[Effect]:
        return [
            Effect(i, t, *kind, parts[i][1], (), parts[i][0], 0.0, falls)
            for i in some
            for falls in (0.0, 1.0)
        ]

    if len(kinds) == 1 or not free:
        return rows_of(kinds[0], free)
    size = np.abs(spread_scores(xs)[t, free])
    most = [free[k] for k in np.argsort(-size)[:KIND_COORDINATES]]
    few = xs[:: max(1, len(xs) // KIND_DRAWS)]
    every = [row for kind in kinds for row in rows_of(kind, most)]
    _, likelihood, _ = fit_conditionals(conditionals_of(few, every))
    totals = likelihood.reshape(len(kinds), -1, 2).max(axis=2).sum(axis=1)
    return rows_of(kinds[int(totals.argmax())], free)


def _claims(xs: np.ndarray, rows: list[Effect], sure: bool) -> dict[int, _Claim]:
    """Log likelihoods of coordinates that follow a scale; `rows` are pairs with f = 0 and f = 1.

    All follow if one is an effect, by its prior (`sure`) or with f = 1; else those that gain.
    """
    if not rows:
        return {}
    few = xs[:: max(1, len(xs) // QUICK_DRAWS)]
    _, flat, plain = fit_conditionals(conditionals_of(few, rows))
    likelihood = flat.reshape(-1, 2)
    falls, best = likelihood.argmax(axis=1), likelihood.max(axis=1)
    gain, margin = best - plain[::2], np.abs(likelihood[:, 1] - likelihood[:, 0])
    if not sure and np.maximum(gain, 0.0).sum() < MIN_GAIN / 2:
        return {}
    every = sure or (falls * gain).max() > MIN_OWN_GAIN
    s = log_scale(xs[:, rows[0].scale], rows[0].gamma, rows[0].bounded)
    if not every and _range(s) < WIDE_RANGE:
        return {}
    return {
        rows[2 * k].index: _Claim(float(best[k]), float(margin[k]), rows[2 * k + falls[k]])
        for k in range(len(best))
        if every or gain[k] > MIN_OWN_GAIN
    }


def _fit_rows(xs: np.ndarray, rows: list[Effect], start: FunnelWarp | None) -> FunnelWarp | None:
    """Fit the likelihood parts, and keep the rows of the scales that are worth a warp."""
    conditionals = conditionals_of(xs, rows)
    parameters, likelihoods, plain = fit_conditionals(conditionals, starts_of(rows, start))
    gains = likelihoods - plain
    warp = to_warp(rows, parameters)
    prior, likelihood = warp.precisions(conditionals.s.T)
    weights = np.quantile(likelihood / (prior + likelihood), 0.01, axis=0)
    keep = np.zeros(len(rows), dtype=bool)
    for t in warp.scales:
        own = warp.scale == t
        funnel = (own & (warp.centered > 0) & (weights < MAX_WEIGHT)).any()
        known = start is not None and t in start.scale
        keep[own] = funnel or known or gains[own].sum() > MIN_GAIN
    keep &= np.isfinite(likelihoods)
    return warp.rows(keep) if keep.any() else None
