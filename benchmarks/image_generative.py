"""Linear generative models of patches: learning, exact likelihood, and a patch as a PyMC model.

Sohl-Dickstein & Culpepper (2011), equations (30) to (32): x = bases a + noise of standard deviation
0.1, with a normal or a Laplace prior on a. With the normal prior the marginal is a normal, whose
best bases come from the principal components. With the Laplace prior the bases are learned by
expectation maximization, where a Hamiltonian chain for each patch keeps the draws of a. It begins
at the inverse filters of Laplace experts, which are the best bases without noise: with little noise
each step of expectation maximization is short.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import image_experts
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from image_patches import patches
from scipy import stats

type Prior = Literal["normal", "laplace"]

NOISE = 0.1
"""Standard deviation of the noise, as in the paper."""
ROUNDS, LEAPS, KEPT = 200, 8, 0.7
"""Rounds of learning, leapfrog steps of each, and the share of old moments in the running ones."""


@dataclass(frozen=True)
class Generative:
    """A linear generative model.

    Attributes
    ----------
    prior : {"normal", "laplace"}
        Of scale 1, of each coefficient.
    bases : array, shape (M, L)
    """

    prior: Prior
    bases: np.ndarray

    def log_joint(self, x: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Log p(x, a) in nats for patches (n, M) and coefficients (n, L)."""
        rest = (x - a @ self.bases.T) / NOISE
        log_noise = -0.5 * np.sum(rest**2, axis=1) - x.shape[1] * np.log(
            np.sqrt(2.0 * np.pi) * NOISE
        )
        if self.prior == "normal":
            return log_noise - 0.5 * np.sum(a**2, axis=1) - 0.5 * a.shape[1] * np.log(2.0 * np.pi)
        return log_noise - np.sum(np.abs(a), axis=1) - a.shape[1] * np.log(2.0)

    def slope(self, x: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Slope of log p(x, a) by the coefficients, (n, L)."""
        towards = (x - a @ self.bases.T) @ self.bases / NOISE**2
        return towards - (a if self.prior == "normal" else np.sign(a))

    def log_likelihood(self, x: np.ndarray) -> np.ndarray:
        """Exact log p(x) in nats of patches (n, M), with the normal prior."""
        if self.prior != "normal":
            raise ValueError("the marginal is known for the normal prior alone")
        covariance = self.bases @ self.bases.T + NOISE**2 * np.eye(x.shape[1])
        return np.atleast_1d(stats.multivariate_normal(np.zeros(x.shape[1]), covariance).logpdf(x))

    def model(self, x: np.ndarray) -> pm.Model:
        """Return the model of one patch, whose evidence is its likelihood."""
        with pm.Model() as model:
            patch = pm.Data("patch", x)
            make = pm.Normal if self.prior == "normal" else pm.Laplace
            a = make("a", 0.0, 1.0, shape=self.bases.shape[1])
            pm.Normal("x", pt.dot(self.bases, a), NOISE, observed=patch)
        return model

    def from_noise(self, x: np.ndarray) -> pm.Model:
        """Return the same integral over the noise z in place of a, for square bases.

        With z = (x - bases a) / 0.1 the noise has its own normal density, and the rest is
        p(a) / |det bases| at a = bases^-1 (x - 0.1 z). Nearly all z are likely, while few a of the
        prior are.
        """
        inverse = np.linalg.inv(self.bases)
        kind = pm.Normal if self.prior == "normal" else pm.Laplace
        with pm.Model() as model:
            patch = pm.Data("patch", x)
            z = pm.Normal("z", 0.0, 1.0, shape=len(inverse))
            a = pt.dot(inverse, patch - NOISE * z)
            density = pm.logp(kind.dist(0.0, 1.0, shape=len(inverse)), a)
            pm.Potential("coefficients", pt.sum(density) + np.linalg.slogdet(inverse)[1])
        return model


def best_normal(x: np.ndarray, n: int) -> Generative:
    """Bases of greatest likelihood with the normal prior (Tipping & Bishop 1999, noise known)."""
    variances, directions = np.linalg.eigh(x.T @ x / len(x))
    order = np.argsort(variances)[::-1][:n]
    lengths = np.sqrt(np.maximum(variances[order] - NOISE**2, 0.0))
    return Generative("normal", directions[:, order] * lengths)


def fit_laplace(x: np.ndarray, rng: np.random.Generator) -> Generative:
    """Learn as many bases as dimensions, with one Hamiltonian move of all chains a round."""
    without_noise = image_experts.fit(image_experts.start("laplace", x.shape[1], rng), x)
    found = Generative("laplace", np.linalg.inv(without_noise.filters))
    a = x @ without_noise.filters.T
    cross, squares = x.T @ a, a.T @ a
    for _ in range(ROUNDS):
        a = _move(found, x, a, rng)
        cross = KEPT * cross + (1.0 - KEPT) * x.T @ a
        squares = KEPT * squares + (1.0 - KEPT) * a.T @ a
        found = replace(found, bases=np.linalg.solve(squares, cross.T).T)
    return found


def _move(model: Generative, x: np.ndarray, a: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One Hamiltonian trajectory for each patch, in a metric that makes its noise a ball."""
    precision = model.bases.T @ model.bases / NOISE**2 + np.eye(a.shape[1])
    root = np.linalg.inv(np.linalg.cholesky(precision)).T  # covariance = root root'
    step = 0.7 * rng.uniform(0.5, 1.0)
    start = rng.normal(size=a.shape)
    place, momentum = a, start + 0.5 * step * model.slope(x, a) @ root
    for leap in range(LEAPS):
        place = place + step * momentum @ root.T
        half = 0.5 if leap == LEAPS - 1 else 1.0
        momentum = momentum + half * step * model.slope(x, place) @ root
    gain = model.log_joint(x, place) - model.log_joint(x, a)
    gain += 0.5 * np.sum(start**2 - momentum**2, axis=1)
    accepted = np.log(rng.uniform(size=len(a))) < gain
    return np.where(accepted[:, None], place, a)


@cache
def learned(prior: Prior, dim: int = 36, seed: int = 0) -> Generative:
    """Learn as many bases as dimensions from image patches."""
    train = patches(dim).train
    if prior == "normal":
        return best_normal(train, dim)
    return fit_laplace(train, np.random.default_rng(seed))
