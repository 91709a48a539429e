"""Kinds of models, each with an exact value: imputed, mixtures, fields, angles, ordered, slabs."""

import itertools
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import quad
from scipy.special import betaln, logsumexp
from scipy.stats import beta, halfnorm, multivariate_normal, norm, vonmises

from benchmarks.models.ways_kinds import Kind, Y, log_integral
from benchmarks.models.ways_writer import Pen

HOLED = np.array([-1.0, 2.0, 1.0, 3.0, np.nan, -2.0])
WAVE = np.array([2.0, 2.0, -1.0, -2.0, -1.0, 1.0])
RISING = np.array([-1.0, 0.0, 2.0, 1.0, 2.0, 3.0])
SPARSE = np.array([0.0, 4.0, 1.0, -1.0, 0.0, -3.0])


def _normal(y: np.ndarray, mean: Any, cov: np.ndarray) -> float:
    """Log density of a multivariate normal."""
    return float(multivariate_normal.logpdf(y, mean * np.ones(len(y)), cov))


def _imputed(pen: Pen) -> None:
    mu = pen.free("mu", pm.Normal, 0, 2, real=True)
    sigma = pen.free("sigma", pm.HalfNormal, 2)
    pen.observe(pm.Normal, mu, sigma)


def truth_imputed(y: np.ndarray) -> float:
    """Quadrature over the scale, of the data that are there."""
    y = y[~np.isnan(y)]

    def at(sigma: float) -> float:
        return float(halfnorm.logpdf(sigma, 0, 2)) + _normal(y, 0, sigma**2 * np.eye(len(y)) + 4)

    return log_integral(at, 1e-4 if len(y) > 1 else 0.0, 24.0)  # SciPy wants no singular one


APART = 3.0


class TwoNormals:
    """A `pm.NormalMixture` of two, `APART` from each other, by the lower mean and its weight."""

    def __new__(cls, name: str, low: Any, w: Any, **more: Any) -> Any:
        """Write it into a model."""
        return pm.NormalMixture(name, **cls._own(low, w), **more)

    @classmethod
    def dist(cls, low: Any, w: Any, **more: Any) -> Any:
        """Write it without a name."""
        return pm.NormalMixture.dist(**cls._own(low, w), **more)

    @staticmethod
    def _own(low: Any, w: Any) -> dict[str, Any]:
        mu = pt.stack([low, low + APART], axis=-1)
        return {"w": pt.stack([w, 1 - w], axis=-1), "mu": mu, "sigma": 1}


def _mixture(pen: Pen) -> None:
    w = pen.free("w", pm.Beta, 2, 3)
    low = pen.free("low", pm.Normal, -1, 1, real=True)
    pen.observe(TwoNormals, low, w)


def truth_mixture(y: np.ndarray) -> float:
    """Sum over all labelings."""
    n = len(y)
    terms = []
    for labels in itertools.product((0, 1), repeat=n):
        high = sum(labels)
        prior = betaln(2 + n - high, 3 + high) - betaln(2, 3)
        terms.append(prior + _normal(y, -1 + APART * np.array(labels), np.eye(n) + 1))
    return float(logsumexp(terms))


def _field(pen: Pen) -> None:
    step = pen.free("step", pm.HalfNormal, 1)
    size = pen.size() if pen.rows else {"shape": (2,)}  # PyMC has no walk of one
    start = pm.Normal.dist(0, 2)
    walk = pen.free("walk", pm.GaussianRandomWalk, 0, step, init_dist=start, real=True, **size)
    pen.observe(pm.Normal, walk if pen.rows else walk[0], 1)


def truth_field(y: np.ndarray) -> float:
    """Quadrature over the size of a step."""
    t = np.arange(len(y))
    shared = np.minimum(t[:, None], t[None, :])

    def at(step: float) -> float:
        cov = 4 + step**2 * shared + np.eye(len(y))
        return float(halfnorm.logpdf(step)) + _normal(y, 0, cov)

    return log_integral(at, 0.0, 12.0)


