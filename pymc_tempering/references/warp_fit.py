"""Fit a warp to draws: which coordinates follow which scale, by which regressors, and how.

Centered effects are found in draws from the prior, others in draws from the posterior. All
coordinates that follow a scale are warped, or none is.
"""

from dataclasses import dataclass, replace

import numpy as np

from pymc_tempering.core.threads import one_thread
from pymc_tempering.references.conditional_scoring import Conditionals, fit_conditionals
from pymc_tempering.references.warp import KINDS_OF_ROWS, MAX_LOG, FunnelWarp, log_scale
from pymc_tempering.references.warp_screen import (
    KINDS,
    MAX_REGRESSORS,
    MAX_SCALES,
    Effect,
    PriorDraws,
    spread_scores,
    strong_scales,
)


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
    warped = {row.index for row in rows}
    usable = [i for i in range(len(correlations)) if i not in warped | barred]
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
    xs = draws[np.isfinite(draws).all(axis=1)]
    if min(len(prior_draws.finite), len(xs)) < MIN_DRAWS or xs.shape[1] < 2:
        return None
    if len(xs) > MAX_DRAWS:
        xs = xs[np.linspace(0, len(xs) - 1, MAX_DRAWS).astype(int)]
    with one_thread(), np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rows = _followers(prior_draws, xs, start)
        return _fit_rows(xs, rows, start) if rows else None


def _followers(prior: PriorDraws, xs: np.ndarray, start: FunnelWarp | None) -> list[Effect]:
    """Coordinates that may follow a scale, in the order of the warp, with its kind and c and f."""
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
