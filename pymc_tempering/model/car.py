"""Proper conditional autoregressions, whose density and draws in PyMC are not those of one law.

The density of `pm.CAR` lacks a constant, and its draws have the square of the covariance. Where the
neighbors are known, both are written anew here, the density as a sum over neighbors.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import CARRV
from pytensor.graph.basic import Constant, Variable
from scipy.sparse import issparse


class Car(NamedTuple):
    """A vector of precision tau (D - alpha W), where D has the sums of the rows of W.

    Attributes
    ----------
    mean, alpha, tau : Variable
    neighbors : array, shape (n, n)
        W, symmetric, with positive sums.
    """

    mean: Variable
    alpha: Variable
    tau: Variable
    neighbors: np.ndarray

    @property
    def sums(self) -> np.ndarray:
        """The diagonal of D, shape (n,)."""
        return np.asarray(self.neighbors.sum(axis=0))

    @property
    def scaled(self) -> np.ndarray:
        """D^-1/2 W D^-1/2, shape (n, n)."""
        root = np.sqrt(self.sums)
        return self.neighbors / np.outer(root, root)


def is_car(rv: Variable) -> bool:
    """Whether a variable is a conditional autoregression."""
    return rv.owner is not None and isinstance(rv.owner.op, CARRV)


def known_car(rv: Variable) -> Car | None:
    """Return the law of a conditional autoregression; None for all else.

    None too where its neighbors may change, where one variable holds several, and where PyMC's own
    checks have to speak: neighbors that are not symmetric, or places without any.
    """
    if not is_car(rv) or rv.ndim != 1:
        return None
    _, _, mean, weights, alpha, tau, _ = rv.owner.inputs
    if not isinstance(weights, Constant):
        return None
    neighbors = weights.data.toarray() if issparse(weights.data) else weights.data
    law = Car(mean, alpha.squeeze(), tau.squeeze(), np.asarray(neighbors, dtype="float64"))
    sound = np.array_equal(law.neighbors, law.neighbors.T) and np.all(law.sums > 0.0)
    return law if sound else None


def car_draw(law: Car) -> Variable:
    """Graph of a draw: a mean, and white noise in the coordinates in which D^-1/2 W D^-1/2 is flat.

    All alpha and tau have the same ones.
    """
    values, vectors = np.linalg.eigh(law.scaled)
    noise = pm.Normal.dist(shape=values.size) / pt.sqrt(law.tau * (1.0 - law.alpha * values))
    return law.mean + pt.dot(pt.constant(vectors / np.sqrt(law.sums)[:, None]), noise)


def car_log_density(law: Car, value: Variable) -> Variable:
    """Graph of the log density (nats) at a value, with its constant."""
    sums, values = law.sums, np.linalg.eigvalsh(law.scaled)
    i, j = law.neighbors.nonzero()
    off = value - law.mean
    beside = pt.sum(law.neighbors[i, j] * off[i] * off[j])
    square = law.tau * (pt.sum(sums * off**2) - law.alpha * beside)
    log_det = sums.size * pt.log(law.tau) + pt.sum(pt.log1p(-law.alpha * values))
    constant = float(np.log(sums).sum() - sums.size * np.log(2.0 * np.pi))
    proper = (pt.abs(law.alpha) < 1.0) & (law.tau > 0.0)
    return pt.switch(proper, 0.5 * (log_det + constant - square), -np.inf)


def log_density_of(model: pm.Model, rvs: Sequence[Variable]) -> Variable:
    """Graph of the log density of variables or potentials, in terms of the value variables."""
    laws = {rv: law for rv in rvs if (law := known_car(rv)) is not None}
    others = [rv for rv in rvs if rv not in laws]
    total = model.logp(vars=others) if others else pt.constant(0.0)
    for rv, law in laws.items():
        density = car_log_density(law, model.rvs_to_values[rv])
        total = total + model.replace_rvs_by_values([density])[0]
    return total
