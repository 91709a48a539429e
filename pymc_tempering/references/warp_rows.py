"""Coordinates of a warp before their likelihood parts are known: regressors, and arrays to fit."""

from dataclasses import dataclass, replace

import numpy as np

from pymc_tempering.references.conditional_fit import Conditionals
from pymc_tempering.references.warp import MAX_LOG, FunnelWarp, log_scale
from pymc_tempering.references.warp_screen import MAX_REGRESSORS, Effect, PriorDraws


@dataclass(frozen=True)
class WarpRow:
    """One coordinate to be warped: what is decided before its likelihood part is fitted."""

    effect: Effect
    centered: float
    falls: float


@dataclass(frozen=True, eq=False)
class Dependence:
    """How strongly coordinates depend on each other in posterior draws.

    Attributes
    ----------
    sizes : array, shape (d, d)
        Absolute correlations.
    least : float
        Size from which one counts.
    """

    sizes: np.ndarray
    least: float

    @classmethod
    def of(cls, xs: np.ndarray) -> "Dependence":
        """Take it from draws (n, d)."""
        spread = xs.std(axis=0)
        standard = (xs - xs.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        return cls(np.abs(standard.T @ standard) / len(xs), 3 / np.sqrt(len(xs)))


def with_regressors(
    prior: PriorDraws, dependence: Dependence, rows: list[WarpRow], barred: set[int]
) -> list[WarpRow]:
    """Give rows the regressors that correlate most: the unwarped, and globals of earlier rows."""
    correlations = dependence.sizes
    warped = {row.effect.index for row in rows}
    usable = [i for i in range(len(correlations)) if i not in warped | barred]
    filled = []
    for row in rows:
        effect, i = row.effect, row.effect.index
        others = [j for j in usable if correlations[i, j] > dependence.least]
        others.sort(key=(-correlations[i]).__getitem__)
        extra = [j for j in others if j not in effect.regressors]
        regressors = (*effect.regressors, *extra)[:MAX_REGRESSORS]
        if row.centered:
            mean = np.append(effect.mean, np.zeros(len(regressors) - len(effect.regressors)))
            new = replace(effect, regressors=regressors, mean=mean)
        else:
            mean, log_sd = prior.part(i, regressors)
            new = replace(effect, regressors=regressors, mean=mean, log_sd=log_sd)
        filled.append(replace(row, effect=new))
        if not row.centered and not row.falls:
            usable.append(i)
    return filled


def conditionals_of(xs: np.ndarray, rows: list[WarpRow]) -> Conditionals:
    """Arrays that the fit of the likelihood parts takes."""
    width = max(len(row.effect.regressors) for row in rows)
    s = np.array([log_scale(xs[:, e.scale], e.gamma, e.bounded) for e in (r.effect for r in rows)])
    design = np.zeros((len(rows), len(xs), 1 + width))
    a = np.empty_like(s)
    for k, row in enumerate(rows):
        others = row.effect.regressors
        design[k, :, 0] = 1.0
        design[k, :, 1 : 1 + len(others)] = xs[:, list(others)]
        a[k] = design[k, :, : 1 + len(others)] @ row.effect.mean
    log_sd = np.array([row.effect.log_sd for row in rows])[:, None]
    centered = np.array([row.centered for row in rows])[:, None]
    return Conditionals(
        xs[:, [row.effect.index for row in rows]].T,
        s,
        np.exp(-2.0 * (np.clip(log_sd, -MAX_LOG, MAX_LOG) + centered * s)),
        a,
        design,
        np.array([row.falls for row in rows]),
    )


def starts_of(rows: list[WarpRow], start: FunnelWarp | None) -> np.ndarray | None:
    """Log v and log kappa of an earlier fit, shape (W, 2); NaN for rows that it has not."""
    if start is None:
        return None
    keys = zip(start.index, start.scale, start.falls, strict=True)
    known = dict(zip(keys, zip(start.log_v, start.log_kappa, strict=True), strict=True))
    unknown = (np.nan, np.nan)
    return np.array([known.get((r.effect.index, r.effect.scale, r.falls), unknown) for r in rows])


def to_warp(rows: list[WarpRow], parameters: np.ndarray) -> FunnelWarp:
    """Put rows and the parameters of their likelihood parts into a warp."""
    effects, width = [row.effect for row in rows], parameters.shape[1] - 3
    regressors = np.repeat([[effect.scale] for effect in effects], width, axis=1)
    prior_mean = np.zeros((len(rows), 1 + width))
    for k, effect in enumerate(effects):
        regressors[k, : len(effect.regressors)] = effect.regressors
        prior_mean[k, : len(effect.mean)] = effect.mean
    log_sd, log_v, log_kappa = np.clip(
        [[effect.log_sd for effect in effects], *parameters[:, :2].T], -MAX_LOG, MAX_LOG
    )
    return FunnelWarp(
        index=np.array([effect.index for effect in effects]),
        scale=np.array([effect.scale for effect in effects]),
        gamma=np.array([effect.gamma for effect in effects]),
        bounded=np.array([effect.bounded for effect in effects]),
        centered=np.array([row.centered for row in rows]),
        falls=np.array([row.falls for row in rows]),
        log_sd=log_sd,
        log_v=log_v,
        log_kappa=log_kappa,
        regressors=regressors,
        prior_mean=prior_mean,
        likelihood_mean=parameters[:, 2:],
    )
