"""Models with a latent field, second half: made without a look at the code that is to follow them.

Written as users write them: centered or not, by PyMC's time series or by sums of plain normals. A
kind makes a model of about so many unconstrained dimensions, with data that the seed draws.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.interpolate import BSpline

from benchmarks.models.fields_models import Kind

SEASON = 12
ITEMS = 30
LENGTH = 10.0
"""Time that the Gaussian processes last."""


def student_walk(dim: int, seed: int) -> pm.Model:
    """Make a random walk under Student-t noise of unknown freedom, by a sum of plain normals."""
    rng, n = np.random.default_rng([seed, dim, 11]), dim - 3
    level = 1 + np.cumsum(0.2 * rng.standard_normal(n))
    y = level + 0.4 * rng.standard_t(4, n)
    with pm.Model() as model:
        nu = pm.Gamma("nu", 2, 0.1)
        step = pm.HalfNormal("step", 1)
        noise = pm.HalfNormal("noise", 1)
        start = pm.Normal("start", 0, 2)
        z = pm.Normal("z", shape=n - 1)
        level = start + step * pt.concatenate([[0.0], pt.cumsum(z)])
        pm.StudentT("y", nu=nu, mu=level, sigma=noise, observed=y)
    return model


def autoregression_poisson(dim: int, seed: int) -> pm.Model:
    """Make counts whose log rate is an autoregression with a constant, by PyMC's law of it."""
    rng, n = np.random.default_rng([seed, dim, 12]), dim - 3
    x = np.empty(n)
    x[0] = rng.normal(1, 0.6)
    for t in range(1, n):
        x[t] = 0.12 + 0.88 * x[t - 1] + 0.3 * rng.standard_normal()
    y = rng.poisson(np.exp(x))
    with pm.Model() as model:
        constant = pm.Normal("constant", 0, 1)
        phi = pm.Uniform("phi", -1, 1)
        sigma = pm.HalfNormal("sigma", 0.5)
        rho = pt.stack([constant, phi])
        start = pm.Normal.dist(1, 1)
        x = pm.AR("x", rho=rho, sigma=sigma, constant=True, init_dist=start, shape=n)
        pm.Poisson("y", pt.exp(x), observed=y)
    return model


