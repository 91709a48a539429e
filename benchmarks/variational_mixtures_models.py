"""Mixtures, zero-inflated counts and regressions with outliers, all parameters free.

Models, data and settings were written down before any of them was run.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def noise(line: pt.TensorVariable, **observed: np.ndarray) -> None:
    """Observe a curve whose noise is a mixture of a narrow and a wide normal."""
    w = pm.Beta("w", 1.0, 3.0)
    narrow, wide = pm.HalfNormal("narrow", 1.0), pm.HalfNormal("wide", 6.0)
    parts = [pm.Normal.dist(line, narrow), pm.Normal.dist(line, wide)]
    pm.Mixture("y", pt.stack([1.0 - w, w]), parts, **observed)


def with_outliers(curve: np.ndarray, sd: float, share: float, seed: int) -> np.ndarray:
    """Noisy data about a curve, a share of them far off."""
    rng = np.random.default_rng(seed)
    far = rng.random(curve.shape) < share
    return np.asarray(curve + np.where(far, 5.0, sd) * rng.normal(size=curve.shape))


def normal_three() -> pm.Model:
    """Three normals on the line, with weights, means and scales of their own."""
    rng = np.random.default_rng(11)
    y = np.r_[rng.normal(-4.0, 0.5, 75), rng.normal(0.0, 1.5, 45), rng.normal(5.0, 0.7, 30)]
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu, sd = pm.Normal("mu", 0.0, 5.0, shape=3), pm.HalfNormal("sd", 2.0, shape=3)
        pm.NormalMixture("y", w, mu, sd, observed=y)
    return model


def poisson_three() -> pm.Model:
    """Counts from three Poissons."""
    rng = np.random.default_rng(2)
    y = rng.poisson(np.array([1.0, 8.0, 25.0])[rng.integers(3, size=150)])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        rate = pm.Gamma("rate", 2.0, 0.2, shape=3)
        pm.Mixture("y", w, pm.Poisson.dist(rate, shape=(150, 3)), observed=y)
    return model


def zero_inflated_step() -> pm.Model:
    """Counts of six clinics in 20 weeks, of which some do not report; the rate jumps once."""
    rng = np.random.default_rng(3)
    week = np.arange(20.0)
    y = rng.poisson(np.where(week < 14, 2.0, 7.0), (6, 20)) * (rng.random((6, 20)) < 0.7)
    with pm.Model() as model:
        psi = pm.Beta("psi", 1.0, 1.0)
        rate = pm.Gamma("rate", 2.0, 0.4, shape=2)
        when = pm.Uniform("when", 0.0, 20.0)
        later = pm.math.sigmoid((week - when) / 0.3)
        pm.ZeroInflatedPoisson("y", psi, rate[0] + (rate[1] - rate[0]) * later, observed=y)
    return model


def peak_with_outliers() -> pm.Model:
    """A peak in a spectrum with outliers."""
    x = np.linspace(-10.0, 10.0, 100)
    y = with_outliers(4.0 * np.exp(-0.5 * (x - 4.0) ** 2), 0.5, 0.15, 4)
    with pm.Model() as model:
        center, height = pm.Normal("center", 0.0, 5.0), pm.HalfNormal("height", 4.0)
        width = pm.LogNormal("width", 0.0, 0.4)
        base = pm.Normal("base", 0.0, 1.0)
        noise(base + height * pm.math.exp(-0.5 * ((x - center) / width) ** 2), observed=y)
    return model


def line_with_outliers() -> pm.Model:
    """A line, and a third of the data on another one."""
    rng = np.random.default_rng(9)
    x = np.linspace(-2.0, 2.0, 120)
    other = rng.random(120) < 0.35
    y = np.where(other, 6.0 - 2.0 * x, 1.0 + 2.0 * x) + 0.4 * rng.normal(size=120)
    with pm.Model() as model:
        noise(pm.Normal("intercept", 0.0, 5.0) + pm.Normal("slope", 0.0, 3.0) * x, observed=y)
    return model


def normal_four() -> pm.Model:
    """Four normals on the line with one scale."""
    rng = np.random.default_rng(12)
    y = rng.normal(np.array([-6.0, -1.0, 2.5, 7.0])[rng.integers(4, size=200)], 0.8)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(4))
        mu, sd = pm.Normal("mu", 0.0, 6.0, shape=4), pm.HalfNormal("sd", 2.0)
        pm.NormalMixture("y", w, mu, sd, observed=y)
    return model


def negative_binomial_two() -> pm.Model:
    """Overdispersed counts of two kinds."""
    rng = np.random.default_rng(13)
    y = rng.negative_binomial(6, 6.0 / (6.0 + np.where(rng.random(150) < 0.4, 2.0, 20.0)))
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu = pm.Gamma("mu", 2.0, 0.2, shape=2)
        alpha = pm.Gamma("alpha", 3.0, 0.5, shape=2)
        parts = pm.NegativeBinomial.dist(mu=mu, alpha=alpha, shape=(150, 2))
        pm.Mixture("y", w, parts, observed=y)
    return model


def hurdle_outbreak() -> pm.Model:
    """Cases in eight towns, none reported in some weeks, with an outbreak at an unknown week."""
    rng = np.random.default_rng(14)
    week = np.arange(20.0)
    rate = 1.5 + 12.0 * np.exp(-0.5 * ((week - 6.0) / 1.5) ** 2)
    y = np.maximum(rng.poisson(rate, (8, 20)), 1) * (rng.random((8, 20)) < 0.6)
    with pm.Model() as model:
        psi = pm.Beta("psi", 1.0, 1.0)
        base, height = pm.Gamma("base", 2.0, 1.0), pm.Gamma("height", 2.0, 0.2)
        when, width = pm.Uniform("when", 0.0, 20.0), pm.LogNormal("width", 0.5, 0.4)
        mu = base + height * pm.math.exp(-0.5 * ((week - when) / width) ** 2)
        pm.HurdlePoisson("y", psi, mu, observed=y)
    return model


def dose_with_outliers() -> pm.Model:
    """A dose-response curve with four parameters, and outliers."""
    x = np.repeat(np.linspace(-4.0, 4.0, 10), 12)
    y = with_outliers(1.0 + 6.0 / (1.0 + np.exp(-2.0 * (x - 1.5))), 0.5, 0.2, 15)
    with pm.Model() as model:
        bottom, rise = pm.Normal("bottom", 0.0, 3.0), pm.Normal("rise", 0.0, 5.0)
        half, slope = pm.Normal("half", 0.0, 3.0), pm.HalfNormal("slope", 3.0)
        noise(bottom + rise * pm.math.sigmoid(slope * (x - half)), observed=y)
    return model


def two_peaks_with_outliers() -> pm.Model:
    """Two peaks of different heights in a spectrum with outliers."""
    x = np.linspace(-10.0, 10.0, 150)
    curve = 5.0 * np.exp(-0.5 * (x + 4.0) ** 2) + 3.0 * np.exp(-0.5 * ((x - 3.0) / 0.8) ** 2)
    y = with_outliers(curve, 0.5, 0.1, 16)
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 5.0, shape=2)
        height = pm.HalfNormal("height", 4.0, shape=2)
        width = pm.LogNormal("width", 0.0, 0.4, shape=2)
        shape = pm.math.exp(-0.5 * ((x[:, None] - center) / width) ** 2)
        noise((height * shape).sum(axis=-1), observed=y)
    return model


MODELS: dict[str, Callable[[], pm.Model]] = {
    f.__name__: f
    for f in (
        peak_with_outliers, poisson_three, normal_three, zero_inflated_step,
        negative_binomial_two, line_with_outliers, two_peaks_with_outliers, hurdle_outbreak,
        dose_with_outliers, normal_four,
    )
}  # fmt: skip

LARGEST_OF = {"negative_binomial_two": 1.9}
"""Largest temperature of VT's grid, where C(T) is infinite above some temperature (2.04 here)."""
