"""Unseen real models of series: the Nile, ARMA, GARCH, lynx with Student-t noise, a GP's scales."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from benchmarks.models.published import published
from benchmarks.models.real_models_entry import RealModel
from benchmarks.truths.real_models_unseen_marginals import (
    field_with_noise,
    heavy_tailed_lags,
    local_level,
    moving_average,
    moving_variance,
)

NILE = np.array(published("NILE")) / 100.0
"""Annual flow of the Nile, 1871 to 1970, 10^10 m^3 (Cobb 1978)."""

LYNX = np.log10(published("LYNX"))
"""Log of the lynx trapped each year, 1821 to 1934 (Campbell & Walker 1977)."""


def nile() -> pm.Model:
    """Build a local level: a random walk by its steps, seen with noise, 102 parameters."""
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1)
        sigma = pm.HalfNormal("sigma", 2)
        start = pm.Normal("start", 10, 3)
        z = pm.Normal("z", shape=99)
        walk = pt.concatenate([[0.0], pt.cumsum(z)])
        pm.Normal("y", start + step * walk, sigma, observed=NILE)
    return model


@cache
def arma_data() -> np.ndarray:
    """Return 200 values of an ARMA(1, 1) process; simulated."""
    rng = np.random.default_rng(11)
    e, y = 0.5 * rng.normal(size=201), np.zeros(201)
    for i in range(1, 201):
        y[i] = 0.3 + 0.7 * y[i - 1] + 0.4 * e[i - 1] + e[i]
    return y[1:]


def arma() -> pm.Model:
    """Build an ARMA(1, 1) model, its errors one after the other in a scan (Stan's manual)."""
    y = pt.as_tensor(arma_data())
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        phi = pm.Normal("phi", 0, 2)
        theta = pm.Normal("theta", 0, 2)
        sigma = pm.HalfCauchy("sigma", 2.5)

        def error(now, before, last, mu, phi, theta):  # type: ignore[no-untyped-def]
            return now - mu - phi * before - theta * last

        first = y[0] - mu - phi * mu
        others = pytensor.scan(
            error, [y[1:], y[:-1]], [first], [mu, phi, theta], return_updates=False
        )
        errors = pt.concatenate([first[None], others])
        pm.Potential("y", pm.logp(pm.Normal.dist(0, sigma), errors).sum())
    return model


@cache
def garch_data() -> np.ndarray:
    """Return 200 returns; simulated."""
    rng = np.random.default_rng(1986)
    y, variance = np.zeros(200), 1.0
    for i in range(200):
        y[i] = 0.1 + np.sqrt(variance) * rng.normal()
        variance = 0.2 + 0.35 * (y[i] - 0.1) ** 2 + 0.5 * variance
    return y


def garch() -> pm.Model:
    """Build a GARCH(1, 1) model that is stationary: the bound of one parameter is another."""
    y = pt.as_tensor(garch_data())
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        base = pm.HalfNormal("base", 1)
        shock = pm.Uniform("shock", 0, 1)
        stay = pm.Uniform("stay", 0, 1 - shock)

        def advance(now, variance, mu, base, shock, stay):  # type: ignore[no-untyped-def]
            return base + shock * (now - mu) ** 2 + stay * variance

        first = pt.constant(1.0, dtype="float64")
        others = pytensor.scan(
            advance, [y[:-1]], [first], [mu, base, shock, stay], return_updates=False
        )
        variance = pt.concatenate([first[None], others])
        pm.Normal("y", mu, pt.sqrt(variance), observed=garch_data())
    return model


def lynx() -> pm.Model:
    """Build an autoregression of order two with Student-t noise."""
    with pm.Model() as model:
        c = pm.Normal("c", 0, 2)
        phi = pm.Normal("phi", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        nu = pm.Gamma("nu", 2, 0.1)
        mu = c + phi[0] * LYNX[1:-1] + phi[1] * LYNX[:-2]
        pm.StudentT("y", nu=nu, mu=mu, sigma=sigma, observed=LYNX[2:])
    return model


@cache
def rough_data() -> tuple[np.ndarray, np.ndarray]:
    """Places and values of 60 measurements; simulated."""
    rng = np.random.default_rng(60)
    x = np.sort(rng.uniform(0.0, 10.0, size=60))
    return x, np.sin(x) + 0.5 * np.sin(3.0 * x) + 0.3 * rng.normal(size=60)


def rough() -> pm.Model:
    """Build a Gaussian process of Matern's kernel, its values summed out."""
    x, y = rough_data()
    with pm.Model() as model:
        length = pm.InverseGamma("length", 3, 3)
        height = pm.HalfNormal("height", 2)
        sigma = pm.HalfNormal("sigma", 1)
        gp = pm.gp.Marginal(cov_func=height**2 * pm.gp.cov.Matern52(1, length))
        gp.marginal_likelihood("y", x[:, None], y, sigma=sigma)
    return model


MODELS = {
    "nile": RealModel(
        nile, 102, 100, "published (Cobb 1978)", lambda: local_level(NILE), "unseen"
    ),
    "arma": RealModel(
        arma, 4, 200, "simulated", lambda: moving_average(arma_data()), "unseen", dear=True
    ),
    "garch": RealModel(
        garch, 4, 200, "simulated", lambda: moving_variance(garch_data()), "unseen", dear=True
    ),
    "lynx": RealModel(
        lynx, 5, 112, "published (Campbell & Walker 1977)", lambda: heavy_tailed_lags(LYNX),
        "unseen",
    ),
    "rough": RealModel(
        rough, 3, 60, "simulated", lambda: field_with_noise(*rough_data()), "unseen"
    ),
}  # fmt: skip
"""Models by name."""
