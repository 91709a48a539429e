"""What a conditionally conjugate model implements for `svi`, and what these models share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xarray as xr
from scipy.special import digamma, gammaln

from pymc_tempering.exceptions import DataError

Globals = tuple[np.ndarray, ...]
"""Natural parameters lambda of q(beta): the prior's plus the expected sufficient statistics."""


@dataclass(frozen=True, eq=False)
class Local:
    """What a local step returns for n data; nats.

    Attributes
    ----------
    add_statistics : callable
        Adds the sum over the data of w_i E_q[t(x_i, z_i)], weights w of shape (n,), to arrays
        shaped like the global parameters.
    log_joint : ndarray, shape (n,)
        E_q[log p(x_i, z_i | beta)]: the term that is tempered.
    rest : ndarray, shape (n,)
        The entropy of q(z_i), and the log priors of local variables that are not tempered.
    state : ndarray, shape (n, ...)
        Local variational parameters, from which the next step on the same data may start.
    """

    add_statistics: Callable[[np.ndarray, Globals], None]
    log_joint: np.ndarray
    rest: np.ndarray
    state: np.ndarray


class ConjugateModel(Protocol):
    """A model p(beta) prod_i p(x_i, z_i | beta) of a conditionally conjugate family.

    Equations (2), (7) and (8) of Mandt et al. (2016). `data` is what `check` returns: an array or a
    sparse array with a data point a row.
    """

    @property
    def name(self) -> str:
        """Name of the model, for messages and DataTrees."""

    def check(self, data: Any) -> Any:
        """Return data in the form that the other methods take, or raise DataError."""

    def prior(self, data: Any) -> Globals:
        """Return the natural parameters alpha of p(beta), or what broadcasts to them."""

    def initialize(self, data: Any, rng: np.random.Generator) -> Globals:
        """Draw first natural parameters lambda."""

    def perturb(self, lam: Globals, data: Any, share: float, rng: np.random.Generator) -> None:
        """Change lambda by a random, small share in place, so that equal components separate."""

    def start_local(self, data: Any) -> np.ndarray:
        """Return local parameters from which the local step of fresh data starts."""

    def local_step(self, lam: Globals, data: Any, inv_temp: np.ndarray, state: np.ndarray) -> Local:
        """Improve q(z_i) at inverse temperatures `inv_temp`, shape (n,); the ELBO never falls."""

    def global_elbo(self, lam: Globals, data: Any) -> float:
        """Return E_q[log p(beta)] - E_q[log q(beta)] in nats."""

    def log_partition(self, data: Any, temperatures: np.ndarray) -> np.ndarray:
        """Return log C(T) of equation (3) for all data, in nats, shape (M,)."""

    def normalizer_table(self, lam: Globals, data: Any, inv_temps: np.ndarray) -> np.ndarray:
        """Return what `log_normalizers` needs of lambda; it may cost more than a local step."""

    def log_normalizers(
        self, table: np.ndarray, data: Any, state: np.ndarray, inv_temps: np.ndarray
    ) -> np.ndarray:
        """Return E_q of the log of the integral of p(x_i, z_i | beta)^(1/T_m), broadcast to (n, M).

        Where that has no closed form, an upper bound, so that the ELBO stays a lower bound.
        """

    def describe(self, lam: Globals) -> xr.Dataset:
        """Return parameters and moments of q(beta) with named dimensions."""

    def log_predictive(self, lam: Globals, data: Any) -> np.ndarray:
        """Return the held-out log-likelihood of each datum at T = 1 in nats, or a bound on it."""


def check_width(width: int, data: Any, name: str) -> None:
    """Raise DataError unless data have as many columns as those that were fitted."""
    if data.shape[1] != width:
        raise DataError(f"{name} was fitted to {width} columns, these data have {data.shape[1]}")


def check_positive(**values: float) -> None:
    """Raise ValueError unless every hyperparameter is a positive number."""
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} must be a positive number, not {value!r}.")


def dirichlet_kl(a: np.ndarray, b: float) -> float:
    """Return the sum of KL(Dir(a) | Dir(b, ..., b)) over columns a, in nats."""
    total, size, columns = a.sum(axis=0), len(a), a[0].size
    value = ((a - b) * (digamma(a) - digamma(total)) - gammaln(a)).sum() + gammaln(total).sum()
    return float(value + columns * (size * gammaln(b) - gammaln(size * b)))


def log_moment(a: Any, total: Any, power: Any) -> np.ndarray:
    """Return log E[p^power] for p ~ Beta(a, total - a), an element of a Dirichlet."""
    return gammaln(a + power) - gammaln(a) + gammaln(total) - gammaln(total + power)
