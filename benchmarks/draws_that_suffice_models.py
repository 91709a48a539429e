"""Small models of correlated draws, with exact evidence: labels, shrinkage, a field."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import gammaln, logsumexp
from scipy.stats import halfcauchy, halfnorm, invgamma, multivariate_normal, norm

VELOCITIES = np.array([9.2, 10.2, 18.9, 19.5, 20.2, 21.5, 22.9, 33.0])
"""Eight like those of galaxies, 1000 km/s."""

MEANS = np.array([0.3, -0.6, 4.5, 0.9])

PLACES = np.linspace(0.0, 4.0, 7)
FIELD = np.round(np.sin(PLACES) + 0.4 * np.cos(3.1 * PLACES), 2)
NOISE = 0.4


@dataclass(frozen=True, eq=False)
class SmallModel:
    """A model, and a function that computes its log evidence (nats)."""

    build: Callable[[], pm.Model]
    log_evidence: Callable[[], float]


def labels() -> pm.Model:
    """Build two normals without an order, with a variance each: 5 parameters."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu = pm.Normal("mu", 20, 10, shape=2)
        v = pm.InverseGamma("v", 2, 1, shape=2)
        pm.NormalMixture("y", w, mu, sigma=pt.sqrt(v), observed=VELOCITIES)
    return model


def log_evidence_of_labels() -> float:
    """Sum over all allocations.

    Of what is allocated to a component the mean sums out, and the variance by quadrature.
    """
    n = VELOCITIES.size
    log_v = np.linspace(-8.0, 14.0, 2201)
    v = np.exp(log_v)
    weight = invgamma.logpdf(v, 2, scale=1) + log_v + np.log(log_v[1] - log_v[0])

    def of_set(mask: int) -> float:
        y = VELOCITIES[[i for i in range(n) if mask >> i & 1]] - 20.0
        if not y.size:
            return 0.0
        total = v + 100.0 * y.size
        square = (y @ y) / v - 100.0 * y.sum() ** 2 / (v * total)
        log_det = (y.size - 1) * log_v + np.log(total)
        return float(logsumexp(weight - 0.5 * (y.size * np.log(2 * np.pi) + log_det + square)))

    sets = np.array([of_set(mask) for mask in range(2**n)])
    sizes = np.array([mask.bit_count() for mask in range(2**n)])
    bits = 2 ** np.arange(n)
    allocation = np.array(list(itertools.product(range(2), repeat=n)))
    masks = [(allocation == k) @ bits for k in range(2)]
    log_p = sum(sets[mask] + gammaln(sizes[mask] + 1.0) for mask in masks)
    return float(logsumexp(log_p) + gammaln(2.0) - gammaln(n + 2.0))


def shrinkage() -> pm.Model:
    """Build a horseshoe for four means: 9 parameters."""
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 1.0)
        local = pm.HalfCauchy("local", 1.0, shape=MEANS.size)
        z = pm.Normal("z", shape=MEANS.size)
        pm.Normal("y", z * local * tau, 1.0, observed=MEANS)
    return model


def log_evidence_of_shrinkage() -> float:
    """Integrate over the global scale what the integrals over each local one leave."""
    grid = np.linspace(-18.0, 18.0, 1201)
    weight = halfcauchy.logpdf(np.exp(grid)) + grid + np.log(grid[1] - grid[0])

    def given(log_tau: float) -> float:
        sd = np.sqrt(1.0 + np.exp(2.0 * (grid + log_tau)))
        return float(logsumexp(weight + norm.logpdf(MEANS[:, None], 0.0, sd), axis=1).sum())

    return float(logsumexp(weight + np.array([given(log_tau) for log_tau in grid])))


def field() -> pm.Model:
    """Build a Gaussian process with its values as parameters, seen with noise: 9 parameters."""
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5, 5)
        height = pm.HalfNormal("height", 2)
        gp = pm.gp.Latent(cov_func=height**2 * pm.gp.cov.ExpQuad(1, length))
        pm.Normal("y", gp.prior("f", PLACES[:, None]), NOISE, observed=FIELD)
    return model


def log_evidence_of_field() -> float:
    """Integrate over length and height what the normal law of the values leaves."""
    square = (PLACES[:, None] - PLACES) ** 2
    lengths, heights = np.linspace(-1.6, 3.2, 121), np.linspace(-6.0, 2.6, 121)
    cell = np.log((lengths[1] - lengths[0]) * (heights[1] - heights[0]))

    def at(log_length: float, log_height: float) -> float:
        K = np.exp(2.0 * log_height - 0.5 * square / np.exp(2.0 * log_length))
        K += (1e-6 + NOISE**2) * np.eye(PLACES.size)  # as PyMC stabilizes it
        log_p = multivariate_normal.logpdf(FIELD, np.zeros(PLACES.size), K)
        log_p += invgamma.logpdf(np.exp(log_length), 5, scale=5) + log_length
        return float(log_p + halfnorm.logpdf(np.exp(log_height), scale=2) + log_height)

    return float(logsumexp([at(a, b) for a in lengths for b in heights]) + cell)


SMALL = {
    "labels": SmallModel(labels, log_evidence_of_labels),
    "shrinkage": SmallModel(shrinkage, log_evidence_of_shrinkage),
    "field": SmallModel(field, log_evidence_of_field),
}
"""Models by name."""
