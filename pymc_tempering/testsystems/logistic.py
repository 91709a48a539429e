"""Logistic regression: a small posterior that is not Gaussian, integrated on a lattice."""

from itertools import product

import numpy as np
import pymc as pm
from scipy.special import expit, logsumexp

from pymc_tempering.testsystems.system import FloatArray, Moments, TestSystem

LOG_2PI = float(np.log(2.0 * np.pi))

STEP, REACH = 0.8, 8.8
"""Distance between points of the lattice, and its radius, in standard deviations at the mode."""


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

    return TestSystem(
        name="logistic_regression",
        model=model,
        dim=dim,
        n_modes=1,
        exact_log_z=lambda beta: float(logsumexp(lattice(beta)[1])),
        exact_moments=moments,
    )


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