def trend_and_season(dim: int, seed: int) -> pm.Model:
    """Make a level, its slope and monthly effects: one field centered, the other not."""
    rng, n = np.random.default_rng([seed, dim, 13]), max(2, (dim - SEASON - 3) // 2)
    slope = np.cumsum(0.01 * rng.standard_normal(n - 1))
    level = np.concatenate([[0.0], np.cumsum(slope + 0.15 * rng.standard_normal(n - 1))])
    month = np.arange(n) % SEASON
    y = level + np.sin(2 * np.pi * month / SEASON) + 0.4 * rng.standard_normal(n)
    with pm.Model() as model:
        sd_level = pm.HalfNormal("sd_level", 0.5)
        sd_slope = pm.HalfNormal("sd_slope", 0.1)
        sd_season = pm.HalfNormal("sd_season", 1)
        noise = pm.Exponential("noise", 1)
        start = pm.Normal.dist(0, 0.2)
        slope = pm.GaussianRandomWalk("slope", sigma=sd_slope, init_dist=start, shape=n - 1)
        first = pm.Normal("first", 0, 3)
        jumps = pm.Normal("jumps", shape=n - 1)
        moves = pt.cumsum(slope + sd_level * jumps)
        level = first + pt.concatenate([[0.0], moves])
        season = pm.Normal("season", 0, sd_season, shape=SEASON)
        pm.Normal("y", level + season[month], noise, observed=y)
    return model


def gaussian_process_counts(dim: int, seed: int) -> pm.Model:
    """Make counts whose log rate is a rough Gaussian process, with a dense covariance."""
    rng, n = np.random.default_rng([seed, dim, 14]), dim - 3
    t = np.linspace(0, LENGTH, n)
    apart = np.abs(t[:, None] - t)
    f = np.linalg.cholesky(0.5 * np.exp(-apart / 1.5)) @ rng.standard_normal(n)
    y = rng.poisson(np.exp(1 + f))
    with pm.Model() as model:
        ell = pm.InverseGamma("ell", 3, 4)
        eta = pm.HalfNormal("eta", 1)
        mu = pm.Normal("mu", 0, 2)
        f = pm.MvNormal("f", np.zeros(n), cov=eta**2 * pt.exp(-apart / ell), shape=n)
        pm.Poisson("y", pt.exp(mu + f), observed=y)
    return model


def uneven_times(dim: int, seed: int) -> tuple[np.ndarray, int]:
    """Draw which places of an even grid have data, the ends among them, and how many there are."""
    n = dim - 3
    places = n + n // 3
    inner = np.random.default_rng([seed, dim, 15]).choice(places - 2, n - 2, replace=False) + 1
    return np.sort(np.concatenate([[0, places - 1], inner])), places


def gaussian_process_whitened(dim: int, seed: int) -> pm.Model:
    """Make the same at uneven times, by a Cholesky factor times plain normals."""
    rng, (at, places) = np.random.default_rng([seed, dim, 16]), uneven_times(dim, seed)
    t = LENGTH * at / (places - 1)
    apart = np.abs(t[:, None] - t)
    f = np.linalg.cholesky(0.36 * np.exp(-apart / 2)) @ rng.standard_normal(t.size)
    y = rng.poisson(np.exp(0.5 + f))
    with pm.Model() as model:
        ell = pm.Gamma("ell", 3, 1)
        eta = pm.Exponential("eta", 1)
        mu = pm.Normal("mu", 0, 2)
        z = pm.Normal("z", shape=t.size)
        f = eta * (pt.linalg.cholesky(pt.exp(-apart / ell)) @ z)
        pm.Poisson("y", pt.exp(mu + f), observed=y)
    return model


@dataclass(frozen=True)
class Answers:
    """Answers of persons to items, each in one of two conditions."""

    persons: int
    items: int
    person: np.ndarray
    item: np.ndarray
    second: np.ndarray
    y: np.ndarray


def answers(dim: int, seed: int) -> Answers:
    """Draw an experiment: each person has a third of the items."""
    rng = np.random.default_rng([seed, dim, 17])
    items = min(ITEMS, max(2, dim // 4))
    persons, each = max(1, (dim - items - 6) // 2), max(2, items // 3)
    person = np.repeat(np.arange(persons), each)
    item = np.concatenate([rng.choice(items, each, replace=False) for _ in range(persons)])
    second = rng.integers(2, size=person.size)
    u = rng.standard_normal((persons, 2)) @ np.array([[1.0, -0.2], [0.0, 0.6]])
    v, x = 0.7 * rng.standard_normal(items), second - 0.5
    eta = 0.4 + 0.8 * x + u[person, 0] + u[person, 1] * x + v[item]
    y = (rng.random(eta.size) < 1 / (1 + np.exp(-eta))).astype(int)
    return Answers(persons, items, person, item, second, y)


def crossed_bernoulli(dim: int, seed: int) -> pm.Model:
    """Make right and wrong answers by persons, with correlated slopes, and items; not centered."""
    data = answers(dim, seed)
    x = data.second - 0.5
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1.5, shape=2)
        sds = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sds, compute_corr=True)
        z = pm.Normal("z", shape=(data.persons, 2))
        u = z @ chol.T
        sd_item = pm.HalfNormal("sd_item", 1)
        z_item = pm.Normal("z_item", shape=data.items)
        eta = beta[0] + u[data.person, 0] + sd_item * z_item[data.item]
        eta = eta + (beta[1] + u[data.person, 1]) * x
        pm.Bernoulli("y", logit_p=eta, observed=data.y)
    return model


def item_response(dim: int, seed: int) -> pm.Model:
    """Make answers to items that differ in difficulty and in how they tell persons apart."""
    rng, items = np.random.default_rng([seed, dim, 18]), min(ITEMS, max(2, dim // 5))
    persons = max(2, dim - 2 * items - 2)
    theta, b = rng.standard_normal(persons), rng.normal(0.2, 1, items)
    a = np.exp(rng.normal(0.1, 0.35, items))
    y = (rng.random((persons, items)) < 1 / (1 + np.exp(-a * (theta[:, None] - b)))).astype(int)
    with pm.Model() as model:
        theta = pm.Normal("theta", shape=persons)
        a = pm.LogNormal("a", 0, 0.5, shape=items)
        center = pm.Normal("center", 0, 1)
        spread = pm.HalfNormal("spread", 1.5)
        b = pm.Normal("b", center, spread, shape=items)
        pm.Bernoulli("y", logit_p=a * (theta[:, None] - b), observed=y)
    return model


@dataclass(frozen=True)
class Curve:
    """Data around a curve: the four splines that are not zero at each, and their values there."""

    splines: int
    which: np.ndarray
    basis: np.ndarray
    y: np.ndarray


def curve(dim: int, seed: int) -> Curve:
    """Draw places and values around a smooth curve."""
    rng, splines = np.random.default_rng([seed, dim, 19]), max(4, dim - 2)
    x = np.sort(rng.random(2 * splines))
    inner = np.arange(-3, splines + 1) / (splines - 3)
    first = np.minimum((x * (splines - 3)).astype(int), splines - 4)
    basis = BSpline.design_matrix(x, inner, 3).toarray()
    which = first[:, None] + np.arange(4)
    y = np.sin(9 * x) + 2 * x * np.cos(25 * x) + 0.5 * rng.standard_normal(x.size)
    return Curve(splines, which, np.take_along_axis(basis, which, axis=1), y)


def penalized_spline(dim: int, seed: int) -> pm.Model:
    """Make a penalized spline, whose coefficients are a random walk of second order."""
    data = curve(dim, seed)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 0.1)
        noise = pm.HalfNormal("noise", 1)
        start = pm.Normal.dist(0, 1)
        coef = pm.AR("coef", rho=[2.0, -1.0], sigma=tau, init_dist=start, shape=data.splines)
        pm.Normal("y", (data.basis * coef[data.which]).sum(axis=1), noise, observed=data.y)
    return model


def covariate_error(dim: int, seed: int) -> pm.Model:
    """Make a logistic regression on a covariate that was measured twice, with errors."""
    rng, n = np.random.default_rng([seed, dim, 20]), max(1, dim - 5)
    x = rng.normal(0.5, 1.2, n)
    w = x[:, None] + 0.7 * rng.standard_normal((n, 2))
    y = (rng.random(n) < 1 / (1 + np.exp(0.3 - 1.1 * x))).astype(int)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 2)
        b = pm.Normal("b", 0, 2)
        mean = pm.Normal("mean", 0, 2)
        spread = pm.HalfNormal("spread", 2)
        error = pm.HalfNormal("error", 1)
        x = pm.Normal("x", mean, spread, shape=n)
        pm.Normal("w", x[:, None], error, observed=w)
        pm.Bernoulli("y", logit_p=a + b * x, observed=y)
    return model


SECOND: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        student_walk, autoregression_poisson, trend_and_season, gaussian_process_counts,
        gaussian_process_whitened, crossed_bernoulli, item_response, penalized_spline,
        covariate_error,
    )
}  # fmt: skip
"""Kinds that the first half lacks."""
