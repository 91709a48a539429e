"""Products of experts: energy, learning of complete ones, exact normalizer, and the same in PyMC.

Sohl-Dickstein & Culpepper (2011), equations (36) to (38): the energy of x is the sum over filters
phi_l of |phi_l x| (Laplace) or shape_l log(1 + (phi_l x)^2) (Student-t). With as many filters as
dimensions log Z is known, and so they are learned by their likelihood, the paper's "oracle".
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from image_patches import patches
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

type Kind = Literal["laplace", "student_t"]

STEPS = 500
"""Most steps of L-BFGS."""
LEAST_SHAPE = 0.51
"""Least shape of the first M experts: at 1/2 there is no integral."""
LEAST_MORE = 1e-3
"""Least shape of those beyond: their factors are at most 1, and the integral is there without."""


@dataclass(frozen=True)
class Experts:
    """A product of at least as many experts as x has dimensions; complete if as many.

    Attributes
    ----------
    kind : {"laplace", "student_t"}
    filters : array, shape (L, M)
    shape : array, shape (L,)
        Shapes lambda of the Student-t experts; ones for Laplace experts, where they stand for the
        filters' lengths.
    """

    kind: Kind
    filters: np.ndarray
    shape: np.ndarray

    def energy(self, x: np.ndarray) -> np.ndarray:
        """Energies of states (n, M), in nats."""
        u = x @ self.filters.T
        return np.abs(u).sum(axis=1) if self.kind == "laplace" else np.log1p(u**2) @ self.shape

    def slope(self, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slopes of the weighted sum of energies: by filters, and by the logarithms of shapes."""
        u = x @ self.filters.T
        if self.kind == "laplace":
            return (np.sign(u) * weight[:, None]).T @ x, np.zeros(len(u.T))
        inner = 2.0 * self.shape * u / (1.0 + u**2)
        return (inner * weight[:, None]).T @ x, self.shape * (weight @ np.log1p(u**2))

    def slope_by_states(self, x: np.ndarray) -> np.ndarray:
        """Slope of each energy by its state, (n, M)."""
        u = x @ self.filters.T
        if self.kind == "laplace":
            return np.sign(u) @ self.filters
        return (2.0 * self.shape * u / (1.0 + u**2)) @ self.filters

    def mean_slope(self, x: np.ndarray) -> np.ndarray:
        """Slope of the mean energy by the parameters, in the order of `packed`."""
        filters, shape = self.slope(x, np.full(len(x), 1.0 / len(x)))
        return np.r_[filters.ravel(), shape]

    def packed(self) -> np.ndarray:
        """Filters and the logarithms of shapes in one vector."""
        return np.r_[self.filters.ravel(), np.log(self.shape)]

    def unpacked(self, packed: np.ndarray) -> "Experts":
        """Other parameters, with shapes raised to the least for which there is an integral."""
        n, dim = self.filters.shape
        if self.kind == "laplace":
            return Experts(self.kind, packed[: n * dim].reshape(n, dim), self.shape)
        least = np.where(np.arange(n) < dim, LEAST_SHAPE, LEAST_MORE)
        shape = np.maximum(np.exp(packed[n * dim :]), least)
        return Experts(self.kind, packed[: n * dim].reshape(n, dim), shape)

    def log_z(self) -> float:
        """Exact log Z (nats): a product of integrals over the determinant of the filters."""
        if len(self.filters) != self.filters.shape[1]:
            raise ValueError("log Z is known for complete products alone")
        log_det = float(np.linalg.slogdet(self.filters)[1])
        if self.kind == "laplace":
            return len(self.shape) * np.log(2.0) - log_det
        parts = 0.5 * np.log(np.pi) + gammaln(self.shape - 0.5) - gammaln(self.shape)
        return float(parts.sum()) - log_det

    def model(self, sd: float = 1.0) -> pm.Model:
        """Return a PyMC model over a normal reference; its evidence is Z."""
        dim = self.filters.shape[1]
        with pm.Model() as model:
            x = pm.Normal("x", 0.0, sd, shape=dim)
            u = pt.dot(self.filters, x)
            energy = pt.abs(u) if self.kind == "laplace" else self.shape * pt.log1p(u**2)
            log_normal = -0.5 * pt.sum(x**2) / sd**2 - 0.5 * dim * np.log(2.0 * np.pi * sd**2)
            pm.Potential("experts", -pt.sum(energy) - log_normal)
        return model

    def matched(self) -> pm.Model:
        """Return a PyMC model of Student-t experts over a reference with their tails.

        Its evidence is Z. Along the filters, which are as many as dimensions, the reference is u =
        sinh(w) with a logistic w. Its tail is that of the widest expert, so that the log ratio is
        bounded above, as it is not from a normal.
        """
        if self.kind != "student_t" or len(self.filters) != self.filters.shape[1]:
            raise ValueError("the reference is that of complete products of Student-t experts")
        powers, width = 2.0 * self.shape - 1.0, float(1.0 / (2.0 * self.shape.min() - 1.0))
        constant = len(powers) * np.log(width) - float(np.linalg.slogdet(self.filters)[1])
        with pm.Model() as model:
            w = pm.Logistic("w", 0.0, width, shape=len(powers))
            log_cosh = pt.abs(w) + pt.log1p(pt.exp(-2.0 * pt.abs(w))) - np.log(2.0)
            logistic = pt.abs(w) / width + 2.0 * pt.log1p(pt.exp(-pt.abs(w) / width))
            pm.Potential("experts", constant - pt.sum(powers * log_cosh) + pt.sum(logistic))
        return model


def start(kind: Kind, dim: int, rng: np.random.Generator) -> Experts:
    """Return random filters before learning."""
    shape = np.full(dim, 1.0 if kind == "laplace" else 1.5)
    return Experts(kind, rng.normal(size=(dim, dim)) / np.sqrt(dim), shape)


def cost(experts: Experts, x: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the mean log likelihood of data (nats), and its slope."""
    even = np.full(len(x), 1.0 / len(x))
    filters, shape = experts.slope(x, even)
    filters = filters - np.linalg.inv(experts.filters).T
    if experts.kind == "student_t":
        own = experts.shape
        shape = shape + own * (digamma(own - 0.5) - digamma(own))
    return float(even @ experts.energy(x)) + experts.log_z(), np.r_[filters.ravel(), shape]


def fit(begin: Experts, x: np.ndarray) -> Experts:
    """Learn filters and shapes by their likelihood."""
    dim = len(begin.shape)
    bounds = [(None, None)] * dim**2 + [(np.log(LEAST_SHAPE), None)] * dim
    found = minimize(
        lambda packed: cost(begin.unpacked(packed), x), begin.packed(), jac=True,
        method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS},
    )  # fmt: skip
    return begin.unpacked(found.x)


@cache
def learned(kind: Kind, dim: int = 36, seed: int = 0) -> Experts:
    """Learn experts from image patches."""
    rng = np.random.default_rng(seed)
    return fit(start(kind, dim, rng), patches(dim).train)
