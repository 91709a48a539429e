"""`TestSystem`: a PyMC model together with its exact answers along the prior-to-posterior path."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import numpy as np
import pymc as pm
from numpy.typing import NDArray

type FloatArray = NDArray[np.float64]
type Moments = dict[str, tuple[FloatArray, FloatArray]]
type Distribution = Callable[[Any], FloatArray]
type Statistic = Callable[[Mapping[str, Any]], FloatArray]


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
    dim : int
        Number of unconstrained coordinates.
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
    dim: int
    n_modes: int
    exact_log_z: Callable[[float], float]
    exact_moments: Callable[[float], Moments]
    exact_cdf: Callable[[float], Distribution] | None = None
    statistic: Statistic | None = None
    statistic_name: str | None = None
    mode_centers: FloatArray | None = None
    exact_mode_weights: Callable[[], FloatArray] | None = None

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


def element(name: str, *index: int) -> Statistic:
    """Statistic that is one element of one variable."""
    position: tuple[Any, ...] = (..., *index)
    return lambda draws: np.asarray(draws[name], dtype=np.float64)[position]


def _valid(beta: float) -> float:
    # The quadratures resolve the widths of densities up to beta = 1.
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta must be in [0, 1], got {beta}; use a value on the path.")
    return float(beta)
