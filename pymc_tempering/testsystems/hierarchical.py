"""Normal hierarchies: all else in closed form given the scales, these by quadrature."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from scipy import stats

from pymc_tempering.testsystems.system import (
    LOG_2PI,
    ONE_POINT,
    Axis,
    FloatArray,
    Moments,
    TemperedGrid,
    TestSystem,
    element,
    of_log,
    total_moments,
)

# Both priors of tau alone leave less than 1e-15 outside.
LOG_TAU_AXIS = Axis(np.linspace(-37.0, 40.0, 771))

# In units of the scale of the prior. Both priors leave less than 1e-9 outside; panels are narrow
# where the likelihood can be large.
LOG_TAU_EDGES = np.concatenate([np.linspace(-22.0, -7.0, 31), np.linspace(-6.85, 2.15, 61)])
LOG_SIGMA_EDGES = np.concatenate([np.linspace(-21.0, -6.0, 31), np.linspace(-5.9, 3.7, 97)])

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
    path = _HierarchyPath(
        np.tile(np.arange(groups), n),
        np.ones((y.size, 1)),
        y.ravel(),
        np.full(y.size, sigma),
        (prior_mean, prior_sd),
        (LOG_TAU_AXIS, ONE_POINT),
        lambda tau, _: stats.halfnorm.logpdf(tau, scale=tau_scale),
    )

    def moments(beta: float) -> Moments:
        laws = path.moments(beta, shift=1.0)
        return {"mu": _first(laws["common"]), "tau": laws["tau"], "theta": laws["effects"]}

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
        np.arange(center.size),
        np.ones((center.size, 1)),
        center,
        sd,
        (0.0, prior_sd),
        (LOG_TAU_AXIS, ONE_POINT),
        lambda tau, _: stats.halfcauchy.logpdf(tau, scale=tau_scale),
    )

    def moments(beta: float) -> Moments:
        laws = path.moments(beta, raw=True)
        divergent = (np.asarray(np.inf), np.asarray(np.inf))
        spread = divergent if beta == 0.0 else laws["tau"]
        return {"mu": _first(laws["common"]), "tau": spread, "theta_raw": laws["effects"]}

    return _system("eight_schools", model, path, moments)


def varying_intercepts(
    groups: int = 3,
    rows: int = 50,
    centered: bool = True,
    prior_sd: float = 2.5,
    tau_scale: float = 2.5,
    sigma_scale: float = 1.0,
    seed: int = 0,
) -> TestSystem:
    """Regress with an intercept for each group: ``y ~ x + (1 | g)`` with weak priors.

    ``sigma ~ Exponential(scale=sigma_scale)``, ``tau ~ HalfNormal(tau_scale)``,
    ``intercept, slope ~ Normal(0, prior_sd)``, ``a[j] ~ Normal(0, tau)``,
    ``y ~ Normal(intercept + slope * x + a[g], sigma)``. Given both scales, all else is Gaussian
    for every beta: with k = beta / sigma^2, a group of n rows is worth an observation of its
    mean with precision k n / (1 + k n tau^2), and rows within groups tell of the slope only. The
    integral over log tau and log sigma is done by quadrature. With few groups the posterior of
    tau reaches from zero to several times its median: both ends of the funnel of tau and a.

    Parameters
    ----------
    groups : int
        Number of groups; the model has groups + 4 dimensions. The last group has three times as
        many rows as the first.
    rows : int
        Rows in all.
    centered : bool
        Whether a is sampled itself, or ``z ~ Normal(0, 1)`` with a = tau z.
    prior_sd : float
        Prior standard deviation of intercept and slope.
    tau_scale, sigma_scale : float
        Scales of the priors of tau and sigma.
    seed : int
        Seed of the data, with standard deviation 1 within groups and 0.7 between them.

    Returns
    -------
    TestSystem
        Variables ``sigma``, ``tau`` (sampled on the log scale), ``intercept``, ``slope``
        (scalars) and ``a``, or ``z``, of shape (groups,); the cdf is that of ``tau``. log Z in
        nats.

    Raises
    ------
    ValueError
        If there are fewer than two groups, or a group without rows.
    """
    ends = np.cumsum(np.linspace(1.0, 3.0, groups)) if groups > 1 else np.ones(1)
    g = np.searchsorted(ends / ends[-1], (np.arange(rows) + 0.5) / rows)
    if groups < 2 or np.bincount(g, minlength=groups).min() == 0:
        raise ValueError(f"{rows} rows in {groups} groups; use two groups or more, and more rows.")
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    y = 0.5 + 0.8 * x + 0.7 * rng.normal(size=groups)[g] + rng.normal(size=rows)
    with pm.Model() as model:
        sigma = pm.Exponential("sigma", scale=sigma_scale)
        tau = pm.HalfNormal("tau", tau_scale)
        intercept = pm.Normal("intercept", 0.0, prior_sd)
        slope = pm.Normal("slope", 0.0, prior_sd)
        if centered:
            a = pm.Normal("a", 0.0, tau, shape=groups)
        else:
            a = tau * pm.Normal("z", 0.0, 1.0, shape=groups)
        pm.Normal("y", intercept + slope * x + a[g], sigma, observed=y)
    path = _HierarchyPath(
        g,
        np.column_stack([np.ones(rows), x]),
        y,
        np.ones(rows),
        (0.0, prior_sd),
        (
            Axis(LOG_TAU_EDGES + np.log(tau_scale)),
            Axis(LOG_SIGMA_EDGES + np.log(sigma_scale)),
        ),
        lambda tau, sigma: (
            stats.halfnorm.logpdf(tau, scale=tau_scale)
            + stats.expon.logpdf(sigma, scale=sigma_scale)
            + np.log(sigma)
        ),
    )

    def moments(beta: float) -> Moments:
        laws = path.moments(beta, raw=not centered)
        (intercept, slope), own = zip(*laws["common"], strict=True), "a" if centered else "z"
        scales = {name: laws[name] for name in ("sigma", "tau")}
        return scales | {"intercept": intercept, "slope": slope, own: laws["effects"]}

    return _system("varying_intercepts", model, path, moments)


@dataclass(frozen=True, eq=False)
class _HierarchyPath:
    """Tempered regression with normal effects of groups: all given the scales, then a grid.

    Given tau and sigma, a group of weight n is worth an observation of its mean with precision
    q = k n / (1 + k n tau^2), k = beta / sigma^2, in the regression on p common coefficients; rows
    within groups tell of these only.

    Attributes
    ----------
    g : ndarray, shape (n,)
        Group of each row.
    X, y, noise : ndarray, shape (n, p), (n,), (n,)
        Regressors, response, and its standard deviation at sigma = 1.
    prior : tuple of float
        Mean and standard deviation of each coefficient.
    axes : tuple of Axis
        log tau and log sigma; at `ONE_POINT` sigma is 1.
    log_prior : callable
        Log density of log sigma, and of tau itself, which the grid over log tau adds to.
    """

    g: np.ndarray
    X: FloatArray
    y: FloatArray
    noise: FloatArray
    prior: tuple[float, float]
    axes: tuple[Axis, Axis]
    log_prior: Callable[[FloatArray, FloatArray], FloatArray]

    @cached_property
    def sums(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weight of each group (G,), its means (G, p + 1), squares around them (p + 1, p + 1).

        The last column is the response, less what the prior mean explains.
        """
        weight = self.noise**-2.0
        rows = np.column_stack([self.X, self.y - self.X.sum(axis=1) * self.prior[0]])
        size = np.bincount(self.g, weights=weight)
        sums = [np.bincount(self.g, weights=weight * column) for column in rows.T]
        means = np.transpose(sums) / size[:, None]
        off = rows - means[self.g]
        return size, means, (weight * off.T) @ off

    @cached_property
    def grid(self) -> TemperedGrid:
        """Quadrature of the tempered density of log tau and log sigma."""

        def log_prior(log_tau: FloatArray, log_sigma: FloatArray) -> FloatArray:
            return self.log_prior(np.exp(log_tau), np.exp(log_sigma)) + log_tau

        constant = -float(np.sum(0.5 * LOG_2PI + np.log(self.noise)))

        def log_power(beta: float, log_tau: FloatArray, log_sigma: FloatArray) -> FloatArray:
            given = _given_scales(self, beta, np.exp(log_tau), np.exp(log_sigma))
            return given.log_marginal + beta * (constant - self.y.size * log_sigma)

        return TemperedGrid(*self.axes, log_prior, log_power)

    def moments(self, beta: float, *, raw: bool = False, shift: float = 0.0) -> Moments:
        """Laws of the scales, the common coefficients and the effects.

        Effects are `raw` in units of tau; `shift` is the share of the regression that they hold.
        """
        grid = self.grid
        p = grid.probabilities(beta)
        tau, sigma = np.broadcast_arrays(np.exp(grid.u), np.exp(grid.v))
        # The others do not show in the sums, and each takes an array of the size of all groups.
        used = p > 1e-24 * p.max()
        weights, tau, sigma = p[used], tau[used], sigma[used]
        given = _given_scales(self, beta, tau, sigma)
        zero = np.zeros_like(tau)
        unit = np.ones_like(tau) if raw else tau
        each = [
            total_moments(*given.effect(size, row, tau, unit, shift, self.prior[0]), weights)
            for size, row in zip(*self.sums[:2], strict=True)
        ]
        mean, variance = np.transpose(each)
        spread = np.diagonal(given.covariance, axis1=-2, axis2=-1)
        return {
            "sigma": total_moments(sigma, zero, weights),
            "tau": total_moments(tau, zero, weights),
            "common": total_moments(given.mean + self.prior[0], spread, weights),
            "effects": (mean, variance),
        }


