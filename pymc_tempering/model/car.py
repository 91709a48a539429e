"""Conditional autoregressions, whose density and draws in PyMC are not those of one distribution.

The density of `pm.CAR` lacks a constant, and its draws have the square of the covariance. That of
`pm.ICAR` lacks a constant that depends on its scale, and it has no draws. Where the neighbors are
known, both are written anew here, the density as a sum over neighbors.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import CARRV, ICARRV
from pytensor.graph.basic import Constant, Variable
from scipy.sparse import issparse
from scipy.sparse.csgraph import connected_components


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

    def draw(self) -> Variable:
        """Graph of a draw: a mean, and white noise in the coordinates in which `scaled` is flat.

        All alpha and tau have the same ones.
        """
        values, vectors = np.linalg.eigh(self.scaled)
        noise = pm.Normal.dist(shape=values.size) / pt.sqrt(self.tau * (1.0 - self.alpha * values))
        return self.mean + pt.dot(pt.constant(vectors / np.sqrt(self.sums)[:, None]), noise)

    def log_density(self, value: Variable) -> Variable:
        """Graph of the log density (nats) at a value, with its constant."""
        sums, values = self.sums, np.linalg.eigvalsh(self.scaled)
        i, j = self.neighbors.nonzero()
        off = value - self.mean
        beside = pt.sum(self.neighbors[i, j] * off[i] * off[j])
        square = self.tau * (pt.sum(sums * off**2) - self.alpha * beside)
        log_det = sums.size * pt.log(self.tau) + pt.sum(pt.log1p(-self.alpha * values))
        constant = float(np.log(sums).sum() - sums.size * np.log(2.0 * np.pi))
        proper = (pt.abs(self.alpha) < 1.0) & (self.tau > 0.0)
        return pt.switch(proper, 0.5 * (log_det + constant - square), -np.inf)


class Icar(NamedTuple):
    """A vector of precision (D - W) / sigma^2 + 1 1' / (n zero_sum_stdev)^2.

    Its mean is normal with standard deviation zero_sum_stdev, whatever sigma is, and all that is
    left is normal on n - 1 dimensions, so that its constant has sigma^-(n - 1).

    Attributes
    ----------
    sigma, zero_sum_stdev : Variable
    neighbors : array, shape (n, n)
        W, symmetric, of zeros and ones; all places are joined by neighbors.
    """

    sigma: Variable
    zero_sum_stdev: Variable
    neighbors: np.ndarray

    @property
    def modes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of D - W but the first, which is zero, shape (n - 1,), and eigenvectors."""
        values, vectors = np.linalg.eigh(np.diag(self.neighbors.sum(axis=0)) - self.neighbors)
        return values[1:], vectors[:, 1:]

    def draw(self) -> Variable:
        """Graph of a draw."""
        values, vectors = self.modes
        mean, noise = pm.Normal.dist(), pm.Normal.dist(shape=values.size)
        apart = pt.dot(pt.constant(vectors / np.sqrt(values)), noise)
        return self.sigma * apart + self.zero_sum_stdev * mean

    def log_density(self, value: Variable) -> Variable:
        """Graph of the log density (nats) at a value, with its constant."""
        n, values = len(self.neighbors), self.modes[0]
        i, j = np.tril(self.neighbors).nonzero()
        z = pt.concatenate(
            [(value[i] - value[j]) / self.sigma, [value.mean() / self.zero_sum_stdev]]
        )
        log_scales = (n - 1) * pt.log(self.sigma) + pt.log(self.zero_sum_stdev)
        constant = float(0.5 * (np.log(values).sum() - n * np.log(2.0 * np.pi) - np.log(n)))
        proper = (self.sigma > 0.0) & (self.zero_sum_stdev > 0.0)
        return pt.switch(proper, constant - log_scales - 0.5 * pt.sum(z**2), -np.inf)


def is_car(rv: Variable) -> bool:
    """Whether a variable is a conditional autoregression."""
    return rv.owner is not None and isinstance(rv.owner.op, CARRV | ICARRV)


def is_icar(rv: Variable) -> bool:
    """Whether a variable is an intrinsic one."""
    return is_car(rv) and isinstance(rv.owner.op, ICARRV)


def known_car(rv: Variable) -> Car | Icar | None:
    """Return the distribution of a conditional autoregression; None for all else.

    None too where its neighbors may change, where one variable holds several, and where PyMC's own
    checks have to speak: neighbors that are not symmetric, or places without any.
    """
    if not is_car(rv) or rv.ndim != 1:
        return None
    _, _, *parameters = rv.owner.inputs
    weights = parameters[0 if is_icar(rv) else 1]
    if not isinstance(weights, Constant):
        return None
    found = weights.data.toarray() if issparse(weights.data) else weights.data
    neighbors = np.asarray(found, dtype="float64")
    if not np.array_equal(neighbors, neighbors.T) or not np.all(neighbors.sum(axis=0) > 0.0):
        return None
    if not is_icar(rv):
        mean, _, alpha, tau, _ = parameters
        return Car(mean, alpha.squeeze(), tau.squeeze(), neighbors)
    _, sigma, zero_sum_stdev = parameters
    joined = connected_components(neighbors, directed=False)[0] == 1
    return Icar(sigma.squeeze(), zero_sum_stdev.squeeze(), neighbors) if joined else None


def log_density_of(model: pm.Model, rvs: Sequence[Variable]) -> Variable:
    """Graph of the log density of variables or potentials, in terms of the value variables."""
    laws = {rv: law for rv in rvs if (law := known_car(rv)) is not None}
    others = [rv for rv in rvs if rv not in laws]
    total = model.logp(vars=others) if others else pt.constant(0.0)
    for rv, law in laws.items():
        density = law.log_density(model.rvs_to_values[rv])
        total = total + model.replace_rvs_by_values([density])[0]
    return total
