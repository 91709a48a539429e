"""`TestSystem`, a PyMC model with its exact answers along the path, and the quadrature for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, overload

import numpy as np
import pymc as pm
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import logsumexp

LOG_2PI = float(np.log(2.0 * np.pi))

type FloatArray = NDArray[np.float64]
type Moments = dict[str, tuple[FloatArray, FloatArray]]
type Distribution = Callable[[Any], FloatArray]
type Statistic = Callable[[Mapping[str, Any]], FloatArray]

GROWTH = 0.2
"""Width of a panel far from all features, as a share of its distance from them."""


@dataclass(frozen=True, eq=False)
class TestSystem:
    """A PyMC model with the exact log Z(beta) and moments of each tempered density.

    The tempered density at inverse temperature beta is

        log pi_beta(x) = log prior(x) + beta * log likelihood(x),

    where potentials count as likelihood, and Z(beta) = E_prior[likelihood^beta], so that
    Z(0) = 1 and Z(1) is the marginal likelihood. "Exact" means a closed form, or quadrature
    over what closed forms leave, with an error far below any Monte Carlo error.

    Attributes
    ----------
    name : str
        Name of the system.
    model : pymc.Model
        The model; all free variables are continuous.
    n_modes : int
        Number of separate modes of the posterior.
    exact_log_z : callable
        ``exact_log_z(beta) -> float`` in nats; users call `log_z`.
    exact_moments : callable
        Means and variances at one beta; users call `moments`.
    exact_cdf : callable or None
        ``exact_cdf(beta)`` returns the vectorized distribution function of `statistic`
        under pi_beta; users call `cdf`.
    statistic : callable or None
        Maps draws, a mapping of variable names to arrays of shape ``(..., *variable shape)``
        on the constrained space, to the scalars of shape ``(...)`` that `cdf` describes.
    statistic_name : str or None
        Name of `statistic`, such as ``"x[0]"``.
    mode_centers : ndarray of shape (n_modes, dim) or None
        A point for each mode, on the constrained space: a draw belongs to the mode with the
        nearest center. None where this rule makes no sense.
    exact_mode_weights : callable or None
        The posterior's share of each mode; users call `mode_weights`.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.beta_binomial(n=10, y=3, a=1.0, b=1.0)
    >>> round(system.log_evidence, 6)  # a uniform prior: 1 / (n + 1)
    -2.397895
    """

    # pytest would otherwise collect this class from every test module that imports it.
    __test__: ClassVar[bool] = False

    name: str
    model: pm.Model
    exact_log_z: Callable[[float], float]
    exact_moments: Callable[[float], Moments]
    exact_cdf: Callable[[float], Distribution] | None = None
    n_modes: int = 1
    statistic: Statistic | None = None
    statistic_name: str | None = None
    mode_centers: FloatArray | None = None
    exact_mode_weights: Callable[[], FloatArray] | None = None

    @property
    def dim(self) -> int:
        """Number of unconstrained coordinates."""
        return int(sum(np.prod(value.type.shape) for value in self.model.value_vars))

    @overload
    def log_z(self, beta: float) -> float: ...
    @overload
    def log_z(self, beta: Sequence[float] | FloatArray) -> FloatArray: ...
    def log_z(self, beta: float | Sequence[float] | FloatArray) -> float | FloatArray:
        """Log normalizing constant of the tempered density.

        Parameters
        ----------
        beta : float or array_like
            Inverse temperatures in [0, 1].

        Returns
        -------
        float or ndarray
            log Z(beta) in nats, in the shape of `beta`.

        Raises
        ------
        ValueError
            If a beta is outside [0, 1].
        """
        betas = np.asarray(beta, dtype=np.float64)
        values = np.array([self.exact_log_z(_valid(b)) for b in betas.ravel()])
        return float(values[0]) if betas.ndim == 0 else values.reshape(betas.shape)

    def moments(self, beta: float) -> Moments:
        """Means and variances of the free variables under the tempered density.

        Parameters
        ----------
        beta : float
            Inverse temperature in [0, 1].

        Returns
        -------
        dict of str to (mean, variance)
            Elementwise, in each variable's own shape and on the constrained space; ``inf``
            where a variance diverges or a positive variable has no mean.

        Raises
        ------
        ValueError
            If beta is outside [0, 1].
        """
        return self.exact_moments(_valid(beta))

    def cdf(self, beta: float) -> Distribution | None:
        """Distribution function of `statistic` under the tempered density.

        Parameters
        ----------
        beta : float
            Inverse temperature in [0, 1].

        Returns
        -------
        callable or None
            A vectorized function, as `scipy.stats.kstest` takes it, or None where the
            system has no such statistic.

        Raises
        ------
        ValueError
            If beta is outside [0, 1].
        """
        return None if self.exact_cdf is None else self.exact_cdf(_valid(beta))

    def mode_weights(self) -> FloatArray | None:
        """Posterior probability of each mode at beta = 1.

        Returns
        -------
        ndarray of shape (n_modes,) or None
            Shares that add up to one; None where the system does not tell its modes apart.
        """
        if self.exact_mode_weights is not None:
            return self.exact_mode_weights()
        return np.ones(1) if self.n_modes == 1 else None

    @property
    def log_evidence(self) -> float:
        """Log marginal likelihood, log Z(1), in nats."""
        return self.log_z(1.0)


def element(name: str, *index: int) -> dict[str, Any]:
    """Statistic that is one element of one variable, and its name, as fields of a system."""
    position: tuple[Any, ...] = (..., *index)
    return {
        "statistic": lambda draws: np.asarray(draws[name], dtype=np.float64)[position],
        "statistic_name": name + "".join(f"[{i}]" for i in index),
    }


def of_log(cdf: Distribution) -> Distribution:
    """Distribution function of a positive number, from that of its logarithm."""
    return lambda value: cdf(np.log(np.maximum(value, np.finfo(float).tiny)))


def _valid(beta: float) -> float:
    # The quadratures resolve the widths of densities up to beta = 1.
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta must be in [0, 1], got {beta}; use a value on the path.")
    return float(beta)


@dataclass(frozen=True, eq=False)
class Axis:
    """Panels on an interval with Gauss-Legendre nodes in each.

    Attributes
    ----------
    edges : ndarray of shape (n_panels + 1,)
        Increasing panel borders; a single edge is a point of weight one.
    order : int
        Nodes per panel.
    """

    edges: FloatArray
    order: int = 6

    @cached_property
    def nodes(self) -> FloatArray:
        """Abscissas, increasing, shape (n_panels * order,)."""
        if self.edges.size == 1:
            return self.edges
        centers = 0.5 * (self.edges[1:] + self.edges[:-1])
        return np.ravel(centers[:, None] + self._half[:, None] * self._rule[0])

    @cached_property
    def weights(self) -> FloatArray:
        """Weights of the nodes, shape (n_panels * order,)."""
        if self.edges.size == 1:
            return np.ones(1)
        return np.ravel(self._half[:, None] * self._rule[1])

    def cdf(self, mass: FloatArray) -> Distribution:
        """Distribution function of a density, given its `mass` at each node.

        Inside a panel the density is the polynomial through its nodes, integrated exactly up
        to each node; monotone cubics join these points.
        """
        n = self.order
        points = np.append(self._rule[0], 1.0)
        # int_{-1}^{x} P_k = (P_{k+1}(x) - P_{k-1}(x)) / (2k + 1), and x + 1 for k = 0.
        basis = legendre.legvander(points, n)
        integrals = np.empty((n + 1, n))
        integrals[:, 0] = points + 1.0
        integrals[:, 1:] = (basis[:, 2:] - basis[:, :-2]) / (2.0 * np.arange(1, n) + 1.0)
        partial = integrals @ np.linalg.inv(legendre.legvander(self._rule[0], n - 1))
        inside = (mass.reshape(-1, n) / self._rule[1]) @ partial.T
        before = np.concatenate([[0.0], np.cumsum(inside[:-1, -1])])
        x = np.column_stack([self.nodes.reshape(-1, n), self.edges[1:]]).ravel()
        y = np.maximum.accumulate(np.clip((before[:, None] + inside).ravel(), 0.0, None))
        # Rounded, since slopes that are subnormal but not zero overflow in the interpolation.
        y = np.round(y / y[-1], 14)
        curve = PchipInterpolator(np.append(self.edges[0], x), np.append(0.0, y))
        lower, upper = self.edges[0], self.edges[-1]
        return lambda value: np.asarray(
            curve(np.clip(np.asarray(value, dtype=np.float64), lower, upper))
        )

    @cached_property
    def _half(self) -> FloatArray:
        return 0.5 * np.diff(self.edges)

    @cached_property
    def _rule(self) -> tuple[FloatArray, FloatArray]:
        nodes, weights = legendre.leggauss(self.order)
        return nodes, weights


ONE_POINT = Axis(np.zeros(1))
"""Second coordinate of a density on a line."""


@dataclass(frozen=True, eq=False)
class TemperedGrid:
    """Tensor-product quadrature of prior * likelihood^beta over one or two coordinates.

    Attributes
    ----------
    first, second : Axis
        The coordinates u and v; `ONE_POINT` if there is no second one.
    log_prior : callable
        ``log_prior(u, v)``: normalized log density, broadcasting (n_u, 1) with (1, n_v).
    log_power : callable
        ``log_power(beta, u, v)``: log of the mean of likelihood^beta given u and v, likewise.
    """

    first: Axis
    second: Axis
    log_prior: Callable[[FloatArray, FloatArray], FloatArray]
    log_power: Callable[[float, FloatArray, FloatArray], FloatArray]

    @property
    def u(self) -> FloatArray:
        """Nodes of the first axis, shape (n_u, 1)."""
        return self.first.nodes[:, None]

    @property
    def v(self) -> FloatArray:
        """Nodes of the second axis, shape (1, n_v)."""
        return self.second.nodes[None, :]

    def log_z(self, beta: float) -> float:
        """Log of the integral of prior * likelihood^beta."""
        return float(logsumexp(self._log_terms(beta)))

    def probabilities(self, beta: float) -> FloatArray:
        """Share of each node under the tempered density, shape (n_u, n_v)."""
        terms = self._log_terms(beta)
        probabilities = np.exp(terms - terms.max())
        return probabilities / probabilities.sum()

    def cdf(self, beta: float) -> Distribution:
        """Distribution function of the first coordinate under the tempered density."""
        return self.first.cdf(self.probabilities(beta).sum(axis=1))

    def _log_terms(self, beta: float) -> FloatArray:
        return self._log_prior_mass + self.log_power(beta, self.u, self.v)

    @cached_property
    def _log_prior_mass(self) -> FloatArray:
        log_weights = np.log(self.first.weights)[:, None] + np.log(self.second.weights)
        return log_weights + self.log_prior(self.u, self.v)


def power_of(
    log_likelihood: Callable[[FloatArray, FloatArray], FloatArray],
) -> Callable[[float, FloatArray, FloatArray], FloatArray]:
    """Return beta times the log likelihood of one grid, which is computed once."""
    known: list[FloatArray] = []

    def log_power(beta: float, u: FloatArray, v: FloatArray) -> FloatArray:
        if not known:
            known.append(log_likelihood(u, v))
        return beta * known[0]

    return log_power


def mean_and_variance(values: FloatArray, probabilities: FloatArray) -> tuple[float, float]:
    """Mean and variance of `values` at nodes of the given shares."""
    mean = float(np.sum(values * probabilities))
    return mean, float(np.sum((values - mean) ** 2 * probabilities))


def total_moments(
    mean: FloatArray, variance: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Law of total expectation and variance over nodes on the first axis of the given shares."""
    overall = np.tensordot(weights, mean, axes=1)
    second = variance + (mean - overall) ** 2
    return np.asarray(overall), np.asarray(np.tensordot(weights, second, axes=1))


def graded_edges(lower: float, upper: float, centers: FloatArray, scales: FloatArray) -> FloatArray:
    """Panel borders that resolve features at several places and scales.

    Panels are half a scale wide up to ten scales from a center, and from there on `GROWTH`
    times their distance from it.
    """
    parts = [np.linspace(lower, upper, 49)]
    for center, scale in zip(centers, scales, strict=True):
        reach = max((upper - lower) / (10.0 * scale), 1.0)
        steps = int(np.ceil(np.log(reach) / np.log1p(GROWTH)))
        offsets = scale * np.concatenate(
            [np.arange(0.0, 10.0, 0.5), 10.0 * (1.0 + GROWTH) ** np.arange(steps + 1)]
        )
        parts += [center - offsets, center + offsets]
    edges = np.unique(np.clip(np.concatenate(parts), lower, upper))
    keep = np.append(True, np.diff(edges) > 1e-9 * (upper - lower))
    edges = edges[keep]
    edges[-1] = upper
    return edges
