"""Normal hierarchies: groups are integrated in closed form, their common scale by quadrature."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from scipy import stats

from pymc_tempering.testsystems.gauss_legendre import ONE_POINT, Axis, TemperedGrid, total_moments
from pymc_tempering.testsystems.system import (
    Distribution,
    FloatArray,
    Moments,
    TestSystem,
    element,
)

LOG_2PI = float(np.log(2.0 * np.pi))

# Both priors of tau leave less than 1e-15 outside.
LOG_TAU_AXIS = Axis(np.linspace(-37.0, 40.0, 771))

# Rubin (1981); Gelman et al., Bayesian Data Analysis, table 5.2.
EIGHT_SCHOOLS_EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
EIGHT_SCHOOLS_ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def hierarchical_normal(
    groups: int = 20,
    n: int = 5,
    sigma: float = 1.0,
    prior_mean: float = 1.0,
    prior_sd: float = 5.0,
    tau_scale: float = 2.0,
    seed: int = 0,
) -> TestSystem:
    """Draw groups from a common mean with unknown spread, in the centered form.

    ``mu ~ Normal(prior_mean, prior_sd)``, ``tau ~ HalfNormal(tau_scale)``,
    ``theta[j] ~ Normal(mu, tau)``, ``y[i, j] ~ Normal(theta[j], sigma)``. Given tau, all else is
    Gaussian for every beta: with k = beta n / sigma^2 and q = k / (1 + k tau^2) the group means
    are worth normal observations of mu with precision q. The integral over log tau is done by
    quadrature. The funnel between tau and theta at small beta is the difficulty.

    Parameters
    ----------
    groups : int
        Number of groups; the model has groups + 2 dimensions.
    n : int
        Observations per group.
    sigma : float
        Known standard deviation within groups.
    prior_mean, prior_sd : float
        Prior of the common mean.
    tau_scale : float
        Scale of the half-normal prior of tau.
    seed : int
        Seed of the data.

    Returns
    -------
    TestSystem
        Variables ``mu``, ``tau`` (scalars; tau is sampled on the log scale) and ``theta`` of
        shape (groups,); the cdf is that of ``tau``. log Z in nats.
    """
    rng = np.random.default_rng(seed)
    truth = prior_mean + 0.5 * prior_sd + 0.7 * tau_scale * rng.normal(size=groups)
    y = truth + sigma * rng.normal(size=(n, groups))
    with pm.Model() as model:
        mu = pm.Normal("mu", prior_mean, prior_sd)
        tau = pm.HalfNormal("tau", tau_scale)
        theta = pm.Normal("theta", mu, tau, shape=groups)
        pm.Normal("y", theta, sigma, observed=y)
    center = y.mean(axis=0)
    within = float(np.sum((y - center) ** 2))
    log_constant = -n * groups * (0.5 * LOG_2PI + np.log(sigma)) - 0.5 * within / sigma**2
    path = _HierarchyPath(
        center,
        np.full(groups, n / sigma**2),
        log_constant,
        prior_mean,
        prior_sd,
        lambda tau: stats.halfnorm.logpdf(tau, scale=tau_scale),
    )

    def moments(beta: float) -> Moments:
        common = path.moments(beta)
        return {"mu": common["mu"], "tau": common["tau"], "theta": common["theta"]}

    return _system("hierarchical_normal", model, path, moments)


def eight_schools(
    effect: ArrayLike = EIGHT_SCHOOLS_EFFECT,
    error: ArrayLike = EIGHT_SCHOOLS_ERROR,
    prior_sd: float = 5.0,
    tau_scale: float = 5.0,
) -> TestSystem:
    """Set up the eight schools in the non-centered form.

    ``mu ~ Normal(0, prior_sd)``, ``tau ~ HalfCauchy(tau_scale)``, ``theta_raw[j] ~ Normal(0, 1)``,
    ``effect[j] ~ Normal(mu + tau * theta_raw[j], error[j])``, with the data of Rubin (1981).
    Given tau, all else is Gaussian for every beta; the integral over log tau is done by
    quadrature. At beta = 0 tau has no mean.

    Parameters
    ----------
    effect, error : array_like of shape (schools,)
        Estimated effects and their standard errors.
    prior_sd : float
        Prior standard deviation of mu.
    tau_scale : float
        Scale of the half-Cauchy prior of tau.

    Returns
    -------
    TestSystem
        Variables ``mu``, ``tau`` (scalars; tau is sampled on the log scale) and ``theta_raw`` of
        shape (schools,); the cdf is that of ``tau``. log Z in nats.

    Raises
    ------
    ValueError
        If there are fewer than three schools, for which tau has no variance at any beta.
    """
    center = np.asarray(effect, dtype=np.float64)
    sd = np.asarray(error, dtype=np.float64)
    if center.shape != sd.shape or center.size < 3:
        raise ValueError("effect and error must be vectors of one length, three or more.")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, prior_sd)
        tau = pm.HalfCauchy("tau", tau_scale)
        raw = pm.Normal("theta_raw", 0.0, 1.0, shape=center.size)
        pm.Normal("effect", mu + tau * raw, sd, observed=center)
    path = _HierarchyPath(
        center,
        1.0 / sd**2,
        float(-np.sum(0.5 * LOG_2PI + np.log(sd))),
        0.0,
        prior_sd,
        lambda tau: stats.halfcauchy.logpdf(tau, scale=tau_scale),
    )

    def moments(beta: float) -> Moments:
        common = path.moments(beta)
        divergent = (np.asarray(np.inf), np.asarray(np.inf))
        spread = divergent if beta == 0.0 else common["tau"]
        return {"mu": common["mu"], "tau": spread, "theta_raw": common["raw"]}

    return _system("eight_schools", model, path, moments)


@dataclass(frozen=True, eq=False)
class _HierarchyPath:
    """Tempered normal hierarchy: everything given tau, then a grid over log tau."""

    center: FloatArray
    precision: FloatArray
    log_constant: float
    prior_mean: float
    prior_sd: float
    tau_logpdf: Callable[[FloatArray], FloatArray]

    @property
    def deviation(self) -> FloatArray:
        return self.center - self.prior_mean

    def log_z(self, beta: float) -> float:
        return self._grid(beta).log_z(1.0)

    def cdf(self, beta: float) -> Distribution:
        curve = self._grid(beta).cdf(1.0)
        return lambda tau: curve(np.log(np.maximum(tau, np.finfo(float).tiny)))

    def moments(self, beta: float) -> Moments:
        p = self._grid(beta).probabilities(1.0)[:, 0]
        tau = np.exp(LOG_TAU_AXIS.nodes)[:, None]
        k, q, pooled, total = self._given_tau(beta, tau)
        weight = q * tau**2
        shift = (pooled / total)[:, None]
        gap = self.deviation - shift
        spread = 1.0 / total[:, None]
        # Given tau: mean and variance of mu, theta and (theta - mu) / tau by total variance.
        given = {
            "tau": (tau[:, 0], np.zeros(tau.size)),
            "mu": (self.prior_mean + shift[:, 0], spread[:, 0]),
            "theta": (
                self.prior_mean + shift + weight * gap,
                weight / k + (1.0 - weight) ** 2 * spread
                if beta > 0.0
                else tau**2 + spread + 0.0 * gap,
            ),
            "raw": (q * tau * gap, 1.0 - weight + (q * tau) ** 2 * spread),
        }
        return {name: total_moments(mean, variance, p) for name, (mean, variance) in given.items()}

    def _given_tau(
        self, beta: float, tau: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        k = beta * self.precision
        q = k / (1.0 + k * tau**2)
        return k, q, q @ self.deviation, self.prior_sd**-2 + q.sum(axis=-1)

    def _grid(self, beta: float) -> TemperedGrid:
        def log_marginal(log_tau: FloatArray, _: FloatArray) -> FloatArray:
            tau = np.exp(log_tau)
            k, q, pooled, total = self._given_tau(beta, tau)
            groups = -0.5 * np.sum(np.log1p(k * tau**2), axis=-1)
            quadratic = q @ self.deviation**2 - pooled**2 / total
            shrinkage = -0.5 * np.log(total * self.prior_sd**2)
            return (groups + shrinkage - 0.5 * quadratic + beta * self.log_constant)[:, None]

        def log_prior(log_tau: FloatArray, _: FloatArray) -> FloatArray:
            return self.tau_logpdf(np.exp(log_tau)) + log_tau

        return TemperedGrid(LOG_TAU_AXIS, ONE_POINT, log_prior, log_marginal)


def _system(
    name: str, model: pm.Model, path: _HierarchyPath, moments: Callable[[float], Moments]
) -> TestSystem:
    return TestSystem(
        name=name,
        model=model,
        dim=path.center.size + 2,
        n_modes=1,
        exact_log_z=path.log_z,
        exact_moments=moments,
        exact_cdf=path.cdf,
        statistic=element("tau"),
        statistic_name="tau",
    )
