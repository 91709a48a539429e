"""Binomial likelihoods: of one probability, of the product of two, of a logistic regression."""

from itertools import product

import numpy as np
import pymc as pm
from scipy import stats
from scipy.special import betainc, betaln, digamma, expit, gammaln, logsumexp

from pymc_tempering.testsystems.system import (
    LOG_2PI,
    Axis,
    Distribution,
    FloatArray,
    Moments,
    TestSystem,
    element,
    of_log,
)

STEP, REACH = 0.8, 8.8
"""Distance between points of the lattice, and its radius, in standard deviations at the mode."""


def beta_binomial(n: int = 20, y: int = 14, a: float = 1.5, b: float = 4.0) -> TestSystem:
    """Put a beta prior on a binomial probability.

    ``p ~ Beta(a, b)``, ``y ~ Binomial(n, p)``:
    log Z(beta) = beta log C(n, y) + log B(a + beta y, b + beta (n - y)) - log B(a, b).

    Parameters
    ----------
    n, y : int
        Trials and successes, 0 <= y <= n.
    a, b : float
        Parameters of the prior.

    Returns
    -------
    TestSystem
        Variable ``p`` (scalar); the cdf is its own. log Z in nats.

    Raises
    ------
    ValueError
        If y is not in [0, n].
    """
    log_choose = _log_choose(n, y)
    with pm.Model() as model:
        p = pm.Beta("p", a, b)
        pm.Binomial("y", n, p, observed=y)

    def law(beta: float) -> tuple[float, float]:
        return a + beta * y, b + beta * (n - y)

    def moments(beta: float) -> Moments:
        first, second = law(beta)
        total = first + second
        variance = first * second / (total**2 * (total + 1.0))
        return {"p": (np.asarray(first / total), np.asarray(variance))}

    def cdf(beta: float) -> Distribution:
        return lambda value: np.asarray(stats.beta.cdf(value, *law(beta)))

    def log_z(beta: float) -> float:
        return float(beta * log_choose + betaln(*law(beta)) - betaln(a, b))

    return TestSystem("beta_binomial", model, log_z, moments, cdf, **element("p"))


def unidentifiable_binomial(n: int = 100, y: int = 30) -> TestSystem:
    """Observe only the product of two probabilities: a curved ridge.

    ``p1, p2 ~ Uniform(0, 1)``, ``y ~ Binomial(n, p1 * p2)``. The product has the prior density
    -log(theta), and with c = beta y + 1, d = beta (n - y) + 1

        log Z(beta) = beta log C(n, y) + log B(c, d) + log[psi(c + d) - psi(c)],

    psi the digamma function. Given theta, p1 has density proportional to 1/p1 on (theta, 1),
    which gives the moments: Z E[p1^k] is proportional to [B(c, d) - B(c + k, d)] / k.

    Parameters
    ----------
    n, y : int
        Trials and successes, 0 <= y <= n.

    Returns
    -------
    TestSystem
        Variables ``p1`` and ``p2`` (scalars, the same law); the cdf is that of ``p1``.
        log Z in nats.

    Raises
    ------
    ValueError
        If y is not in [0, n].
    """
    log_choose = _log_choose(n, y)
    with pm.Model() as model:
        p1 = pm.Uniform("p1", 0.0, 1.0)
        p2 = pm.Uniform("p2", 0.0, 1.0)
        pm.Binomial("y", n, p1 * p2, observed=y)

    def law(beta: float) -> tuple[float, float]:
        return beta * y + 1.0, beta * (n - y) + 1.0

    def log_z(beta: float) -> float:
        c, d = law(beta)
        ridge = np.log(digamma(c + d) - digamma(c))
        return float(beta * log_choose + betaln(c, d) + ridge)

    def moments(beta: float) -> Moments:
        c, d = law(beta)
        ridge = digamma(c + d) - digamma(c)

        def power(k: int) -> float:
            ratio = np.exp(betaln(c + k, d) - betaln(c, d))
            return float((1.0 - ratio) / (k * ridge))

        mean = power(1)
        moment = (np.asarray(mean), np.asarray(power(2) - mean**2))
        return {"p1": moment, "p2": moment}

    def cdf(beta: float) -> Distribution:
        c, d = law(beta)
        # p1 has density I_u(c, d) / u up to a constant. In w = log u it is I(c, d) alone.
        axis = Axis(-np.linspace(0.0, 40.0, 801)[::-1])
        return of_log(axis.cdf(axis.weights * betainc(c, d, np.exp(axis.nodes))))

    return TestSystem("unidentifiable_binomial", model, log_z, moments, cdf, **element("p1"))


