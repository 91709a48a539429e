"""Mixtures with normal noise of one known standard deviation: of Gaussians, and factorial."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from scipy.spatial.distance import cdist
from scipy.special import digamma, entr, expit, logsumexp

from pymc_tempering.arguments import check_whole
from pymc_tempering.exceptions import DataError
from pymc_tempering.variational.conjugate.moments import log_tempered_moment
from pymc_tempering.variational.conjugate.protocol import (
    Globals,
    Local,
    check_positive,
    check_width,
    dirichlet_kl,
    log_moment,
)


class RealRows(ABC):
    """What `ConjugateModel`s have in common whose data are rows of real numbers with normal noise.

    `sd` is the standard deviation of the noise.
    """

    name: str
    sd: float

    @abstractmethod
    def initialize(self, data: np.ndarray, rng: np.random.Generator) -> Globals:
        """Draw global parameters to start from."""

    def check(self, data: Any) -> np.ndarray:
        """Return data points in rows as a float array of shape (N, D).

        Raises
        ------
        DataError
            If there are none, or they are not two-dimensional, or not finite.
        """
        array = np.array(data, dtype=float, order="C")
        if array.ndim != 2 or 0 in array.shape:
            raise DataError(
                f"{self.name} takes data of shape (N, D), a data point a row; got shape "
                f"{array.shape}. One-dimensional data need x[:, None]"
            )
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            raise DataError(f"{self.name}: data[{row}, {column}] is {array[row, column]}")
        return array

    def perturb(
        self, lam: Globals, data: np.ndarray, share: float, rng: np.random.Generator
    ) -> None:
        """Mix in a share of first parameters; natural parameters are a convex set."""
        for old, new in zip(lam, self.initialize(data, rng), strict=True):
            old *= 1.0 - share
            old += share * new

    def log_constant(self, data: np.ndarray) -> float:
        """Return the log density of the noise at zero."""
        return float(-0.5 * data.shape[1] * np.log(2.0 * np.pi * self.sd**2))

    def log_noise(self, data: np.ndarray, inv: np.ndarray) -> np.ndarray:
        """Return the log of the integral of N(x; mu, sd^2 I)^(1/T)."""
        return -(1.0 - inv) * self.log_constant(data) - 0.5 * data.shape[1] * np.log(inv)

    def log_normalizers(
        self, table: np.ndarray, data: np.ndarray, state: np.ndarray, inv_temps: np.ndarray
    ) -> np.ndarray:
        """Return the table: all data have the same normalizer."""
        return table


@dataclass(frozen=True)
class GaussianMixture(RealRows):
    """Gaussian mixture with unknown weights and means: the model of Figure 1, Mandt et al. (2016).

    ``p ~ Dirichlet(concentration)``, ``mu_k ~ N(prior_mean, prior_sd^2 I)``, ``z_n ~
    Categorical(p)``, ``x_n ~ N(mu_{z_n}, sd^2 I)``. `sd` is known: with an unknown one C(T) would
    be infinite, since it averages sd^(N D (1 - 1/T)) over the prior. The global parameters are
    the concentrations (K,), precisions (K,), and precision-weighted means (K, D).

    Parameters
    ----------
    n_components : int
        Number K of components.
    sd : float
        Standard deviation within a component.
    prior_sd : float
        Prior standard deviation of the means.
    prior_mean : float, default 0.0
        Prior mean of the means.
    concentration : float, default 1.0
        Of the symmetric Dirichlet prior of the weights.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_tempering as pmt
    >>> model = pmt.variational.conjugate.GaussianMixture(2, sd=1.0, prior_sd=5.0)
    >>> x = np.concatenate([np.full((30, 1), -3.0), np.full((10, 1), 3.0)])
    >>> fit = pmt.variational.conjugate.svi(model, x, method="vi", random_seed=1)
    >>> np.sort(fit.posterior["weight"].values).round(2)
    array([0.26, 0.74])
    """

    n_components: int
    sd: float
    prior_sd: float
    prior_mean: float = 0.0
    concentration: float = 1.0
    name = "GaussianMixture"

    def __post_init__(self) -> None:
        check_whole(1, n_components=self.n_components)
        check_positive(sd=self.sd, prior_sd=self.prior_sd, concentration=self.concentration)
        if not np.isfinite(self.prior_mean):
            raise ValueError(f"prior_mean must be a finite number, not {self.prior_mean!r}.")

    def prior(self, data: np.ndarray) -> Globals:
        """Return the natural parameters of the prior."""
        k, precision = self.n_components, self.prior_sd**-2
        return (
            np.full(k, self.concentration),
            np.full(k, precision),
            np.full((k, data.shape[1]), self.prior_mean * precision),
        )

    def initialize(self, data: np.ndarray, rng: np.random.Generator) -> Globals:
        """Draw means from the prior, with the precision that even shares of the data give."""
        k, share = self.n_components, len(data) / self.n_components
        mean = self.prior_mean + self.prior_sd * rng.normal(size=(k, data.shape[1]))
        precision = np.full(k, self.prior_sd**-2 + share / self.sd**2)
        return np.full(k, self.concentration + share), precision, mean * precision[:, None]

    def start_local(self, data: np.ndarray) -> np.ndarray:
        """Return even assignments, shape (n, K); the local step does not depend on them."""
        return np.full((len(data), self.n_components), 1.0 / self.n_components)

    def local_step(
        self, lam: Globals, data: np.ndarray, inv_temp: np.ndarray, state: np.ndarray
    ) -> Local:
        """Set q(z_n) to its optimum, proportional to exp(E[log p(x_n, z_n | beta)] / T_n)."""
        concentration, precision, linear = lam
        mean = linear / precision[:, None]
        log_p = digamma(concentration) - digamma(concentration.sum()) + self.log_constant(data)
        score = log_p - 0.5 * data.shape[1] / precision / self.sd**2
        score = score - 0.5 * cdist(data, mean, "sqeuclidean") / self.sd**2
        tempered = inv_temp[:, None] * score
        log_norm = logsumexp(tempered, axis=1)
        share = np.exp(tempered - log_norm[:, None])
        log_joint = (share * score).sum(axis=1)
        add_statistics = partial(self._add_statistics, data, share)
        return Local(add_statistics, log_joint, log_norm - inv_temp * log_joint, share)

    def _add_statistics(
        self, data: np.ndarray, share: np.ndarray, weights: np.ndarray, out: Globals
    ) -> None:
        weighted = weights[:, None] * share
        count = weighted.sum(axis=0)
        out[0][...] += count
        out[1][...] += count / self.sd**2
        out[2][...] += weighted.T @ data / self.sd**2

    def global_elbo(self, lam: Globals, data: np.ndarray) -> float:
        """Return minus the divergence of q(p) and q(mu) from their priors."""
        concentration, precision, linear = lam
        ratio = 1.0 / (precision * self.prior_sd**2)
        mean = linear / precision[:, None]
        distance = ((mean - self.prior_mean) ** 2).sum() / self.prior_sd**2
        spread = data.shape[1] * (ratio - 1.0 - np.log(ratio)).sum()
        return -0.5 * float(distance + spread) - dirichlet_kl(concentration, self.concentration)

    def log_partition(self, data: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
        """Return log C(T), exact: the Gaussian's part, and a moment of the weights."""
        inv = 1.0 / np.asarray(temperatures)
        weights = [
            log_tempered_moment(self.concentration, self.n_components, len(data), s) for s in inv
        ]
        return len(data) * self.log_noise(data, inv) + np.array(weights)

    def normalizer_table(self, lam: Globals, data: np.ndarray, inv_temps: np.ndarray) -> np.ndarray:
        """Return log sum_k E[p_k^(1/T)], a bound by Jensen, with the noise's part."""
        a, s = lam[0], np.asarray(inv_temps)[:, None]
        moments = logsumexp(log_moment(a, a.sum(), s), axis=1)
        return moments + self.log_noise(data, inv_temps)

    def describe(self, lam: Globals) -> xr.Dataset:
        """Return the weights' concentration and mean, the means' mean and standard deviation."""
        concentration, precision, linear = lam
        return xr.Dataset(
            {
                "concentration": ("component", concentration),
                "weight": ("component", concentration / concentration.sum()),
                "mean": (("component", "dimension"), linear / precision[:, None]),
                "sd": ("component", precision**-0.5),
            },
            coords={
                "component": np.arange(len(precision)),
                "dimension": np.arange(linear.shape[1]),
            },
        )

    def log_predictive(self, lam: Globals, data: np.ndarray) -> np.ndarray:
        """Return the log density of each datum under q, shape (n,), in nats."""
        concentration, precision, linear = lam
        check_width(linear.shape[1], data, self.name)
        variance = self.sd**2 + 1.0 / precision
        mean = linear / precision[:, None]
        square = cdist(data, mean, "sqeuclidean")
        log_density = -0.5 * (square / variance + data.shape[1] * np.log(2 * np.pi * variance))
        return logsumexp(log_density + np.log(concentration / concentration.sum()), axis=1)


