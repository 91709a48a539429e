"""Coordinates of the continuous unknowns of a program: which values they are, and volumes.

The coordinates are logs far out, and go with the parents of a variable: a density that is narrow
about a parent in a heavy tail would else be a ridge that no box sees.
"""

from collections.abc import Sequence
from math import factorial

import numpy as np
from random_programs_densities import args_of, support_of, value_of
from random_programs_families import FAMILIES, Values
from random_programs_language import Dist, Unknown
from random_programs_vectors import SPACES, VECTORS
from scipy import special, stats

type Array = np.ndarray


def place(
    w: Array,
    low: Array | float,
    high: Array | float,
    chart: Sequence[Array | float] = (0.0, 1.0, 1.0),
) -> tuple[Array, Array]:
    """Values of coordinates between two limits, and the log of the derivative.

    The chart is a location, a scale, and the width of a log or a logit.
    """
    at, scale, width = chart
    low, high, at, scale, width, w = np.broadcast_arrays(low, high, at, scale, width, w)
    up, down, both = np.isfinite(low), np.isfinite(high), np.isfinite(low) & np.isfinite(high)
    log_width, log_scale = np.log(width), np.log(scale)
    with np.errstate(all="ignore"):
        logs = np.clip(width * w + log_scale, -700, 700)
        logit = at + width * w
        inside = low + (high - low) * special.expit(logit)
        half = np.where(up, low + np.exp(logs), high - np.exp(logs))
        x = np.where(both, inside, np.where(up | down, half, at + scale * np.sinh(w)))
        log_jac = np.where(
            both,
            np.log(high - low) + log_width + special.log_expit(logit) + special.log_expit(-logit),
            np.where(up | down, logs + log_width, log_scale + np.log(np.cosh(w))),
        )
    least, most = np.nextafter(low, np.inf), np.nextafter(high, -np.inf)
    return np.clip(x, np.where(up, least, -np.inf), np.where(down, most, np.inf)), log_jac


def chart_of(dist: Dist, env: Values, ndim: int) -> Sequence[Array | float]:
    """Where a distribution is and how wide, so that its parents do not move it in coordinates."""
    base = dist.parts[0] if dist.family == "Truncated" else dist
    if base.family not in FAMILIES or (chart := FAMILIES[base.family].chart) is None:
        return 0.0, 1.0, 1.0
    low, high = support_of(dist, env, ndim)
    if np.all(np.isfinite(low)) != np.all(
        np.isfinite(FAMILIES[base.family].support(args_of(base, env, ndim))[0])
    ):
        return 0.0, 1.0, 1.0  # a limit has made a half line of the line
    if np.all(np.isfinite(high)) and base.family != "LogitNormal":
        return 0.0, 1.0, 1.0
    at, scale, width = chart(args_of(base, env, ndim))
    return at, np.clip(scale, 1e-30, 1e30), np.clip(width, 1e-3, 10.0)


def vector_chart(dist: Dist, w: Array, env: Values) -> tuple[Array, Array]:
    """Real vectors about their mean, and walks from row to row, in units of their scales."""
    z, log_jac = SPACES["real"](w, dist.core)
    args = {name: value_of(value, env) for name, value in dist.args}
    cov = next((args[k] for k in ("cov", "scale") if k in args), None)
    if cov is not None:
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    elif "tau" in args:
        sd = args["tau"].reshape(-1, 1) ** -0.5
    elif dist.family == "KroneckerNormal" or "sigma" not in args:
        sd = np.ones((1, 1))
    else:
        sd = args["sigma"].reshape(-1, 1)
    sd = np.clip(sd, 1e-30, 1e30)
    walk = dist.family.endswith("RandomWalk")
    if len(dist.core) == 2:
        sd = sd[:, None] if cov is not None else sd[:, :, None]
    first = np.ones_like(z)
    if walk:  # the first row has a scale of its own
        first[:, 0] = 0.0
        sd = sd * first + (1.0 - first)
    x = sd * z
    log_jac = log_jac + np.log(np.broadcast_to(sd, z.shape)).reshape(len(z), -1).sum(axis=1)
    mu = args.get("mu", np.zeros(1))
    mu = mu.reshape(len(mu), *(1,) * (z.ndim - mu.ndim), *mu.shape[1:])
    return (np.cumsum(x + mu * first, axis=1), log_jac) if walk else (x + mu, log_jac)


def _log_ordered(item: Unknown, env: Values) -> Array:
    """Log of the probability that independent draws are in order."""
    args = dict(item.dist.args)
    k = item.shape[0]
    mu = value_of(args["mu"], env) if "mu" in args else np.zeros((1, 1))
    if mu.ndim < 2 or mu.shape[1] == 1:
        return np.full(1, -np.log(factorial(k)))
    sigma = value_of(args["sigma"], env).reshape(-1, 1)
    return stats.norm.logcdf((mu[:, 1] - mu[:, 0]) / (np.sqrt(2) * sigma[:, 0]))


def draw_at(item: Unknown, w: Array, env: Values) -> tuple[Array, Array]:
    """Value of a continuous unknown at coordinates, and the log of its volume element."""
    if item.dist.family in VECTORS:
        if VECTORS[item.dist.family].space == "real" and not item.shape:
            return vector_chart(item.dist, w, env)
        space, size = SPACES[VECTORS[item.dist.family].space], w.shape[1]
        rows = max(1, int(np.prod(item.shape)))
        each = size // rows
        pieces = [space(w[:, i * each : (i + 1) * each], item.dist.core) for i in range(rows)]
        value = np.stack([p[0] for p in pieces], axis=1)
        return value.reshape(len(w), *item.shape, *item.dist.core), sum(p[1] for p in pieces)
    if item.transform == "ordered":
        first, log_jac = place(w[:, 0], *support_of(item.dist, env, 2))
        steps = np.column_stack([first, np.exp(w[:, 1:])])
        log_jac = log_jac + w[:, 1:].sum(axis=1)
        return np.cumsum(steps, axis=1), log_jac - _log_ordered(item, env)
    if item.transform == "zero_sum":
        # A normal law on the plane, normalized there, has one axis less than its product form.
        value, log_jac = SPACES["zero_sum"](w, item.shape)
        sigma = value_of(dict(item.dist.args)["sigma"], env)
        mu = value_of(dict(item.dist.args)["mu"], env)
        k = item.shape[0]
        one = stats.norm.logpdf(0.0, np.sqrt(k) * mu, sigma)
        return value, log_jac - one.reshape(-1)
    shaped = w.reshape(len(w), *item.shape)
    low, high = support_of(item.dist, env, shaped.ndim)
    value, log_jac = place(shaped, low, high, chart_of(item.dist, env, shaped.ndim))
    return value, log_jac.reshape(len(w), -1).sum(axis=1)
