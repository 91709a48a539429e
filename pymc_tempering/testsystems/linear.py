"""Linear models with known answers at every inverse temperature."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import gammaln

from pymc_tempering.testsystems.system import (
    LOG_2PI,
    Distribution,
    FloatArray,
    Moments,
    TestSystem,
    element,
)


def gaussian(
    dim: int = 2,
    n: int = 5,
    sigma: ArrayLike | None = None,
    prior_sd: ArrayLike | None = None,
    prior_mean: ArrayLike | None = None,
    seed: int = 0,
) -> TestSystem:
    """Multiply a Gaussian prior by a Gaussian likelihood of known variance.

    ``x[j] ~ Normal(prior_mean[j], prior_sd[j])``, ``y[i, j] ~ Normal(x[j], sigma[j])``. Each
    pi_beta is Gaussian with precision 1/prior_sd^2 + beta n/sigma^2.

    Parameters
    ----------
    dim : int
        Number of dimensions.
    n : int
        Observations per dimension.
    sigma, prior_sd, prior_mean : array_like of shape () or (dim,), optional
        By default different in each dimension (a pattern of three values, repeated) and
        without any symmetry.
    seed : int
        Seed of the data, drawn from the model.

    Returns
    -------
    TestSystem
        Variable ``x`` of shape (dim,); the cdf is that of its last element. log Z in nats.
    """
    mean = np.resize([1.0, -0.5, 2.0], dim) if prior_mean is None else _full(prior_mean, dim)
    sd = np.resize([2.0, 0.8, 1.3], dim) if prior_sd is None else _full(prior_sd, dim)
    noise = np.resize([0.7, 1.5, 1.0], dim) if sigma is None else _full(sigma, dim)
    rng = np.random.default_rng(seed)
    truth = mean + sd * rng.normal(size=dim)
    y = truth + noise * rng.normal(size=(n, dim))
    with pm.Model() as model:
        x = pm.Normal("x", mean, sd, shape=dim)
        pm.Normal("y", x, noise, observed=y)
    path = _LinearPath(np.tile(np.eye(dim), (n, 1)), y.ravel(), np.tile(noise, n), mean, sd)
    return _known_noise("gaussian", model, "x", path)


def gaussian_posterior(dim: int = 100, sigma: float = 0.1, seed: int = 0) -> TestSystem:
    """Narrow a high-dimensional standard normal prior by one precise observation.

    ``x[j] ~ Normal(0, 1)``, ``y[j] ~ Normal(x[j], sigma)``: the posterior is Gaussian with
    standard deviation sigma / sqrt(1 + sigma^2), a long path in many dimensions.

    Parameters
    ----------
    dim : int
        Number of dimensions.
    sigma : float
        Standard deviation of the observation.
    seed : int
        Seed of the data, drawn from the model.

    Returns
    -------
    TestSystem
        Variable ``x`` of shape (dim,); the cdf is that of its last element. log Z in nats.
    """
    system = gaussian(dim, n=1, sigma=sigma, prior_sd=1.0, prior_mean=0.0, seed=seed)
    return replace(system, name="gaussian_posterior")


def conjugate_regression(
    dim: int = 10, n: int = 50, sigma: float = 1.0, prior_sd: float = 2.0, seed: int = 0
) -> TestSystem:
    """Regress on correlated regressors with known noise.

    ``coef ~ Normal(prior_mean, prior_sd)``, ``y ~ Normal(X @ coef, sigma)``, with a prior mean
    that differs by coefficient. Each pi_beta is Gaussian with precision
    I/prior_sd^2 + beta X'X/sigma^2.

    Parameters
    ----------
    dim : int
        Number of coefficients.
    n : int
        Number of observations.
    sigma : float
        Standard deviation of the noise.
    prior_sd : float
        Prior standard deviation of each coefficient.
    seed : int
        Seed of regressors and data.

    Returns
    -------
    TestSystem
        Variable ``coef`` of shape (dim,); the cdf is that of its last element. log Z in nats.
    """
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    X = 0.8 * rng.normal(size=(n, dim)) + 0.6 * common
    mean = np.linspace(-1.0, 2.0, dim) if dim > 1 else np.ones(1)
    sd = np.full(dim, prior_sd)
    y = X @ (mean + sd * rng.normal(size=dim)) + sigma * rng.normal(size=n)
    with pm.Model() as model:
        coef = pm.Normal("coef", mean, sd, shape=dim)
        pm.Normal("y", X @ coef, sigma, observed=y)
    path = _LinearPath(X, y, np.full(n, sigma), mean, sd)
    return _known_noise("conjugate_regression", model, "coef", path)


def normal_inverse_gamma_regression(
    X: ArrayLike,
    y: ArrayLike,
    prior_mean: ArrayLike = 0.0,
    prior_scale: ArrayLike = 10.0,
    prior_shape: float = 3.0,
    prior_rate: float = 2.0,
) -> TestSystem:
    """Regress with unknown noise variance under the conjugate prior.

    ``sigma2 ~ InverseGamma(prior_shape, prior_rate)``,
    ``coef[j] ~ Normal(prior_mean[j], prior_scale[j] * sqrt(sigma2))``,
    ``y ~ Normal(X @ coef, sqrt(sigma2))``. The likelihood to the power beta is that of a
    regression with beta X'X, beta X'y, beta y'y and beta n in place of its sufficient
    statistics, so with r = y - X m, S the diagonal prior scale and G = S X'X S::

        a_beta = a + beta n / 2,
        b_beta = b + [beta r'r - beta^2 r'X S (I + beta G)^-1 S X'r] / 2,
        log Z = -(beta n / 2) log 2 pi - log det(I + beta G) / 2
                + a log b - a_beta log b_beta + log Gamma(a_beta) - log Gamma(a).

    Parameters
    ----------
    X : array_like of shape (n, p)
        Regressors, with a column of ones where an intercept is wanted.
    y : array_like of shape (n,)
        Response.
    prior_mean : array_like of shape () or (p,)
        Prior mean m of the coefficients.
    prior_scale : array_like of shape () or (p,)
        Prior standard deviation of the coefficients in units of the noise's.
    prior_shape, prior_rate : float
        The inverse gamma's a and b: mean b / (a - 1).

    Returns
    -------
    TestSystem
        Variables ``sigma2`` (scalar, sampled on the log scale) and ``coef`` of shape (p,); the
        cdf is that of ``sigma2``. log Z in nats.

    Raises
    ------
    ValueError
        If the shapes do not fit, a value is not finite, or a scale, shape or rate is not
        positive.
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"X must be (n, p) and y (n,), got {X.shape} and {y.shape}.")
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError("X and y must be finite; drop or impute missing values first.")
    n, p = X.shape
    mean, scale = _full(prior_mean, p), _full(prior_scale, p)
    if min(scale.min(), prior_shape, prior_rate) <= 0.0:
        raise ValueError("prior_scale, prior_shape and prior_rate must be positive.")
    path = _LinearPath(X, y, np.ones(n), mean, scale)
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", prior_shape, prior_rate)
        noise = pm.math.sqrt(sigma2)
        coef = pm.Normal("coef", mean, scale * noise, shape=p)
        pm.Normal("y", X @ coef, noise, observed=y)

    def posterior(beta: float) -> tuple[float, float]:
        return prior_shape + 0.5 * beta * n, prior_rate + 0.5 * path.square(beta)

    def log_z(beta: float) -> float:
        shape, rate = posterior(beta)
        gammas = gammaln(shape) - gammaln(prior_shape)
        rates = prior_shape * np.log(prior_rate) - shape * np.log(rate)
        return float(gammas + rates - 0.5 * beta * n * LOG_2PI - 0.5 * path.log_det(beta))

    def moments(beta: float) -> Moments:
        shape, rate = posterior(beta)
        sigma2_mean = rate / (shape - 1.0) if shape > 1.0 else np.inf
        sigma2_var = sigma2_mean**2 / (shape - 2.0) if shape > 2.0 else np.inf
        coef_mean, coef_var = path.moments(beta)
        return {
            "sigma2": (np.asarray(sigma2_mean), np.asarray(sigma2_var)),
            "coef": (coef_mean, sigma2_mean * coef_var),
        }

    def cdf(beta: float) -> Distribution:
        shape, rate = posterior(beta)
        return lambda value: np.asarray(stats.invgamma.cdf(value, shape, scale=rate))

    return TestSystem(
        "normal_inverse_gamma_regression", model, log_z, moments, cdf, **element("sigma2")
    )


