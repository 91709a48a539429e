"""Complete products of experts: energy, learning, exact normalizer, and the same in PyMC.

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
"""Least shape of an expert: at 1/2 there is no integral."""


@dataclass(frozen=True)
class Experts:
    """A product of as many experts as x has dimensions.

    Attributes
    ----------
    kind : {"laplace", "student_t"}
    filters : array, shape (M, M)
    shape : array, shape (M,)
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

    def log_z(self) -> float:
        """Exact log Z (nats): a product of integrals over the determinant of the filters."""
        log_det = float(np.linalg.slogdet(self.filters)[1])
        if self.kind == "laplace":
            return len(self.shape) * np.log(2.0) - log_det
        parts = 0.5 * np.log(np.pi) + gammaln(self.shape - 0.5) - gammaln(self.shape)
        return float(parts.sum()) - log_det

    def model(self) -> pm.Model:
        """Return a PyMC model over a standard normal reference; its evidence is Z."""
        dim = self.filters.shape[1]
        with pm.Model() as model:
            x = pm.Normal("x", shape=dim)
            u = pt.dot(self.filters, x)
            energy = pt.abs(u) if self.kind == "laplace" else self.shape * pt.log1p(u**2)
            log_normal = -0.5 * pt.sum(x**2) - 0.5 * dim * np.log(2.0 * np.pi)
            pm.Potential("experts", -pt.sum(energy) - log_normal)
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

    def unpacked(packed: np.ndarray) -> Experts:
        shape = np.exp(packed[dim * dim :]) if begin.kind == "student_t" else begin.shape
        return Experts(begin.kind, packed[: dim * dim].reshape(dim, dim), shape)

    packed = np.concatenate([begin.filters.ravel(), np.log(begin.shape)])
    bounds = [(None, None)] * dim**2 + [(np.log(LEAST_SHAPE), None)] * dim
    found = minimize(
        lambda packed: cost(unpacked(packed), x), packed, jac=True, method="L-BFGS-B",
        bounds=bounds, options={"maxiter": STEPS},
    )  # fmt: skip
    return unpacked(found.x)


@cache
def learned(kind: Kind, dim: int = 36, seed: int = 0) -> Experts:
    """Learn experts from image patches."""
    rng = np.random.default_rng(seed)
    return fit(start(kind, dim, rng), patches(dim).train)
