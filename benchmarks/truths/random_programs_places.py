"""Coordinates of the continuous unknowns of a program: which values they are, and densities.

The coordinates are logs far out, and those of a standard law where a family has locations and
scales: a density that is narrow about a parent in a heavy tail would else be a ridge that no box
sees, and where a scale vanishes all values would be rounded to one.
"""

from math import factorial

import numpy as np
from scipy import special, stats

from benchmarks.models.random_programs_families import FAMILIES, Family, Values
from benchmarks.models.random_programs_language import Dist, Unknown
from benchmarks.models.random_programs_vectors import SPACES, VECTORS, mv_student_t
from benchmarks.truths.random_programs_densities import (
    args_of,
    density_of,
    log_density,
    support_of,
    value_of,
)
from benchmarks.truths.random_programs_images import image_of, is_image, is_student, noise_of

type Array = np.ndarray


def place(w: Array, low: Array | float, high: Array | float) -> tuple[Array, Array]:
    """Values of coordinates between two limits, and the log of the derivative."""
    low, high, w = np.broadcast_arrays(low, high, w)
    up, down, both = np.isfinite(low), np.isfinite(high), np.isfinite(low) & np.isfinite(high)
    with np.errstate(all="ignore"):
        half = np.where(up, low + np.exp(w), high - np.exp(w))
        inside = low + (high - low) * special.expit(w)
        x = np.where(both, inside, np.where(up | down, half, np.sinh(w)))
        log_jac = np.where(
            both,
            np.log(high - low) + special.log_expit(w) + special.log_expit(-w),
            np.where(up | down, w, np.log(np.cosh(w))),
        )
    least, most = np.nextafter(low, np.inf), np.nextafter(high, -np.inf)
    return np.clip(x, np.where(up, least, -np.inf), np.where(down, most, np.inf)), log_jac


def placed(family: Family, w: Array, args: Values) -> tuple[Array, Array]:
    """Values of a family at coordinates, and logs of their densities there."""
    standard, move = family.chart(args) if family.chart else (args, lambda z: z)
    z, log_jac = place(w, *family.support(standard))
    with np.errstate(all="ignore"):
        return move(z), log_jac + density_of(family, z, standard)


def _placed_vectors(dist: Dist, w: Array, env: Values) -> tuple[Array, Array]:
    """Images of noise at coordinates, and logs of the densities of the noise."""
    parts, at = [], 0
    for law, k in noise_of(dist):
        parts.append(placed(FAMILIES[law.family], w[:, at : at + k], args_of(law, env, 2)))
        at += k
    e, logs = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    total = logs.sum(axis=1)
    if is_student(dist):
        last, nu = e[:, -2:], value_of(dict(dist.args)["nu"], env)
        total += mv_student_t(last, nu, 0.0, np.eye(2)[None])
        total -= stats.norm.logpdf(last).sum(axis=1)
    with np.errstate(all="ignore"):
        return image_of(dist, e, env), total


def log_ordered(item: Unknown, env: Values) -> Array:
    """Log of the probability that independent draws are in order."""
    args = dict(item.dist.args)
    k = item.shape[0]
    mu = value_of(args["mu"], env) if "mu" in args else np.zeros((1, 1))
    if mu.ndim < 2 or mu.shape[1] == 1:
        return np.full(1, -np.log(factorial(k)))
    sigma = value_of(args["sigma"], env).reshape(-1, 1)
    return stats.norm.logcdf((mu[:, 1] - mu[:, 0]) / (np.sqrt(2) * sigma[:, 0]))


def draw_at(item: Unknown, w: Array, env: Values) -> tuple[Array, Array]:
    """Value of a continuous unknown at coordinates, and the log of its density there."""
    if item.dist.family in FAMILIES and item.transform != "zero_sum":
        args = args_of(item.dist, env, 1 + len(item.shape))
        if item.transform == "ordered":
            return _ordered(item, w, args, env)
        value, logs = placed(FAMILIES[item.dist.family], w.reshape(len(w), *item.shape), args)
        return value, logs.reshape(len(w), -1).sum(axis=1)
    if is_image(item.dist):
        return _placed_vectors(item.dist, w, env)
    value, log_jac = _value_at(item, w, env)
    return value, log_jac + log_density(item.dist, value, env)


def _ordered(item: Unknown, w: Array, args: Values, env: Values) -> tuple[Array, Array]:
    family = FAMILIES[item.dist.family]
    alike = family.chart is not None and args.get("mu", np.zeros((1, 1))).shape[1] == 1
    standard, move = family.chart(args) if alike else (args, lambda z: z)
    first, log_jac = place(w[:, :1], *family.support(standard))
    z = np.cumsum(np.column_stack([first, np.exp(w[:, 1:])]), axis=1)
    logs = density_of(family, z, standard).sum(axis=1) + log_jac[:, 0] + w[:, 1:].sum(axis=1)
    with np.errstate(all="ignore"):
        return move(z), logs - log_ordered(item, env)


def _value_at(item: Unknown, w: Array, env: Values) -> tuple[Array, Array]:
    """Value of another one, and the log of its volume element."""
    if item.dist.family in VECTORS:
        return SPACES[VECTORS[item.dist.family].space](w, item.dist.core)
    if item.transform == "zero_sum":
        # A normal law on the plane, normalized there, has one axis less than its product form.
        value, log_jac = SPACES["zero_sum"](w, item.shape)
        sigma = value_of(dict(item.dist.args)["sigma"], env)
        mu = value_of(dict(item.dist.args)["mu"], env)
        k = item.shape[0]
        one = stats.norm.logpdf(0.0, np.sqrt(k) * mu, sigma)
        return value, log_jac - one.reshape(-1)
    shaped = w.reshape(len(w), *item.shape)
    value, log_jac = place(shaped, *support_of(item.dist, env, shaped.ndim))
    return value, log_jac.reshape(len(w), -1).sum(axis=1)