@dataclass(frozen=True, eq=False)
class _GivenScales:
    """Gaussian law of the common coefficients at each pair of scales, of one shape S.

    ``k`` has shape S, ``mean`` (less that of the prior) S + (p,), ``covariance`` S + (p, p).
    """

    k: FloatArray
    mean: FloatArray
    covariance: FloatArray
    log_marginal: FloatArray

    def effect(
        self,
        size: float,
        row: FloatArray,
        tau: FloatArray,
        unit: FloatArray,
        shift: float,
        prior_mean: float,
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a group's effect, plus `shift` times the regression at its mean."""
        ratio = 1.0 + self.k * size * tau**2
        # Part of the gap between data and regression that the effect takes up.
        share = self.k * size * tau * unit / ratio
        line = self.mean @ row[:-1]
        spread = np.einsum("...ij,i,j->...", self.covariance, row[:-1], row[:-1])
        mean = share * (row[-1] - line) + shift * (line + prior_mean * row[:-1].sum())
        return mean, unit**2 / ratio + (share - shift) ** 2 * spread


def _given_scales(
    path: _HierarchyPath, beta: float, tau: FloatArray, sigma: FloatArray
) -> _GivenScales:
    size, means, within = path.sums
    k = beta / sigma**2 + np.zeros_like(tau)
    worth = np.multiply.outer(size, k)
    ratio = worth * tau**2
    products = means[:, :, None] * means[:, None, :]
    sums = k[..., None, None] * within
    sums += np.tensordot(worth / (1.0 + ratio), products, axes=(0, 0))
    log_det = np.log1p(ratio).sum(axis=0)
    precision, weighted = sums[..., :-1, :-1], sums[..., :-1, -1]
    precision += np.eye(weighted.shape[-1]) / path.prior[1] ** 2
    covariance = np.linalg.inv(precision)
    mean = (covariance @ weighted[..., None])[..., 0]
    residual = sums[..., -1, -1] - (mean * weighted).sum(axis=-1)
    log_det += np.linalg.slogdet(precision * path.prior[1] ** 2)[1]
    return _GivenScales(k, mean, covariance, -0.5 * (log_det + residual))


def _first(law: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    return law[0][0], law[1][0]


def _system(
    name: str, model: pm.Model, path: _HierarchyPath, moments: Callable[[float], Moments]
) -> TestSystem:
    grid = path.grid
    return TestSystem(
        name, model, grid.log_z, moments, lambda beta: of_log(grid.cdf(beta)), **element("tau")
    )
