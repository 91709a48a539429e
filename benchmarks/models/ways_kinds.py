"""Kinds of models, each with an exact value: continuous, labels, counts, chains, switches, groups.

Data are whole numbers, so that each type of array holds the same ones.
"""

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import gamma, halfnorm, multivariate_normal, norm, poisson

from benchmarks.models.ways_writer import Pen, Way

Y = np.array([-1.0, 2.0, 1.0, 3.0, 0.0, -2.0])
COUNTS = np.array([1.0, 4.0, 2.0, 0.0, 3.0, 1.0])


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of model.

    Attributes
    ----------
    name : str
    y : array
        Its data, in one dimension.
    write : callable
        Writes the model with a pen.
    truth : callable
        Its log evidence, of the data that are not missing, raveled.
    dims : dict of str to int
        Further dimensions.
    without : collection of str
        Names of the ways that make no sense for it.
    """

    name: str
    y: np.ndarray
    write: Callable[[Pen], None]
    truth: Callable[[np.ndarray], float]
    dims: dict[str, int]
    without: Collection[str] = ()

    def build(self, way: Way) -> pm.Model:
        """Write it in a way."""
        return way.model(way.values(self.y), self.write, **self.dims)


def log_integral(log_f: Callable[[float], float], low: float, high: float) -> float:
    """Log of an integral of a positive function of one variable, by quadrature."""
    grid = np.linspace(low, high, 2001)[1:-1]
    values = np.array([log_f(x) for x in grid])
    top, at = values.max(), grid[values.argmax()]
    found = quad(lambda x: np.exp(log_f(x) - top), low, high, points=[at], limit=500, epsabs=1e-12)
    return float(np.log(found[0]) + top)


def _normal(pen: Pen) -> None:
    mu = pen.free("mu", pm.Normal, 0, 2, real=True)
    pen.observe(pm.Normal, mu, 1)


def truth_normal(y: np.ndarray) -> float:
    """Normal data with a normal mean."""
    return float(multivariate_normal.logpdf(y, np.zeros(len(y)), np.eye(len(y)) + 4.0))


def _labels(pen: Pen) -> None:
    mu = pen.free("mu", pm.Normal, 0, 2, real=True, **pen.size("k"))
    z = pen.free("z", pm.Categorical, [0.4, 0.6], **pen.size())
    pen.observe(pm.Normal, mu[z], 1)


def truth_labels(y: np.ndarray) -> float:
    """Sum over all labelings."""
    terms = []
    for labels in itertools.product((0, 1), repeat=len(y)):
        z = np.array(labels)
        cov = np.eye(len(y)) + 4.0 * (z[:, None] == z[None, :])
        prior = np.log(np.where(z == 1, 0.6, 0.4)).sum()
        terms.append(prior + multivariate_normal.logpdf(y, np.zeros(len(y)), cov))
    return float(logsumexp(terms))


def _counts(pen: Pen) -> None:
    rate = pen.free("rate", pm.Gamma, 2, 1)
    n = pen.free("n", pm.Poisson, rate, **pen.size())
    pen.observe(pm.Normal, n, 1)


def truth_counts(y: np.ndarray) -> float:
    """Quadrature over the rate, and a sum over each count."""
    k = np.arange(60)[:, None]

    def at(rate: float) -> float:
        rows = logsumexp(poisson.logpmf(k, rate) + norm.logpdf(y, k, 1), axis=0)
        return float(gamma.logpdf(rate, 2) + rows.sum())

    return log_integral(at, 1e-9, 25.0)


STAY = np.array([[0.8, 0.2], [0.3, 0.7]])


def _chain(pen: Pen) -> None:
    gap = pen.free("gap", pm.Normal, 1, 1, real=True)
    states = [pen.free("z0", pm.Bernoulli, 0.4)]
    for t in range(1, pen.y.size):
        states.append(pen.free(f"z{t}", pm.Bernoulli, pt.as_tensor(STAY)[states[-1], 1]))
    z = pt.stack(states)
    pen.observe(pm.Normal, gap * (z if pen.rows else z[0]), 1)


def truth_chain(y: np.ndarray) -> float:
    """Sum over all ways of the chain."""
    terms = []
    for z in itertools.product((0, 1), repeat=len(y)):
        prior = np.log(0.4 if z[0] else 0.6) + np.log(STAY[list(z[:-1]), list(z[1:])]).sum()
        s = np.array(z, float)
        cov = np.eye(len(y)) + np.outer(s, s)
        terms.append(prior + multivariate_normal.logpdf(y, s, cov))
    return float(logsumexp(terms))


def _switch(pen: Pen) -> None:
    n = pen.y.size
    level = pen.free("level", pm.Normal, 0, 2, real=True, **pen.size("k"))
    tau = pen.free("tau", pm.DiscreteUniform, 0, n)
    row = np.arange(n).reshape(pen.y.shape)
    pen.observe(pm.Normal, pt.switch(tau > row, level[0], level[1]), 1)


def truth_switch(y: np.ndarray) -> float:
    """Sum over the switch point."""
    n = len(y)
    terms = []
    for tau in range(n + 1):
        early = np.arange(n) < tau
        cov = np.eye(n) + 4.0 * (early[:, None] == early[None, :])
        terms.append(multivariate_normal.logpdf(y, np.zeros(n), cov))
    return float(logsumexp(terms) - np.log(n + 1))


def _groups(pen: Pen) -> None:
    spread = pen.free("spread", pm.HalfNormal, 2)
    effect = pen.free("effect", pm.Normal, 0, spread, real=True, **pen.size())
    pen.observe(pm.Normal, effect, 1)


def truth_groups(y: np.ndarray) -> float:
    """Quadrature over the spread."""

    def at(spread: float) -> float:
        rows = norm.logpdf(y, 0, np.hypot(1, spread))
        return float(halfnorm.logpdf(spread, 0, 2) + rows.sum())

    return log_integral(at, 0.0, 24.0)


SHORT_OF_ROWS = ("masked",)
"""Ways in which data are missing, where a model counts its rows."""

FIRST: tuple[Kind, ...] = (
    Kind("continuous", Y, _normal, truth_normal, {}),
    Kind("labels", Y, _labels, truth_labels, {"k": 2}),
    Kind("counts", COUNTS, _counts, truth_counts, {}),
    Kind("chained states", Y[:5], _chain, truth_chain, {}, ("two dimensions",)),
    Kind("switch points", Y, _switch, truth_switch, {"k": 2}, SHORT_OF_ROWS),
    Kind("hierarchical", Y, _groups, truth_groups, {}),
)
