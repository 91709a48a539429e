"""A mixture of Gaussians of one known standard deviation."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import xarray as xr
from numba import float64, int64, void
from scipy.special import digamma, gammaln, logsumexp

from pymc_tempering.arguments import check_whole
from pymc_tempering.model.jit import njit
from pymc_tempering.variational.conjugate.moments import log_tempered_moment
from pymc_tempering.variational.conjugate.protocol import (
    LOCAL_ROWS,
    Globals,
    Local,
    RealRows,
    check_positive,
    check_width,
    dirichlet_kl,
    over_rows,
    rows_from,
)

VECTOR, MATRIX = float64[::1], float64[:, ::1]


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
        self, lam: Globals, data: np.ndarray, inv_temp: np.ndarray, state: np.ndarray, cores: int
    ) -> Local:
        """Set q(z_n) to its optimum, proportional to exp(E[log p(x_n, z_n | beta)] / T_n)."""
        concentration, precision, linear = lam
        mean = linear / precision[:, None]
        log_p = digamma(concentration) - digamma(concentration.sum())
        log_p = log_p - 0.5 * data.shape[1] * (1.0 / precision / self.sd**2)
        log_p += self._log_constant(data)
        rows = rows_from(state)
        assign = partial(_assign, data, mean, log_p, self.sd**-2, inv_temp, rows)
        over_rows(assign, len(data), cores)
        add_statistics = partial(self._add_statistics, data, rows.state)
        return Local(add_statistics, rows.log_joint, rows.rest, rows.state)

    def _add_statistics(
        self, data: np.ndarray, share: np.ndarray, weights: np.ndarray, out: Globals
    ) -> None:
        weighted = weights[:, None] * share
        count = weighted.sum(axis=0)
        out[0][...] += count
        out[1][...] += count / self.sd**2
        out[2][...] += weighted.T @ data / self.sd**2

    def _log_constant(self, data: np.ndarray) -> float:
        return float(-0.5 * data.shape[1] * np.log(2.0 * np.pi * self.sd**2))

    def global_elbo(self, lam: Globals, data: np.ndarray) -> float:
        """Return minus the divergence of q(p) and q(mu) from their priors."""
        concentration, precision, linear = lam
        ratio = 1.0 / (precision * self.prior_sd**2)
        mean = linear / precision[:, None]
        distance = ((mean - self.prior_mean) ** 2).sum() / self.prior_sd**2
        spread = data.shape[1] * (ratio - 1.0 - np.log(ratio)).sum()
        prior = np.full_like(concentration, self.concentration)
        return -0.5 * float(distance + spread) - dirichlet_kl(concentration, prior)

    def log_partition(self, data: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
        """Return log C(T), exact: the Gaussian's part, and a moment of the weights."""
        inv = 1.0 / np.asarray(temperatures)
        weights = [
            log_tempered_moment(self.concentration, self.n_components, len(data), s) for s in inv
        ]
        return len(data) * self._log_noise(data, inv) + np.array(weights)

    def _log_noise(self, data: np.ndarray, inv: np.ndarray) -> np.ndarray:
        """Return the log of the integral of N(x; mu, sd^2 I)^(1/T)."""
        return np.asarray(
            -(1.0 - inv) * self._log_constant(data) - 0.5 * data.shape[1] * np.log(inv)
        )

    def normalizer_table(self, lam: Globals, data: np.ndarray, inv_temps: np.ndarray) -> np.ndarray:
        """Return log sum_k E[p_k^(1/T)], a bound by Jensen, with the noise's part."""
        a, s = lam[0], np.asarray(inv_temps)[:, None]
        log_moments = gammaln(a + s) - gammaln(a) + gammaln(a.sum()) - gammaln(a.sum() + s)
        return np.asarray(logsumexp(log_moments, axis=1) + self._log_noise(data, inv_temps))

    def log_normalizers(
        self, table: np.ndarray, data: np.ndarray, state: np.ndarray, inv_temps: np.ndarray
    ) -> np.ndarray:
        """Return the table: all data have the same normalizer."""
        return table

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

    def log_predictive(self, lam: Globals, data: np.ndarray, cores: int) -> np.ndarray:
        """Return the log density of each datum under q, shape (n,), in nats."""
        concentration, precision, linear = lam
        check_width(linear.shape[1], data, self.name)
        variance = self.sd**2 + 1.0 / precision
        mean = linear / precision[:, None]
        square = ((data[:, None, :] - mean) ** 2).sum(axis=2)
        log_density = -0.5 * (square / variance + data.shape[1] * np.log(2 * np.pi * variance))
        return np.asarray(
            logsumexp(log_density + np.log(concentration / concentration.sum()), axis=1)
        )


@njit(void(MATRIX, MATRIX, VECTOR, float64, VECTOR, LOCAL_ROWS, int64, int64))
def _assign(data, mean, log_p, precision, inv_temp, rows, first, last):  # type: ignore[no-untyped-def]
    """Write q(z), E[log p(x, z)] and the entropy of q(z) into rows `first` to `last`."""
    share, log_joint, rest = rows.state, rows.log_joint, rows.rest
    size, dim = mean.shape
    score = np.empty(size)
    for n in range(first, last):
        top = -np.inf
        for k in range(size):
            square = 0.0
            for d in range(dim):
                square += (data[n, d] - mean[k, d]) ** 2
            score[k] = log_p[k] - 0.5 * precision * square
            top = max(top, score[k])
        total, joint = 0.0, 0.0
        for k in range(size):
            share[n, k] = np.exp(inv_temp[n] * (score[k] - top))
            total += share[n, k]
        for k in range(size):
            share[n, k] /= total
            joint += share[n, k] * score[k]
        log_joint[n] = joint
        rest[n] = inv_temp[n] * (top - joint) + np.log(total)
