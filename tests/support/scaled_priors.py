"""Models with a known log Z for every scale of the prior of one variable."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from scipy import stats
from scipy.special import logsumexp


@dataclass(frozen=True, eq=False)
class ScaledSystem:
    """A PyMC model with the exact log Z for every scale of the prior of one variable.

    Attributes
    ----------
    name : str
    model : pymc.Model
    variable : str
        Whose prior has the scale.
    log_z : callable
        ``log_z(factor) -> float`` (nats), where the scale is that of the model times the factor.
    """

    name: str
    model: pm.Model
    variable: str
    log_z: Callable[[float], float]


def scaled_regression(
    dim: int = 4, n: int = 30, sigma: float = 1.0, prior_sd: float = 2.0, seed: int = 1
) -> ScaledSystem:
    """Regress with known noise, under a normal prior whose scale is known up to a factor.

    ``coef ~ Normal(0, factor prior_sd)``, ``y ~ Normal(X coef, sigma)``.
    log Z is the log density of y under Normal(0, sigma^2 I + factor^2 prior_sd^2 X X').

    Parameters
    ----------
    dim : int
        Number of coefficients.
    n : int
        Number of observations.
    sigma : float
        Standard deviation of the noise.
    prior_sd : float
        Prior standard deviation of each coefficient, at the factor 1.
    seed : int
        Seed of regressors and data.

    Returns
    -------
    ScaledSystem
        Variable ``coef`` of shape (dim,).
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim))
    y = X @ (prior_sd * rng.normal(size=dim)) + sigma * rng.normal(size=n)
    with pm.Model() as model:
        coef = pm.Normal("coef", 0.0, prior_sd, shape=dim)
        pm.Normal("y", X @ coef, sigma, observed=y)

    def log_z(factor: float) -> float:
        covariance = sigma**2 * np.eye(n) + (factor * prior_sd) ** 2 * X @ X.T
        return float(stats.multivariate_normal.logpdf(y, np.zeros(n), covariance))

    return ScaledSystem("scaled_regression", model, "coef", log_z)


def jzs_t_test(
    n: int = 20, effect: float = 0.6, scale: float = 2.0**-0.5, seed: int = 1
) -> ScaledSystem:
    """Test a mean with a Cauchy prior on the effect size, as Rouder et al. (2009) do.

    ``delta ~ Cauchy(0, factor scale)``, ``y ~ Normal(sigma delta, sigma)``, and, so that all priors
    are proper, ``sigma ~ LogNormal(0, 1)``. log Z by the trapezoid rule over delta and log sigma.

    Parameters
    ----------
    n : int
        Number of observations.
    effect : float
        Effect size of the data.
    scale : float
        Scale of the Cauchy prior, at the factor 1.
    seed : int
        Seed of the data.

    Returns
    -------
    ScaledSystem
        Variables ``delta``, whose prior is scaled, and ``sigma``.
    """
    y = effect + np.random.default_rng(seed).normal(size=n)
    with pm.Model() as model:
        delta = pm.Cauchy("delta", 0.0, scale)
        sigma = pm.LogNormal("sigma", 0.0, 1.0)
        pm.Normal("y", sigma * delta, sigma, observed=y)

    # Far more than ten posterior standard deviations, about 1 / sqrt(n) each, to either side.
    center = float(y.mean() / y.std())
    delta_grid = np.linspace(center - 5.0, center + 5.0, 2001)
    log_sigma_grid = np.linspace(-4.0, 4.0, 1601)
    marginal = _log_likelihood_of_effect(y, delta_grid, log_sigma_grid)
    step = np.log(delta_grid[1] - delta_grid[0])

    def log_z(factor: float) -> float:
        prior = stats.cauchy.logpdf(delta_grid, 0.0, factor * scale)
        return float(logsumexp(prior + marginal) + step)

    return ScaledSystem("jzs_t_test", model, "delta", log_z)


def _log_likelihood_of_effect(
    y: np.ndarray, delta: np.ndarray, log_sigma: np.ndarray
) -> np.ndarray:
    """Return the log likelihood of each effect size, with sigma integrated out."""
    n, total, square = y.size, y.sum(), (y**2).sum()
    inverse = np.exp(-log_sigma)
    exponent = (
        -0.5 * (square * inverse**2 - 2.0 * np.multiply.outer(delta, total * inverse))
        - 0.5 * n * np.square(delta)[:, None]
    )
    log_prior = stats.norm.logpdf(log_sigma)
    log_y = exponent - n * log_sigma - 0.5 * n * np.log(2.0 * np.pi)
    step = np.log(log_sigma[1] - log_sigma[0])
    return np.asarray(logsumexp(log_y + log_prior, axis=1) + step)
