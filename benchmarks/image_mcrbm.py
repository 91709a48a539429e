"""The mean and covariance RBM: energy, slopes, learning, and the same in PyMC.

Sohl-Dickstein & Culpepper (2011), equation (40), after Ranzato & Hinton (2010), with the hidden
units summed out. The visible biases have as many elements as x, where the paper's text gives them
as many as there are covariance units. The integral exists for any parameters: the squares of the
filters are divided by the length of x, so that the normal part rules far away.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from image_chains import learn
from image_patches import patches
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp

import pymc_tempering as pmt

FILTERS, COVARIANCE, MEAN = 144, 144, 72
"""Filters, covariance units and mean units; the paper's size, 432, counts the units."""
ROUNDS = 6000
FIELDS = ("pooling", "filters", "covariance_bias", "means", "mean_bias", "visible_bias", "log_sd")


@dataclass(frozen=True)
class McRBM:
    """A mean and covariance RBM.

    Attributes
    ----------
    pooling : array, shape (L, K)
    filters : array, shape (L, M)
    covariance_bias : array, shape (K,)
    means : array, shape (J, M)
    mean_bias : array, shape (J,)
    visible_bias : array, shape (M,)
    log_sd : array, shape (1,)
        Logarithm of the standard deviation sigma.
    """

    pooling: np.ndarray
    filters: np.ndarray
    covariance_bias: np.ndarray
    means: np.ndarray
    mean_bias: np.ndarray
    visible_bias: np.ndarray
    log_sd: np.ndarray

    def energy(self, x: np.ndarray) -> np.ndarray:
        """Energies of states (n, M), in nats."""
        squares = (x @ self.filters.T) ** 2 / (np.sum(x**2, axis=1, keepdims=True) + 0.5)
        of_covariance = np.logaddexp(0.0, 0.5 * squares @ self.pooling + self.covariance_bias)
        of_means = np.logaddexp(0.0, x @ self.means.T + self.mean_bias)
        normal = 0.5 * np.exp(-2.0 * self.log_sd[0]) * np.sum(x**2, axis=1)
        return normal - x @ self.visible_bias - of_covariance.sum(axis=1) - of_means.sum(axis=1)

    def slope_by_states(self, x: np.ndarray) -> np.ndarray:
        """Slope of each energy by its state, (n, M)."""
        length, u, squares, _, pooled, mean_active = self._parts(x)
        of_filters = (pooled * u) @ self.filters - x * np.sum(pooled * squares, axis=1)[:, None]
        normal = np.exp(-2.0 * self.log_sd[0]) * x
        return normal - self.visible_bias - mean_active @ self.means - of_filters / length

    def mean_slope(self, x: np.ndarray) -> np.ndarray:
        """Slope of the mean energy by the parameters."""
        length, u, squares, active, pooled, mean_active = self._parts(x)
        slopes = {
            "pooling": -0.5 * squares.T @ active,
            "filters": -(pooled * u / length).T @ x,
            "covariance_bias": -active.sum(axis=0),
            "means": -mean_active.T @ x,
            "mean_bias": -mean_active.sum(axis=0),
            "visible_bias": -x.sum(axis=0),
            "log_sd": -np.exp(-2.0 * self.log_sd) * np.sum(x**2),
        }
        return np.concatenate([slopes[name].ravel() for name in FIELDS]) / len(x)

    def _parts(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """Length, filters' answers, their squares, active units, and what is pooled of these."""
        length = np.sum(x**2, axis=1, keepdims=True) + 0.5
        u = x @ self.filters.T
        squares = u**2 / length
        active = expit(0.5 * squares @ self.pooling + self.covariance_bias)
        return (
            length, u, squares, active, active @ self.pooling.T,
            expit(x @ self.means.T + self.mean_bias),
        )  # fmt: skip

    def packed(self) -> np.ndarray:
        """Parameters in one vector."""
        return np.concatenate([getattr(self, name).ravel() for name in FIELDS])

    def unpacked(self, packed: np.ndarray) -> "McRBM":
        """The same machine with other parameters."""
        ends = np.cumsum([getattr(self, name).size for name in FIELDS])[:-1]
        parts = zip(FIELDS, np.split(packed, ends), strict=True)
        return replace(
            self, **{name: part.reshape(getattr(self, name).shape) for name, part in parts}
        )

    def log_z_without_pooling(self) -> float:
        """Exact log Z (nats) where nothing is pooled and mean units are few: a sum of normals."""
        if self.pooling.any():
            raise ValueError("log Z is known only where pooling is zero")
        states = np.indices((2,) * len(self.mean_bias)).reshape(len(self.mean_bias), -1).T
        tilt = self.visible_bias + states @ self.means
        variance = np.exp(2.0 * self.log_sd[0])
        of_states = states @ self.mean_bias + 0.5 * variance * np.sum(tilt**2, axis=1)
        flat = np.logaddexp(0.0, self.covariance_bias).sum()
        dim = len(self.visible_bias)
        return float(flat + logsumexp(of_states) + 0.5 * dim * np.log(2.0 * np.pi * variance))

    def model(self, center: float = -1.0, width: float = 1.2) -> pm.Model:
        """Return a PyMC model whose evidence is Z, over a reference of states of all scales.

        With z standard normal and t normal, x = exp(t) z. A machine can hold much of its mass in a
        narrow peak at zero, which particles from one wide normal never find. Of the target, t is
        given x a normal about the logarithm of the root mean square of x, which leaves Z as it is.
        """
        dim = len(self.visible_bias)
        with pm.Model() as model:
            factor = pm.Data("factor", 1.0)
            z, t = pm.Normal("z", shape=dim), pm.Normal("t", center, width)
            x = pt.exp(t) * z
            squares = pt.dot(self.filters, x) ** 2 / (pt.sum(x**2) + 0.5)
            inside = 0.5 * factor * pt.dot(self.pooling.T, squares) + self.covariance_bias
            units = pt.sum(pt.softplus(inside))
            units += pt.sum(pt.softplus(pt.dot(self.means, x) + self.mean_bias))
            normal = 0.5 * np.exp(-2.0 * self.log_sd[0]) * pt.sum(x**2)
            of_t = pm.logp(pm.Normal.dist(0.0, np.sqrt(0.5 / dim)), 0.5 * pt.log(pt.mean(z**2)))
            reference = pm.logp(pm.Normal.dist(center, width), t) - 0.5 * pt.sum(z**2)
            reference -= 0.5 * dim * np.log(2.0 * np.pi)
            target = units + pt.dot(self.visible_bias, x) - normal + dim * t + of_t
            pm.Potential("machine", target - reference)
        return model


def balanced(machine: McRBM, x: np.ndarray, rungs: int = 500) -> McRBM:
    """Multiply the pooling by the factor of greatest likelihood of data (N, M).

    Chains seldom go between the peak at zero and the rest, and learn their shapes, but not how much
    each has. The factor says how high the peak is. Log Z is by HAIS, with one seed.
    """
    compiled = pmt.compile(machine.model())

    def cost(factor: float) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evidence = pmt.annealed.hais(
                compiled.with_data(factor=factor), n_particles=400, betas=rungs, random_seed=1,
                quiet=True, progressbar=False,
            )  # fmt: skip
        own = replace(machine, pooling=factor * machine.pooling)
        return float(own.energy(x).mean()) + evidence.log_z

    found = minimize_scalar(cost, bounds=(0.3, 1.2), options={"xatol": 0.01, "maxiter": 12})
    return replace(machine, pooling=float(found.x) * machine.pooling)


def start(dim: int, sizes: tuple[int, int, int], rng: np.random.Generator) -> McRBM:
    """Return a machine before learning: each covariance unit against one filter, small means."""
    n_filters, n_covariance, n_means = sizes
    pooling = -np.eye(n_filters, n_covariance) - 0.02 * rng.uniform(size=(n_filters, n_covariance))
    return McRBM(
        pooling, rng.normal(size=(n_filters, dim)), np.ones(n_covariance),
        0.05 * rng.normal(size=(n_means, dim)), np.full(n_means, -1.0), np.zeros(dim),
        np.array([0.5]),
    )  # fmt: skip


@cache
def by_chains(
    rounds: int = ROUNDS,
    dim: int = 36,
    sizes: tuple[int, int, int] = (FILTERS, COVARIANCE, MEAN),
    seed: int = 0,
) -> McRBM:
    """Learn a machine from image patches by persistent chains."""
    rng = np.random.default_rng(seed)
    return learn(start(dim, sizes, rng), patches(dim).train, rng, rounds)
