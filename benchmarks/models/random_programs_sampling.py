"""Values of the distributions of a program at one point, to make data of."""

from typing import Any

import numpy as np

from benchmarks.models.random_programs_families import Values
from benchmarks.models.random_programs_language import Dist
from benchmarks.models.random_programs_vectors import SPACES, VECTORS, compositions, sizes_of
from benchmarks.truths import random_programs_densities as densities
from benchmarks.truths.random_programs_places import place

type Array = np.ndarray
type Rng = np.random.Generator


def table_of(data: Array) -> Any:
    if data.ndim == 0:
        return data.item()
    return tuple(table_of(each) for each in data)


def sample(dist: Dist, shape: tuple[int, ...], env: Values, rng: Rng) -> Array:
    """Draw values of a distribution, (1, *shape, *core), for one point of `env`."""
    if dist.family in VECTORS:
        return _sample_vectors(dist, shape, env, rng)
    if dist.family == "Censored":
        x, limits = sample(dist.parts[0], shape, env, rng), dict(dist.args)
        return np.clip(x, limits["lower"], limits["upper"])
    if densities.is_discrete(dist):
        x = np.arange(0.0, 200.0)
        grid = np.tile(x.reshape(-1, *(1,) * len(shape)), (1, *shape))
        logs = densities.single_density(dist, grid, env)
    else:
        w = np.linspace(-5, 5, 1001).reshape(-1, *(1,) * len(shape)) * np.ones(shape)
        low, high = densities.support_of(dist, env, w.ndim)
        grid, log_jac = place(w, low, high)
        logs = densities.single_density(dist, grid, env) + log_jac
    weights = np.exp(logs - logs.max(axis=0))
    cdf = np.cumsum(weights, axis=0)
    below = cdf < rng.random(shape) * cdf[-1]
    x = np.take_along_axis(grid, np.minimum(below.sum(axis=0), len(grid) - 1)[None], 0)
    hurdle = dist.family in ("HurdleGamma", "HurdleLogNormal")
    return np.where(rng.random(shape) < 0.3, 0.0, x) if hurdle else x


def _sample_vectors(dist: Dist, shape: tuple[int, ...], env: Values, rng: Rng) -> Array:
    family = VECTORS[dist.family]
    space = {"improper": "real"}.get(family.space, family.space)
    if family.name == "LKJCorr" and dist.core == (3, 3):
        return _factors(shape, rng)
    rows = []
    for _ in range(max(1, int(np.prod(shape)))):
        if space == "counts":
            x = np.array(compositions(int(dict(dist.args)["n"]), dist.core[0]))
            log_jac: Array | float = 0.0
        else:
            w = rng.normal(scale=1.2, size=(3000, sizes_of(space, dist.core)))
            x, log_jac = SPACES[space](w, dist.core)
            log_jac = log_jac + 0.5 * np.sum(w**2, axis=1) / 1.44
        logs = densities.log_density(dist, x, env) + log_jac
        p = np.exp(logs - logs.max())
        rows.append(x[rng.choice(len(x), p=p / p.sum())])
    return np.array(rows).reshape(1, *shape, *dist.core)


def _factors(shape: tuple[int, ...], rng: Rng) -> Array:
    a = rng.normal(size=(1, *shape, 3, 6))
    c = a @ np.swapaxes(a, -1, -2)
    d = np.sqrt(np.diagonal(c, axis1=-2, axis2=-1))
    return np.linalg.cholesky(c / d[..., :, None] / d[..., None, :])
