"""Proper conditional autoregressions, whose density and draws in PyMC are not those of one law.

The density of `pm.CAR` lacks a constant, and its draws have the square of the covariance. Where the
neighbors are known, both are mended here: the constant is added, and draws are made anew.
"""

from collections.abc import Iterable
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
    """Whether a random variable is a conditional autoregression."""
    return isinstance(rv.owner.op, CARRV)


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


def car_constants(rvs: Iterable[Variable]) -> float:
    """Return what the densities of all such autoregressions among variables lack (nats)."""
    total = 0.0
    for rv in rvs:
        law = known_car(rv) if is_car(rv) else None
        if law is not None:
            sums = law.neighbors.sum(axis=0)
            total += 0.5 * float(np.log(sums).sum() - sums.size * np.log(2.0 * np.pi))
    return total