MAX_STEPS, TOL = 1000, 1e-6
"""Local steps of held-out data, and the gain in nats of any datum below which they end."""


@dataclass(frozen=True)
class FactorialMixture(RealRows):
    """Factorial mixture model: equation (12) of Mandt et al. (2016), after Ghahramani (1995).

    ``x_n = sum_k z_nk mu_k + e_n`` with ``z_nk ~ Bernoulli(probability)``, ``mu_k ~ N(0,
    prior_sd^2 I)`` and ``e_n ~ N(0, sd^2 I)``. q is factorized over all z_nk. The global
    parameters are the precision of the components, shape (K, K), and their precision-weighted
    means, shape (K, D).

    Parameters
    ----------
    n_components : int
        Number K of components.
    sd : float
        Standard deviation of the noise. The paper's sigma_n is its square.
    prior_sd : float
        Prior standard deviation of the components' elements. The paper's sigma_mu is its square.
    probability : float, default 0.5
        Prior probability pi that a component is switched on.
    covariance : {"factorized", "full"}, default "factorized"
        q(mu) is factorized over components as in Doshi et al. (2009), or has their covariance,
        which is a better bound.
    sweeps : int, default 1
        Sweeps over the components in a local step.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_tempering as pmt
    >>> conjugate = pmt.variational.conjugate
    >>> rng = np.random.default_rng(1)
    >>> parts = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    >>> x = (rng.random((300, 2)) < 0.5) @ parts + 0.1 * rng.normal(size=(300, 3))
    >>> model = conjugate.FactorialMixture(2, sd=0.1, prior_sd=1.0)
    >>> fit = conjugate.svi(model, x, random_seed=1)
    >>> means = fit.posterior["mean"].values
    >>> np.abs(means[np.argsort(means[:, 2])].round(1))
    array([[1., 1., 0.],
           [0., 0., 2.]])
    """

    n_components: int
    sd: float
    prior_sd: float
    probability: float = 0.5
    covariance: str = "factorized"
    sweeps: int = 1
    name = "FactorialMixture"

    def __post_init__(self) -> None:
        check_whole(1, n_components=self.n_components, sweeps=self.sweeps)
        check_positive(sd=self.sd, prior_sd=self.prior_sd)
        if not 0.0 < self.probability < 1.0:
            raise ValueError(f"probability must lie between 0 and 1, not {self.probability!r}.")
        if self.covariance not in ("factorized", "full"):
            raise ValueError(f'covariance must be "factorized" or "full", not {self.covariance!r}.')

    def prior(self, data: np.ndarray) -> Globals:
        """Return prior precision and a linear term of zero."""
        k = self.n_components
        return np.eye(k) / self.prior_sd**2, np.zeros((k, data.shape[1]))

    def initialize(self, data: np.ndarray, rng: np.random.Generator) -> Globals:
        """Draw means from the prior, with the precision that expected shares of the data give."""
        k = self.n_components
        mean = self.prior_sd * rng.normal(size=(k, data.shape[1]))
        known = 1.0 / self.prior_sd**2 + len(data) * self.probability / self.sd**2
        return np.eye(k) * known, mean * known

    def moments(self, lam: Globals) -> tuple[np.ndarray, np.ndarray]:
        """Return mean, shape (K, D), and covariance of the components, shape (K, K)."""
        precision, linear = lam
        mean = np.linalg.solve(precision, linear)
        if self.covariance == "full":
            return mean, np.linalg.inv(precision)
        return mean, np.diag(1.0 / np.diag(precision))

    def start_local(self, data: np.ndarray) -> np.ndarray:
        """Return the prior probabilities, shape (n, K)."""
        return np.full((len(data), self.n_components), self.probability)

    def local_step(
        self, lam: Globals, data: np.ndarray, inv_temp: np.ndarray, state: np.ndarray
    ) -> Local:
        """Update q(z_nk) component by component: Doshi et al. (2009), equation by equation."""
        mean, covariance = self.moments(lam)
        gram = mean @ mean.T + data.shape[1] * covariance  # E[mu_k . mu_l]
        overlap, own, on = data @ mean.T, np.diag(gram), state.copy()
        log_odds = np.log(self.probability) - np.log1p(-self.probability)
        for k in np.tile(np.arange(self.n_components), self.sweeps):
            others = on @ gram[k] - on[:, k] * own[k]
            field = overlap[:, k] - 0.5 * own[k] - others
            on[:, k] = expit(inv_temp * (log_odds + field / self.sd**2))
        square = on * (on @ gram) + on * (1.0 - on) * own  # z^2 = z
        log_joint = (on * log_odds + (on * overlap - 0.5 * square) / self.sd**2).sum(axis=1)
        log_joint += self.n_components * np.log1p(-self.probability) + self.log_constant(data)
        log_joint -= 0.5 * np.einsum("nd,nd->n", data, data) / self.sd**2
        entropy = (entr(on) + entr(1.0 - on)).sum(axis=1)
        return Local(partial(self._add_statistics, data, on), log_joint, entropy, on)

    def _add_statistics(
        self, data: np.ndarray, on: np.ndarray, weights: np.ndarray, out: Globals
    ) -> None:
        weighted = (weights / self.sd**2)[:, None] * on
        pairs = weighted.T @ on
        np.fill_diagonal(pairs, weighted.sum(axis=0))  # z^2 = z
        out[0][...] += pairs
        out[1][...] += weighted.T @ data

    def global_elbo(self, lam: Globals, data: np.ndarray) -> float:
        """Return minus the divergence of q(mu) from its prior."""
        mean, covariance = self.moments(lam)
        scaled = covariance / self.prior_sd**2
        spread = np.trace(scaled) - self.n_components - np.linalg.slogdet(scaled)[1]
        return float(-0.5 * ((mean**2).sum() / self.prior_sd**2 + mean.shape[1] * spread))

    def log_partition(self, data: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
        """Return log C(T): Appendix C with the density's own constant tempered too.

        The integral of N(x; mu, s I)^(1/T) is (2 pi s)^(D/2 (1 - 1/T)) T^(D/2); the paper leaves
        the first factor out.
        """
        inv = 1.0 / np.asarray(temperatures)
        switches = np.log(self.probability**inv + (1.0 - self.probability) ** inv)
        return len(data) * (self.log_noise(data, inv) + self.n_components * switches)

    def normalizer_table(self, lam: Globals, data: np.ndarray, inv_temps: np.ndarray) -> np.ndarray:
        """Return log C(T) for one datum: free of the components, so that LVT is conjugate here."""
        return self.log_partition(data[:1], 1.0 / inv_temps)

    def describe(self, lam: Globals) -> xr.Dataset:
        """Return mean and standard deviation of the components."""
        mean, covariance = self.moments(lam)
        return xr.Dataset(
            {
                "mean": (("component", "dimension"), mean),
                "sd": ("component", np.sqrt(np.diag(covariance))),
                "precision": (("component", "component_bis"), lam[0]),
                "linear": (("component", "dimension"), lam[1]),
            },
            coords={
                "component": np.arange(len(mean)),
                "component_bis": np.arange(len(mean)),
                "dimension": np.arange(mean.shape[1]),
            },
        )

    def log_predictive(self, lam: Globals, data: np.ndarray) -> np.ndarray:
        """Return the ELBO of each datum under q(mu): a lower bound, shape (n,), in nats."""
        check_width(lam[1].shape[1], data, self.name)
        state, inv_temp = self.start_local(data), np.ones(len(data))
        value = np.full(len(data), -np.inf)
        for _ in range(MAX_STEPS):
            local = self.local_step(lam, data, inv_temp, state)
            state, old, value = local.state, value, local.log_joint + local.rest
            if (value - old).max() <= TOL:
                break
        return value
