"""Models with all parameters free, drawn at random: sizes, true parameters and data by seed.

Six kinds in turn: mixtures of normals, Poissons and negative binomials, zero-inflated counts with
steps, hurdle counts with outbreaks, spectra of peaks with outliers. The number of parts is drawn
from 2 to 5, true parameters about as wide as their priors.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def normals(rng: np.random.Generator) -> pm.Model:
    """Three to five normals on the line, each with its scale or all with one."""
    k, n, own = int(rng.integers(3, 6)), int(rng.integers(100, 201)), bool(rng.integers(2))
    place, scale = rng.normal(0.0, 5.0, k), np.exp(rng.normal(-0.2, 0.4, k if own else 1))
    part = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
    y = rng.normal(place[part], scale[part] if own else scale)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(k))
        mu = pm.Normal("mu", 0.0, 5.0, shape=k)
        sd = pm.HalfNormal("sd", 2.0, shape=k if own else ())
        pm.NormalMixture("y", w, mu, sd, observed=y)
    return model


def poissons(rng: np.random.Generator) -> pm.Model:
    """Counts from three or four Poissons."""
    k, n = int(rng.integers(3, 5)), int(rng.integers(100, 201))
    rate = rng.gamma(1.0, 12.0, k) + 0.5
    y = rng.poisson(rate[rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(k))
        rates = pm.Gamma("rate", 1.0, 1 / 12.0, shape=k)
        pm.Mixture("y", w, pm.Poisson.dist(rates, shape=(n, k)), observed=y)
    return model


def negative_binomials(rng: np.random.Generator) -> pm.Model:
    """Overdispersed counts of two or three kinds."""
    k, n = int(rng.integers(2, 4)), int(rng.integers(100, 201))
    mean, shape = rng.gamma(1.5, 15.0, k) + 0.5, rng.gamma(5.0, 2.0, k) + 1.0
    part = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0)))
    y = rng.negative_binomial(shape[part], (shape / (shape + mean))[part])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(k))
        mu = pm.Gamma("mu", 1.5, 1 / 15.0, shape=k)
        alpha = pm.Gamma("alpha", 5.0, 0.5, shape=k)
        pm.Mixture("y", w, pm.NegativeBinomial.dist(mu=mu, alpha=alpha, shape=(n, k)), observed=y)
    return model


def steps(rng: np.random.Generator) -> pm.Model:
    """Counts of some places in 15 weeks, some not reported; the rate jumps one to three times."""
    k, places = int(rng.integers(1, 4)), int(rng.integers(4, 9))
    week = np.arange(15.0)
    level = rng.gamma(2.0, 2.5, k + 1) + 0.3
    rate = level[np.searchsorted(np.sort(rng.uniform(1.0, 14.0, k)), week)]
    reported = rng.random((places, 15)) < rng.uniform(0.5, 0.9)
    y = rng.poisson(rate, (places, 15)) * reported
    with pm.Model() as model:
        psi = pm.Beta("psi", 1.0, 1.0)
        rates = pm.Gamma("rate", 2.0, 0.4, shape=k + 1)
        when = pm.Uniform("when", 0.0, 15.0, shape=k)
        later = pm.math.sigmoid((week[:, None] - when) / 0.3)
        mu = rates[0] * pt.prod(1.0 - later, axis=1)
        for j in range(k):  # after step j, and after no step that comes later in the list
            rest = pt.prod(1.0 - later[:, j + 1 :], axis=1) if j + 1 < k else 1.0
            mu = mu + rates[j + 1] * later[:, j] * rest
        pm.ZeroInflatedPoisson("y", psi, mu, observed=y)
    return model


def outbreaks(rng: np.random.Generator) -> pm.Model:
    """Cases in some towns in 15 weeks, none in some of them, with one or two outbreaks."""
    k, towns = int(rng.integers(1, 3)), int(rng.integers(4, 9))
    week = np.arange(15.0)
    place, size = rng.uniform(1.0, 14.0, k), rng.gamma(2.0, 5.0, k) + 2.0
    rate = rng.gamma(2.0, 0.7) + (
        size * np.exp(-0.5 * ((week[:, None] - place) / np.exp(rng.normal(0.2, 0.3, k))) ** 2)
    ).sum(axis=1)
    y = np.maximum(rng.poisson(rate, (towns, 15)), 1) * (rng.random((towns, 15)) < 0.6)
    with pm.Model() as model:
        psi = pm.Beta("psi", 1.0, 1.0)
        base, height = pm.Gamma("base", 2.0, 1.0), pm.Gamma("height", 2.0, 0.2, shape=k)
        when = pm.Uniform("when", 0.0, 15.0, shape=k)
        width = pm.LogNormal("width", 0.2, 0.4, shape=k)
        shape = pm.math.exp(-0.5 * ((week[:, None] - when) / width) ** 2)
        pm.HurdlePoisson("y", psi, base + (height * shape).sum(axis=-1), observed=y)
    return model


def peaks(rng: np.random.Generator) -> pm.Model:
    """One to four peaks in a spectrum with outliers."""
    k, n = int(rng.integers(1, 5)), int(rng.integers(80, 151))
    x = np.linspace(-10.0, 10.0, n)
    place, size = rng.uniform(-9.0, 9.0, k), 1.0 + rng.gamma(2.0, 1.5, k)
    wide = np.exp(rng.normal(0.0, 0.3, k))
    curve = (size * np.exp(-0.5 * ((x[:, None] - place) / wide) ** 2)).sum(axis=1)
    far = rng.random(n) < rng.uniform(0.05, 0.2)
    y = curve + np.where(far, 5.0, rng.uniform(0.3, 0.8)) * rng.normal(size=n)
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 5.0, shape=k)
        height = pm.HalfNormal("height", 4.0, shape=k)
        width = pm.LogNormal("width", 0.0, 0.4, shape=k)
        w = pm.Beta("w", 1.0, 3.0)
        narrow, broad = pm.HalfNormal("narrow", 1.0), pm.HalfNormal("broad", 6.0)
        line = (height * pm.math.exp(-0.5 * ((x[:, None] - center) / width) ** 2)).sum(axis=-1)
        parts = [pm.Normal.dist(line, narrow), pm.Normal.dist(line, broad)]
        pm.Mixture("y", pt.stack([1.0 - w, w]), parts, observed=y)
    return model


KINDS: tuple[Callable[[np.random.Generator], pm.Model], ...] = (
    normals, poissons, negative_binomials, steps, outbreaks, peaks,
)  # fmt: skip

LARGEST_OF = {"negative_binomials": 1.9}
"""Largest temperature of VT's grid, where C(T) is infinite above some temperature."""


def kind_of(seed: int) -> str:
    """Name of the kind that a seed draws from."""
    return KINDS[seed % len(KINDS)].__name__


def model_of(seed: int) -> pm.Model:
    """Model and data of a seed."""
    return KINDS[seed % len(KINDS)](np.random.default_rng([24, seed]))