def _log_choose(n: int, y: int) -> float:
    if not 0 <= y <= n:
        raise ValueError(f"y must be in [0, n], got y = {y} and n = {n}.")
    return float(gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1))


def logistic_regression(
    dim: int = 4, n: int = 60, prior_sd: float = 2.5, seed: int = 0
) -> TestSystem:
    """Set up a logistic regression with a Gaussian prior.

    ``coef ~ Normal(0, prior_sd)``, ``y ~ Bernoulli(logit_p=X @ coef)``, the first column of X
    being ones. log pi_beta is concave; it is integrated by the trapezoidal rule on a lattice
    aligned with its curvature at the mode, which converges geometrically for analytic
    densities. At the default size the error is below 1e-5, in nats and in
    the moments.

    Parameters
    ----------
    dim : int
        Number of coefficients, at most 4: the lattice has up to 23^dim points.
    n : int
        Number of observations.
    prior_sd : float
        Prior standard deviation of each coefficient.
    seed : int
        Seed of regressors and data.

    Returns
    -------
    TestSystem
        Variable ``coef`` of shape (dim,); no cdf. log Z in nats.

    Raises
    ------
    ValueError
        If `dim` is not between 1 and 4.
    """
    if not 1 <= dim <= 4:
        raise ValueError(f"dim must be between 1 and 4, got {dim}.")
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim))
    X[:, 0] = 1.0
    truth = np.resize([0.8, -1.2, 2.0, 0.5], dim)
    y = (rng.uniform(size=n) < expit(X @ truth)).astype(np.int64)
    with pm.Model() as model:
        coef = pm.Normal("coef", 0.0, prior_sd, shape=dim)
        pm.Bernoulli("y", logit_p=X @ coef, observed=y)
    sign = np.where(y == 1, 1.0, -1.0)
    signed = X * sign[:, None]

    def lattice(beta: float) -> tuple[FloatArray, FloatArray]:
        return _lattice(signed, prior_sd, beta)

    def moments(beta: float) -> Moments:
        points, terms = lattice(beta)
        p = np.exp(terms - terms.max())
        p = p / p.sum()
        mean = p @ points
        return {"coef": (mean, p @ (points - mean) ** 2)}

    def log_z(beta: float) -> float:
        return float(logsumexp(lattice(beta)[1]))

    return TestSystem("logistic_regression", model, log_z, moments)


def _lattice(signed: FloatArray, prior_sd: float, beta: float) -> tuple[FloatArray, FloatArray]:
    """Points of shape (N, dim) and the log of weight * prior * likelihood^beta at each."""
    dim = signed.shape[1]
    mode, precision = _laplace(signed, prior_sd, beta)
    transform = np.linalg.inv(np.linalg.cholesky(precision)).T
    offsets = np.arange(-REACH, REACH + 0.5 * STEP, STEP)
    cube = np.array(list(product(offsets, repeat=dim)))
    points = mode + cube[np.sum(cube**2, axis=1) <= REACH**2] @ transform.T
    log_likelihood = np.zeros(points.shape[0])
    # One datum at a time, or the matrix of all points by all data would not fit.
    for row in signed:
        log_likelihood -= np.logaddexp(0.0, -(points @ row))
    log_prior = -0.5 * np.sum((points / prior_sd) ** 2, axis=1)
    log_prior -= dim * (0.5 * LOG_2PI + np.log(prior_sd))
    log_volume = dim * np.log(STEP) + np.linalg.slogdet(transform)[1]
    return points, log_volume + log_prior + beta * log_likelihood


def _laplace(signed: FloatArray, prior_sd: float, beta: float) -> tuple[FloatArray, FloatArray]:
    mode = np.zeros(signed.shape[1])
    prior_precision = np.eye(mode.size) / prior_sd**2
    for _ in range(50):
        wrong = expit(-(signed @ mode))
        gradient = beta * signed.T @ wrong - mode / prior_sd**2
        precision = prior_precision + beta * (signed.T * (wrong * (1.0 - wrong))) @ signed
        step = np.linalg.solve(precision, gradient)
        # A full Newton step may overshoot where the curvature is far from the mode's.
        mode = mode + step * min(1.0, 2.0 / np.linalg.norm(step)) if step.any() else mode
        if np.abs(step).max() < 1e-10:
            break
    return mode, precision
