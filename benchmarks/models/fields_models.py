"""Models with a latent field, first half: kinds that may be seen while the code is written.

A kind makes a model of about so many unconstrained dimensions, with data that the seed draws. Exact
log evidences of all but the lattice are in fields_first_truth.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt

type Kind = Callable[[int, int], pm.Model]


def random_walk_known(dim: int, seed: int) -> pm.Model:
    """Make a random walk with known scales and normal noise: the posterior is normal."""
    rng = np.random.default_rng([seed, dim, 1])
    level = np.cumsum(0.3 * rng.standard_normal(dim))
    y = level + 0.5 * rng.standard_normal(dim)
    with pm.Model() as model:
        x = pm.GaussianRandomWalk("x", sigma=0.3, init_dist=pm.Normal.dist(0, 1), shape=dim)
        pm.Normal("y", x, 0.5, observed=y)
    return model


def random_walk_normal(dim: int, seed: int) -> pm.Model:
    """Make a random walk with unknown scales and normal noise."""
    rng, n = np.random.default_rng([seed, dim, 2]), dim - 2
    level = np.cumsum(0.3 * rng.standard_normal(n))
    y = level + 0.5 * rng.standard_normal(n)
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1.0)
        noise = pm.HalfNormal("noise", 1.0)
        x = pm.GaussianRandomWalk("x", sigma=step, init_dist=pm.Normal.dist(0, 1), shape=n)
        pm.Normal("y", x, noise, observed=y)
    return model


def random_walk_poisson(dim: int, seed: int) -> pm.Model:
    """Make counts whose log rate is a random walk of unknown scale."""
    rng, n = np.random.default_rng([seed, dim, 3]), dim - 1
    level = 1 + np.cumsum(0.07 * rng.standard_normal(n))
    y = rng.poisson(np.exp(level))
    with pm.Model() as model:
        step = pm.HalfNormal("step", 0.5)
        x = pm.GaussianRandomWalk("x", sigma=step, init_dist=pm.Normal.dist(0, 2), shape=n)
        pm.Poisson("y", pt.exp(x), observed=y)
    return model


def volatility(dim: int, seed: int) -> pm.Model:
    """Make returns whose log variance is a random walk of unknown scale."""
    rng, n = np.random.default_rng([seed, dim, 4]), dim - 2
    h = np.cumsum(0.1 * rng.standard_normal(n))
    y = np.exp((h - 0.5) / 2) * rng.standard_normal(n)
    with pm.Model() as model:
        step = pm.Exponential("step", 10.0)
        mu = pm.Normal("mu", 0, 1)
        h = pm.GaussianRandomWalk("h", sigma=step, init_dist=pm.Normal.dist(0, 1), shape=n)
        pm.Normal("y", 0, pt.exp((mu + h) / 2), observed=y)
    return model


def neighbors(side: int) -> np.ndarray:
    """Return which places of a square lattice are beside which."""
    line = np.eye(side, k=1) + np.eye(side, k=-1)
    return np.kron(np.eye(side), line) + np.kron(line, np.eye(side))


def lattice_poisson(dim: int, seed: int) -> pm.Model:
    """Make counts on a square lattice, their log rates a proper conditional autoregression."""
    rng, side = np.random.default_rng([seed, dim, 5]), max(2, int(np.sqrt(dim - 3)))
    beside = neighbors(side)
    precision = np.diag(beside.sum(axis=1)) - 0.95 * beside
    field = 0.7 * np.linalg.solve(np.linalg.cholesky(precision).T, rng.standard_normal(side**2))
    y = rng.poisson(np.exp(1 + field))
    with pm.Model() as model:
        alpha = pm.Beta("alpha", 5, 1)
        tau = pm.Gamma("tau", 2, 1)
        mu = pm.Normal("mu", 0, 2)
        f = pm.CAR("f", mu=np.zeros(side**2), W=beside, alpha=alpha, tau=tau)
        pm.Poisson("y", pt.exp(mu + f), observed=y)
    return model


@dataclass(frozen=True)
class Crossed:
    """Data of crossed effects: the person, the item and the covariate of each of the values `y`."""

    persons: int
    items: int
    person: np.ndarray
    item: np.ndarray
    x: np.ndarray
    y: np.ndarray


def crossed_data(dim: int, seed: int) -> Crossed:
    """Draw persons with an intercept and a slope, and items with an intercept."""
    rng = np.random.default_rng([seed, dim, 6])
    persons = max(1, round(0.3 * dim) - 2)
    items, n = max(1, dim - 7 - 2 * persons), 5 * dim
    person, item = rng.integers(persons, size=n), rng.integers(items, size=n)
    x = rng.standard_normal(n)
    u = rng.standard_normal((persons, 2)) @ np.array([[0.8, 0.2], [0.0, 0.4]])
    v = 0.5 * rng.standard_normal(items)
    y = 0.3 + 0.5 * x + u[person, 0] + u[person, 1] * x + v[item] + 0.7 * rng.standard_normal(n)
    return Crossed(persons, items, person, item, x, y)


def crossed_normal(dim: int, seed: int) -> pm.Model:
    """Make crossed effects of persons, whose slopes are correlated with them, and of items."""
    data = crossed_data(dim, seed)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=2)
        su = pm.HalfNormal("su", 1, shape=2)
        rho = pm.Uniform("rho", -1, 1)
        sv = pm.HalfNormal("sv", 1)
        noise = pm.HalfNormal("noise", 1)
        u0 = pm.Normal("u0", 0, su[0], shape=data.persons)
        slope, rest = rho * su[1] / su[0], su[1] * pt.sqrt(1 - rho**2)
        u1 = pm.Normal("u1", slope * u0, rest, shape=data.persons)
        v = pm.Normal("v", 0, sv, shape=data.items)
        of_person = u0[data.person] + u1[data.person] * data.x
        mean = beta[0] + beta[1] * data.x + of_person + v[data.item]
        pm.Normal("y", mean, noise, observed=data.y)
    return model


FIRST: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        random_walk_known, random_walk_normal, random_walk_poisson, volatility, lattice_poisson,
        crossed_normal,
    )
}  # fmt: skip
"""Kinds that were there while the code was written."""
