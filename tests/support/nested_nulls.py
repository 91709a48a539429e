"""Models with a point null whose Bayes factor is known, and exact posterior draws of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pymc as pm
import xarray as xr
from scipy import integrate, stats

from pymc_tempering.testsystems import normal_inverse_gamma_regression
from support.exact_posteriors import autoregressive, posterior_tree

RHO = 0.6
"""Autocorrelation of the draws, from one to the next."""


@dataclass(frozen=True, eq=False)
class NestedNull:
    """A model, a null in it, the exact log BF10, and draws from the posterior.

    Attributes
    ----------
    draw : callable
        ``draw(rng, chains, draws)``; autocorrelated chains in equilibrium.
    """

    model: pm.Model
    null: dict[str, float]
    log_bf: float
    draw: Callable[[np.random.Generator, int, int], xr.DataTree]


def _design(n: int, dim: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 0.8 * rng.normal(size=(n, dim)) + 0.6 * rng.normal(size=(n, 1))


def regression(effect: float = 0.3, elements: tuple[int, ...] = (1,), seed: int = 1) -> NestedNull:
    """Regression with known noise and independent priors: no correction is needed.

    y = X b + noise with correlated regressors and b_j ~ N(0, 1); the null is b_j = 0.
    """
    X = _design(30, 4, seed)
    y = X @ np.array([0.5, effect, -0.8, 0.2]) + np.random.default_rng(seed + 1).normal(size=30)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0, shape=4)
        pm.Normal("y", X @ b, 1.0, observed=y)
    rest = [j for j in range(4) if j not in elements]
    log_z = [
        stats.multivariate_normal.logpdf(y, np.zeros(30), np.eye(30) + part @ part.T)
        for part in (X, X[:, rest])
    ]
    covariance = np.linalg.inv(np.eye(4) + X.T @ X)
    mean, root = covariance @ X.T @ y, np.linalg.cholesky(covariance)

    def draw(rng: np.random.Generator, chains: int, draws: int) -> xr.DataTree:
        return posterior_tree(b=mean + autoregressive(rng, (chains, draws, 4), RHO) @ root.T)

    null = {f"b[{j}]": 0.0 for j in elements}
    return NestedNull(model, null, float(log_z[0] - log_z[1]), draw)


def scaled_regression(effect: float = 0.3, seed: int = 1) -> NestedNull:
    """Regression whose prior of the coefficients has the scale of the unknown noise.

    Given b_1 = 0 the prior of the noise is no longer that of the null: a correction is needed.
    """
    X = _design(30, 3, seed)
    y = X @ np.array([0.5, effect, -0.8]) + 0.7 * np.random.default_rng(seed + 1).normal(size=30)
    prior = {"prior_scale": 2.0, "prior_shape": 1.0, "prior_rate": 1.0}
    full = normal_inverse_gamma_regression(X, y, **prior)
    null = normal_inverse_gamma_regression(X[:, [0, 2]], y, **prior)
    precision = np.eye(3) / 4.0 + X.T @ X
    mean = np.linalg.solve(precision, X.T @ y)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    posterior = stats.invgamma(1.0 + 15.0, scale=1.0 + 0.5 * (y @ y - mean @ precision @ mean))

    def draw(rng: np.random.Generator, chains: int, draws: int) -> xr.DataTree:
        noise = autoregressive(rng, (chains, draws, 4), RHO)
        sigma2 = posterior.ppf(stats.norm.cdf(noise[..., 3]))
        b = mean + np.sqrt(sigma2)[..., None] * (noise[..., :3] @ root.T)
        return posterior_tree(sigma2=sigma2, coef=b)

    return NestedNull(full.model, {"coef[1]": 0.0}, full.log_evidence - null.log_evidence, draw)


@cache
def jzs_model(n: int, r: float = 0.5**0.5) -> pm.Model:
    """One-sample t-test of Rouder et al. (2009): effect delta ~ Cauchy(0, r), p(sigma) ~ 1/sigma.

    The prior of log sigma is flat on (-10, 10), beyond which the likelihood has nothing.
    """
    with pm.Model() as model:
        delta = pm.Cauchy("delta", 0.0, r)
        sigma = pm.math.exp(pm.Uniform("log_sigma", -10.0, 10.0))
        pm.Normal("y", delta * sigma, sigma, observed=np.zeros(n))
    return model


def jzs_log_bf(y: np.ndarray, r: float = 0.5**0.5) -> float:
    """Log BF10 of the JZS t-test, equation (1) of Rouder et al. (2009), with g scaled by r^2."""
    n, nu = y.size, y.size - 1
    t2 = n * y.mean() ** 2 / y.var(ddof=1)

    def integrand(log_g: float) -> float:
        g = np.exp(log_g)
        a = 1.0 + n * r**2 * g
        log_f = -0.5 * np.log(a) - 0.5 * (nu + 1) * np.log1p(t2 / (a * nu))
        return float(np.exp(log_f - 0.5 * np.log(2 * np.pi) - 0.5 * log_g - 0.5 / g))

    area, _ = integrate.quad(integrand, -8.0, 30.0, epsabs=0.0, epsrel=1e-10, limit=500)
    return float(np.log(area) + 0.5 * (nu + 1) * np.log1p(t2 / nu))


def jzs_draws(
    y: np.ndarray, rng: np.random.Generator, chains: int, draws: int, r: float = 0.5**0.5
) -> xr.DataTree:
    """Posterior draws of the JZS t-test by its Gibbs sampler, after 200 that are dropped."""
    n, burn = y.size, 200
    mean, g = np.full(chains, y.mean()), np.ones(chains)
    kept = np.empty((2, chains, draws))
    for i in range(burn + draws):
        square = ((y - mean[:, None]) ** 2).sum(axis=1) + mean**2 / (r**2 * g)
        sigma2 = 0.5 * square / rng.gamma(0.5 * (n + 1), size=chains)
        g = 0.5 * (1.0 + mean**2 / (r**2 * sigma2)) / rng.gamma(1.0, size=chains)
        precision = n + 1.0 / (r**2 * g)
        mean = n * y.mean() / precision + np.sqrt(sigma2 / precision) * rng.normal(size=chains)
        if i >= burn:
            kept[:, :, i - burn] = mean / np.sqrt(sigma2), 0.5 * np.log(sigma2)
    return posterior_tree(delta=kept[0], log_sigma=kept[1])
