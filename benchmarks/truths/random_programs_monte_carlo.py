"""The evidence of a random program as a mean over draws of its prior: a rough second opinion.

The draws are NumPy's and SciPy's, and share no coordinates with the integrals: a scale that
vanishes, a funnel or a tail is met as often as the prior has it.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from benchmarks.models.random_programs_families import FAMILIES, Values
from benchmarks.models.random_programs_language import Dist, Observed, Program, Unknown
from benchmarks.models.random_programs_vectors import VECTORS, compositions
from benchmarks.truths.random_programs_cubature import Integral
from benchmarks.truths.random_programs_densities import (
    args_of,
    is_discrete,
    log_density,
    single_density,
    value_of,
)
from benchmarks.truths.random_programs_images import image_of, is_student, noise_of
from benchmarks.truths.random_programs_places import log_ordered
from benchmarks.truths.random_programs_states import MOST_VALUES, missing_of
from benchmarks.truths.random_programs_truth import term_of

type Array = np.ndarray
type Rng = np.random.Generator

DRAWS, MOST_DRAWS, ENOUGH, BEYOND = 100_000, 1_000_000, 0.0015, 4.0
"""Draws at a time and in all, the error that is small enough, and errors that two may differ by."""


def draw(dist: Dist, size: tuple[int, ...], env: Values, rng: Rng) -> Array:
    """Draws (n, ...) of a distribution of single values, for the n points of `env`."""
    if is_discrete(dist):
        u, x, below = rng.random(size), np.zeros(size), np.zeros(size)
        for value in range(MOST_VALUES):
            below += np.exp(single_density(dist, np.full(size, float(value)), env))
            if not np.any(u >= below):
                break
            x += u >= below
        return x
    if dist.family == "Truncated":  # not in its limits yet
        return draw(dist.parts[0], size, env, rng)
    if dist.family == "Mixture":
        w = value_of(dict(dist.args)["w"], env)
        w = w.reshape(len(w), *(1,) * (len(size) - 1), -1)
        part = np.sum(rng.random(size)[..., None] >= np.cumsum(w, axis=-1)[..., :-1], axis=-1)
        return np.choose(part, [draw(each, size, env, rng) for each in dist.parts])
    found = FAMILIES[dist.family].draw
    assert found is not None
    return found(args_of(dist, env, len(size)), size, rng)


def _wishart(a: Values, scale: Array, n: int, rng: Rng) -> Array:
    z = np.linalg.cholesky(scale) @ rng.normal(size=(n, 2, int(a["nu"][0])))
    return z @ z.transpose(0, 2, 1)


def _correlation(a: Values, n: int, rng: Rng) -> Array:
    r = 2 * rng.beta(a["eta"], a["eta"], size=n) - 1
    return np.stack([1 + 0 * r, 0 * r, r, np.sqrt(1 - r**2)], axis=1).reshape(n, 2, 2)


def _dirichlet(a: Values, n: int, rng: Rng) -> Array:
    x = rng.gamma(a["a"], size=(n, 3))
    return x / x.sum(axis=1, keepdims=True)


def _shares(a: Values, n: int, rng: Rng) -> Array:
    v = rng.beta(1, a["alpha"][:, None], size=(n, 2))
    one = np.ones((n, 1))
    return np.c_[v, one] * np.cumprod(np.c_[one, 1 - v], axis=1)


VECTOR_DRAWS: dict[str, Callable[[Values, int, Rng], Array]] = {
    "Dirichlet": _dirichlet,
    "StickBreakingWeights": _shares,
    "Wishart": lambda a, n, rng: _wishart(a, a["V"], n, rng),
    "WishartBartlett": lambda a, n, rng: _wishart(a, a["S"], n, rng),
    "LKJCorr": _correlation,
}


def _vectors(dist: Dist, n: int, env: Values, rng: Rng) -> Array:
    a = {name: value_of(value, env) for name, value in dist.args}
    if dist.family == "LKJCholeskyCov":
        scales = draw(dist.parts[0], (n, 2), env, rng)
        return scales[:, :, None] * _correlation(a, n, rng)
    if VECTORS[dist.family].space == "counts":
        x = np.array(compositions(int(a["n"][0]), dist.core[0]))
        logs = [log_density(dist, np.broadcast_to(each, (n, 3)), env) for each in x]
        below = np.cumsum(np.exp(logs), axis=0)
        return x[np.minimum(np.sum(rng.random(n) >= below, axis=0), len(x) - 1)]
    if dist.family in VECTOR_DRAWS:
        return VECTOR_DRAWS[dist.family](a, n, rng)
    e = np.concatenate([draw(law, (n, k), env, rng) for law, k in noise_of(dist)], axis=1)
    if is_student(dist):
        e[:, -2:] /= np.sqrt(rng.chisquare(a["nu"], size=n) / a["nu"])[:, None]
    return image_of(dist, e, env)


def _unknown(item: Unknown, n: int, env: Values, rng: Rng) -> tuple[Array, Array | float]:
    """Draws, and the logs of their weights."""
    if item.dist.family in VECTORS:
        return _vectors(item.dist, n, env, rng), 0.0
    x = draw(item.dist, (n, *item.shape), env, rng)
    if item.transform == "ordered":
        log_p = log_ordered(item, env)
        if not np.shape(dict(item.dist.args).get("mu", 0.0)):  # where scales vanish there are ties
            return np.sort(x, axis=1), 0.0
        return x, np.where(np.all(np.diff(x, axis=1) > 0, axis=1), -log_p, -np.inf)
    if item.transform == "zero_sum":
        return x - x.mean(axis=1, keepdims=True), 0.0
    if item.dist.family == "Truncated":
        inside = single_density(item.dist, x, env) - single_density(item.dist.parts[0], x, env)
        return x, inside.reshape(n, -1).sum(axis=1)
    return x, 0.0


def _completed(item: Observed, n: int, env: Values, rng: Rng) -> tuple[Array, Array]:
    """Data whose missing ones are draws, and the log likelihood of the others given these."""
    data, missing = np.asarray(item.data, float), missing_of(item)
    full = np.tile(data, (n, *(1,) * data.ndim))
    if item.dist.family not in VECTORS:
        full[:, missing] = draw(item.dist, full.shape, env, rng)[:, missing]
        return full, single_density(item.dist, full, env)[:, ~missing].sum(axis=1)
    mu = value_of(dict(item.dist.args).get("mu", 0.0), env)
    mu = mu.reshape(len(mu), *(1,) * (full.ndim - mu.ndim), *mu.shape[1:])
    z = rng.standard_t(3, size=(n, int(missing.sum())))
    full[:, missing] = np.broadcast_to(mu, full.shape)[:, missing] + 2 * z
    log_q = (stats.t.logpdf(z, 3) - np.log(2)).sum(axis=1)
    return full, log_density(item.dist, full, env) - log_q


def _log_weights(program: Program, n: int, rng: Rng) -> Array:
    env: Values = {}
    total = np.zeros(n)
    for item in program.items:
        if isinstance(item, Unknown):
            env[item.name], log_w = _unknown(item, n, env, rng)
        elif isinstance(item, Observed) and missing_of(item).any():
            env[item.name], log_w = _completed(item, n, env, rng)
        else:
            log_w = term_of(item, env)
        total = total + log_w
    return np.where(np.isnan(total), -np.inf, total)


def opinion_of(program: Program) -> Integral:
    """Log evidence by draws of the prior, and its standard error."""
    rng, logs, error = np.random.default_rng([45, program.seed]), np.zeros(0), np.inf
    with np.errstate(all="ignore"):
        while error > ENOUGH and len(logs) < MOST_DRAWS:
            logs = np.r_[logs, _log_weights(program, DRAWS, rng)]
            p = np.exp(logs - logs.max())
            error = float(np.std(p) / np.mean(p) / np.sqrt(len(p)))
    return Integral(float(logsumexp(logs) - np.log(len(logs))), error, len(logs))


def checked(program: Program, truth: Integral) -> Integral:
    """Truth whose error is the distance of the second opinion, where this is too far off."""
    second = opinion_of(program)
    distance = abs(second.log_value - truth.log_value)
    if distance < BEYOND * np.hypot(second.error, truth.error):
        return truth
    return replace(truth, error=float(max(distance, truth.error)))
