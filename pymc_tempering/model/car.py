"""Proper conditional autoregressions, whose density and draws in PyMC are not those of one law.

The density of `pm.CAR` lacks a constant, and its draws have the square of the covariance. Where the
neighbors are known, both are written anew here, the density as a sum over neighbors.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
from pymc.distributions.multivariate import CARRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.sparse.variable import SparseVariable


class Car(NamedTuple):
    """A vector of precision tau (D - alpha W), where D has the sums of the rows of W.

    Attributes
    ----------
    mean, alpha, tau : Variable
    neighbors : array, shape (n, n)
        W.
    """

    mean: Variable
    alpha: Variable
    tau: Variable
    neighbors: np.ndarray


def is_car(rv: Variable) -> bool:
    """Whether a variable is a conditional autoregression."""
    return rv.owner is not None and isinstance(rv.owner.op, CARRV)


def known_car(rv: Variable) -> Car | None:
    """Return the law of a conditional autoregression; None where its neighbors may change.

    Several of them in one variable are none either.
    """
    _, _, mean, weights, alpha, tau, _ = rv.owner.inputs
    if rv.ndim != 1 or not all(isinstance(each, Constant) for each in graph_inputs([weights])):
        return None
    dense = ps.dense_from_sparse(weights) if isinstance(weights, SparseVariable) else weights
    neighbors = np.asarray(dense.eval(), dtype="float64").reshape(rv.owner.inputs[3].shape.eval())
    neighbors = neighbors.reshape(neighbors.shape[-2:])
    if not np.array_equal(neighbors, neighbors.T):
        return None  # which PyMC refuses
    return Car(mean, alpha.squeeze(), tau.squeeze(), neighbors)


def car_draw(rv: Variable) -> Variable:
    """Graph of a draw: a mean, and white noise in the coordinates in which D^-1/2 W D^-1/2 is flat.

    All alpha and tau have the same ones.
    """
    law = known_car(rv)
    assert law is not None
    root = np.sqrt(law.neighbors.sum(axis=0))
    values, vectors = np.linalg.eigh(law.neighbors / np.outer(root, root))
    noise = pm.Normal.dist(shape=root.size) / pt.sqrt(law.tau * (1.0 - law.alpha * values))
    return law.mean + pt.dot(pt.constant(vectors / root[:, None]), noise)


def car_log_density(rv: Variable, value: Variable) -> Variable:
    """Graph of the log density (nats) at a value, with its constant."""
    law = known_car(rv)
    assert law is not None
    sums = law.neighbors.sum(axis=0)
    root = np.sqrt(sums)
    values = np.linalg.eigvalsh(law.neighbors / np.outer(root, root))
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
    own = [rv for rv in rvs if is_car(rv) and known_car(rv) is not None]
    others = [rv for rv in rvs if rv not in own]
    total = model.logp(vars=others) if others else pt.constant(0.0)
    for rv in own:
        [density] = model.replace_rvs_by_values([car_log_density(rv, model.rvs_to_values[rv])])
        total = total + density
    return total
