"""Normal hierarchies: all else in closed form given the scales, these by quadrature."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from scipy import stats

from pymc_tempering.testsystems.system import (
    LOG_2PI,
    ONE_POINT,
    Axis,
    Distribution,
    FloatArray,
    Moments,
    TemperedGrid,
    TestSystem,
    element,
    of_log,
    total_moments,
)

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
        return of_log(self._grid(beta).cdf(1.0))

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
        exact_log_z=path.log_z,
        exact_moments=moments,
        exact_cdf=path.cdf,
        **element("tau"),
    )


# In units of the scale of the prior. Both priors leave less than 1e-9 outside; panels are narrow
# where the likelihood can be large.
LOG_TAU_EDGES = np.concatenate([np.linspace(-22.0, -7.0, 31), np.linspace(-6.85, 2.15, 61)])
LOG_SIGMA_EDGES = np.concatenate([np.linspace(-21.0, -6.0, 31), np.linspace(-5.9, 3.7, 97)])


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
    path = _MixedPath.build(g, x, y, prior_sd, tau_scale, sigma_scale)

    def moments(beta: float) -> Moments:
        every = path.moments(beta)
        own = "a" if centered else "z"
        return {name: every[name] for name in ("sigma", "tau", "intercept", "slope", own)}

    return TestSystem(
        name="varying_intercepts",
        model=model,
        dim=groups + 4,
        exact_log_z=lambda beta: path.grid(beta).log_z(1.0),
        exact_moments=moments,
        exact_cdf=path.cdf,
        **element("tau"),
    )


@dataclass(frozen=True, eq=False)
class _MixedPath:
    """Tempered mixed regression: coefficients given the scales, then a grid over log scales.

    ``size``, ``x``, ``y`` are rows and means of the groups; ``within`` are the sums of squares
    and products of x and y around them: xx, xy, yy.
    """

    size: FloatArray
    x: FloatArray
    y: FloatArray
    within: tuple[float, float, float]
    prior_sd: float
    tau_scale: float
    sigma_scale: float

    @classmethod
    def build(
        cls,
        g: np.ndarray,
        x: FloatArray,
        y: FloatArray,
        prior_sd: float,
        tau_scale: float,
        sigma_scale: float,
    ) -> "_MixedPath":
        size = np.bincount(g).astype(np.float64)
        mean_x, mean_y = (np.bincount(g, weights=values) / size for values in (x, y))
        dx, dy = x - mean_x[g], y - mean_y[g]
        within = (float(dx @ dx), float(dx @ dy), float(dy @ dy))
        return cls(size, mean_x, mean_y, within, prior_sd, tau_scale, sigma_scale)

    def grid(self, beta: float) -> TemperedGrid:
        """Quadrature of the tempered density of log tau and log sigma, at its power 1."""

        def log_prior(log_tau: FloatArray, log_sigma: FloatArray) -> FloatArray:
            tau, sigma = np.exp(log_tau), np.exp(log_sigma)
            of_tau = stats.halfnorm.logpdf(tau, scale=self.tau_scale) + log_tau
            return of_tau + stats.expon.logpdf(sigma, scale=self.sigma_scale) + log_sigma

        def log_marginal(log_tau: FloatArray, log_sigma: FloatArray) -> FloatArray:
            n = self.size.sum()
            given = _GivenScales.at(self, beta, np.exp(log_tau), np.exp(log_sigma))
            shrinkage = given.log_det + np.log(given.determinant) + 4.0 * np.log(self.prior_sd)
            return -0.5 * (beta * n * (LOG_2PI + 2.0 * log_sigma) + shrinkage + given.residual)

        return TemperedGrid(
            Axis(LOG_TAU_EDGES + np.log(self.tau_scale)),
            Axis(LOG_SIGMA_EDGES + np.log(self.sigma_scale)),
            log_prior,
            log_marginal,
        )

    def cdf(self, beta: float) -> Distribution:
        return of_log(self.grid(beta).cdf(1.0))

    def moments(self, beta: float) -> Moments:
        grid = self.grid(beta)
        p = grid.probabilities(1.0)
        tau, sigma = np.broadcast_arrays(np.exp(grid.u), np.exp(grid.v))
        # The others do not show in the sums, and each takes an array of the size of all groups.
        used = p > 1e-18 * p.max()
        weights, tau, sigma = p[used], tau[used], sigma[used]
        given = _GivenScales.at(self, beta, tau, sigma)
        zero = np.zeros_like(tau)
        laws = {
            "sigma": (sigma, zero),
            "tau": (tau, zero),
            "intercept": (given.intercept, given.xx / given.determinant),
            "slope": (given.slope, given.one / given.determinant),
        }
        result = {name: total_moments(*law, weights) for name, law in laws.items()}
        each = [total_moments(*given.group(j), weights) for j in range(self.size.size)]
        raw = [total_moments(*given.group(j, raw=True), weights) for j in range(self.size.size)]
        for name, parts in (("a", each), ("z", raw)):
            mean, variance = np.transpose(parts)
            result[name] = (mean, variance)
        return result


@dataclass(frozen=True, eq=False)
class _GivenScales:
    """Gaussian law of the coefficients at each pair of scales, in arrays of one shape.

    The precision of intercept and slope is ``[[one, x], [x, xx]]``; ``log_det`` sums what the
    groups' own effects add to it, and ``residual`` is what the exponent keeps.
    """

    path: _MixedPath
    k: FloatArray
    tau: FloatArray
    one: FloatArray
    x: FloatArray
    xx: FloatArray
    intercept: FloatArray
    slope: FloatArray
    residual: FloatArray
    log_det: FloatArray

    @classmethod
    def at(
        cls, path: _MixedPath, beta: float, tau: FloatArray, sigma: FloatArray
    ) -> "_GivenScales":
        k = beta / sigma**2
        flat = path.prior_sd**-2.0
        one, x, xx, y, xy, yy, log_det = np.zeros((7, *np.broadcast_shapes(k.shape, tau.shape)))
        one += flat
        xx += flat + k * path.within[0]
        xy += k * path.within[1]
        yy += k * path.within[2]
        for size, mean_x, mean_y in zip(path.size, path.x, path.y, strict=True):
            ratio = 1.0 + k * size * tau**2
            q = k * size / ratio
            log_det += np.log(ratio)
            one += q
            x += q * mean_x
            xx += q * mean_x**2
            y += q * mean_y
            xy += q * mean_x * mean_y
            yy += q * mean_y**2
        determinant = one * xx - x**2
        intercept = (xx * y - x * xy) / determinant
        slope = (one * xy - x * y) / determinant
        residual = yy - intercept * y - slope * xy
        return cls(path, k, tau, one, x, xx, intercept, slope, residual, log_det)

    @property
    def determinant(self) -> FloatArray:
        return self.one * self.xx - self.x**2

    def group(self, j: int, raw: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the effect of group j, `raw` in units of tau."""
        mean_x = self.path.x[j]
        ratio = 1.0 + self.k * self.path.size[j] * self.tau**2
        # Part of the gap between data and regression that the effect takes up.
        unit = 1.0 if raw else self.tau
        share = self.k * self.path.size[j] * self.tau * unit / ratio
        gap = self.path.y[j] - self.intercept - mean_x * self.slope
        line = (self.xx - 2.0 * mean_x * self.x + mean_x**2 * self.one) / self.determinant
        return share * gap, unit**2 / ratio + share**2 * line