@dataclass(frozen=True, eq=False)
class _LinearPath:
    """The tempered linear model in the eigenbasis of S X'X S, where every beta is diagonal."""

    X: FloatArray
    y: FloatArray
    noise: FloatArray
    mean: FloatArray
    scale: FloatArray

    @cached_property
    def eigen(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Eigenvalues (p,), basis (p, p), and the gradient at the prior mean in it (p,)."""
        standardized = self.X * self.scale / self.noise[:, None]
        eigenvalues, basis = np.linalg.eigh(standardized.T @ standardized)
        # Rounding can leave the zero eigenvalues of a rank-deficient design negative.
        return np.maximum(eigenvalues, 0.0), basis, basis.T @ (standardized.T @ self.residuals)

    @property
    def residuals(self) -> FloatArray:
        """What the prior mean leaves, in units of the noise, shape (n,)."""
        return (self.y - self.X @ self.mean) / self.noise

    def log_det(self, beta: float) -> float:
        return float(np.sum(np.log1p(beta * self.eigen[0])))

    def square(self, beta: float) -> float:
        """Sum of the squares of the response at beta, as far as the prior does not explain it."""
        eigenvalues, _, gradient = self.eigen
        explained = beta**2 * np.sum(gradient**2 / (1.0 + beta * eigenvalues))
        return float(beta * self.residuals @ self.residuals - explained)

    def log_z(self, beta: float) -> float:
        constant = float(-np.sum(np.log(self.noise)) - 0.5 * self.y.size * LOG_2PI)
        return beta * constant - 0.5 * self.square(beta) - 0.5 * self.log_det(beta)

    def moments(self, beta: float) -> tuple[FloatArray, FloatArray]:
        eigenvalues, basis, gradient = self.eigen
        shrunk = 1.0 / (1.0 + beta * eigenvalues)
        mean = self.mean + self.scale * (basis @ (beta * gradient * shrunk))
        return mean, self.scale**2 * (basis**2 @ shrunk)


def _known_noise(name: str, model: pm.Model, variable: str, path: _LinearPath) -> TestSystem:
    last = path.mean.size - 1

    def cdf(beta: float) -> Distribution:
        mean, variance = path.moments(beta)
        return lambda value: np.asarray(stats.norm.cdf(value, mean[last], np.sqrt(variance[last])))

    def moments(beta: float) -> Moments:
        return {variable: path.moments(beta)}

    return TestSystem(name, model, path.log_z, moments, cdf, **element(variable, last))


def _full(value: ArrayLike, size: int) -> FloatArray:
    try:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), (size,)).copy()
    except ValueError as error:
        raise ValueError(f"expected a scalar or {size} values, got {value!r}.") from error