def _angle(pen: Pen) -> None:
    phase = pen.free("phase", pm.VonMises, 1, 0.5)
    height = pen.free("height", pm.Normal, 1, 2, real=True)
    turn = np.pi / 3 * np.arange(pen.y.size).reshape(pen.y.shape)
    wave = np.cos(turn) * pt.cos(phase) + np.sin(turn) * pt.sin(phase)
    pen.observe(pm.Normal, height * wave, 1)


def truth_angle(y: np.ndarray) -> float:
    """Quadrature over the angle."""
    turn = np.pi / 3 * np.arange(len(y))

    def at(phase: float) -> float:
        wave = np.cos(turn - phase)
        rows = _normal(y, wave, np.eye(len(y)) + 4 * np.outer(wave, wave))
        return float(vonmises.logpdf(phase, 0.5, 1)) + rows

    return log_integral(at, -np.pi, np.pi)


ORDERED = pm.distributions.transforms.ordered
PLACES = 3


def _ordered(pen: Pen) -> None:
    group = np.arange(pen.y.size).reshape(pen.y.shape) % PLACES
    start = np.array([-1.0, 0.0, 1.0])
    mu = pen.free("mu", pm.Normal, 0, 3, transform=ORDERED, initval=start, **pen.size("k"))
    pen.observe(pm.Normal, mu[group], 1)


def truth_ordered(y: np.ndarray) -> float:
    """Without the order, times its probability given the data, by that of the prior."""
    group = np.arange(len(y)) % PLACES
    free = _normal(y, 0, np.eye(len(y)) + 9.0 * (group[:, None] == group[None, :]))
    var = np.array([1 / (1 / 9 + (group == g).sum()) for g in range(PLACES)])
    mean, sd = var * [y[group == g].sum() for g in range(PLACES)], np.sqrt(var)

    def at(middle: float) -> float:
        below, above = norm.cdf(middle, mean[0], sd[0]), norm.sf(middle, mean[2], sd[2])
        return float(norm.pdf(middle, mean[1], sd[1]) * below * above)

    low, high = mean[1] - 10 * sd[1], mean[1] + 10 * sd[1]
    return free + float(np.log(quad(at, low, high, points=[mean[1]])[0])) + float(np.log(6))


def _spikes(pen: Pen) -> None:
    share = pen.free("share", pm.Beta, 1, 2)
    there = pen.free("there", pm.Bernoulli, share, **pen.size())
    slope = pen.free("slope", pm.Normal, 0, 3, real=True, **pen.size())
    pen.observe(pm.Normal, there * slope, 1)


def truth_spikes(y: np.ndarray) -> float:
    """Quadrature over the share; a row is of one of two normals."""
    spike, slab = norm.logpdf(y), norm.logpdf(y, 0, np.sqrt(10))

    def at(share: float) -> float:
        rows = np.logaddexp(np.log1p(-share) + spike, np.log(share) + slab)
        return float(beta.logpdf(share, 1, 2) + rows.sum())

    return log_integral(at, 0.0, 1.0)


CONTAINED = ("pm.Data", "pm.Data set again", "frozen dims and data", "deep copy", "pickled")
"""Ways in which data are in a `pm.Data`."""
# PyMC refuses a NaN in a `pm.Data`; it leaves one in `pm.observe`, beside a mask and in a
# potential, so that the log density is NaN; and NaN is no int8.
NO_HOLES = (*CONTAINED, "sizes read off the data", "pm.observe", "masked", "potential", "int8")
# Two rows would be two walks; PyMC has no transform of numbers for a walk.
NO_WALK = ("two dimensions", "transform of the user's")
# These three of PyMC refuse a model that has an `initval`.
NO_START = ("pm.observe", "pm.do", "deep copy")

SECOND: tuple[Kind, ...] = (
    Kind("imputed", HOLED, _imputed, truth_imputed, {}, NO_HOLES),
    Kind("mixtures", Y, _mixture, truth_mixture, {}),
    Kind("fields", Y, _field, truth_field, {}, NO_WALK),
    Kind("angles", WAVE, _angle, truth_angle, {}),
    Kind("ordered", RISING, _ordered, truth_ordered, {"k": PLACES}, NO_START),
    Kind("spike and slab", SPARSE, _spikes, truth_spikes, {}),
)
