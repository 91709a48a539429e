"""Exact log evidences of the models of fields_second.py: filters, banded factors and quadratures.

Where persons are independent given the items, their effects are summed on a grid, and the items and
hyperparameters, some tens of them, are integrated by importance sampling with a stated error.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numba import njit
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_expit, logsumexp
from scipy.stats import gamma, invgamma, norm

from benchmarks.models.fields_second import (
    ITEMS,
    LENGTH,
    SEASON,
    SECOND,
    answers,
    curve,
    uneven_times,
)
from benchmarks.truths.fields_filters import POISSON, SHORTEST, STUDENT, by_grid
from benchmarks.truths.fields_first_truth import (
    COARSE,
    FINE,
    Truth,
    data_of,
    log_half_normal,
    log_uniform,
    sharpest_count,
    span_of_counts,
)  # fmt: skip
from benchmarks.truths.fields_quadrature import (
    by_importance,
    curvature,
    on_lattices,
    root_of_inverse,
)

type Density = Callable[[np.ndarray], float]

DRAWS = 20_000


def on_both(at_spacing: Callable[[float], Density], start: list[float]) -> Truth:
    """Sum on two lattices, by a fine and a coarse grid of the field; on finer ones if need be."""
    fine, coarse = at_spacing(FINE), at_spacing(COARSE)
    found = on_lattices(fine, coarse, start, step=1.1, depth=10.5)
    if found[1] > 1e-3:
        return on_lattices(fine, coarse, start, step=0.75, depth=13.0)
    return found


def student_walk(dim: int, seed: int) -> Truth:
    """Grids over two scales and the degrees of freedom."""
    y = data_of(SECOND["student_walk"](dim, seed))
    span = float(y.min()) - 1, float(y.max()) + 1

    def at_spacing(spacing: float) -> Density:
        def log_f(at: np.ndarray) -> float:
            step, noise, nu = np.exp(at)
            noise = max(noise, SHORTEST / y.size)
            prior = log_half_normal(at[0], 1) + log_half_normal(at[1], 1)
            prior += np.log(0.01) + 2 * at[2] - 0.1 * nu
            constant = (
                gammaln((nu + 1) / 2) - gammaln(nu / 2) - np.log(nu * np.pi) / 2 - np.log(noise)
            )
            sharpest = (nu + 1) / nu / noise**2
            field = (1.0, 0.0, step, 0.0, 2.0)
            found = by_grid(STUDENT, y, field, span, sharpest, spacing, (noise, nu))
            return prior + y.size * constant + found

        return log_f

    return on_both(at_spacing, [-1.6, -0.9, 1.4])


def autoregression_poisson(dim: int, seed: int) -> Truth:
    """Grids over the scale and two coefficients."""
    y = data_of(SECOND["autoregression_poisson"](dim, seed))
    span, sharp, factorials = span_of_counts(y), sharpest_count(y), -gammaln(y + 1).sum()
    level = float(np.log(y + 0.5).mean())

    def at_spacing(spacing: float) -> Density:
        def log_f(at: np.ndarray) -> float:
            phi = np.tanh(at[1] / 2)
            # Given the slope, the level is about that of the data: a straight ridge.
            constant = at[0] + (1 - phi) * level
            prior = norm.logpdf(constant) + log_uniform(at[1]) + log_half_normal(at[2], 0.5)
            field = (phi, constant, np.exp(at[2]), 1.0, 1.0)
            return prior + factorials + by_grid(POISSON, y, field, span, sharp, spacing)

        return log_f

    return on_both(at_spacing, [0.0, 2.7, -1.2])


@njit(cache=True)
def season_kalman(y, season, sds, first, slope_start):
    """Log density of a level with a slope and fixed effects of the season, by one filter.

    The state is the level, the slope and the effects; sds are of the level, slope, season, noise.
    """
    size = 2 + season
    mean, var, gain = np.zeros(size), np.zeros((size, size)), np.zeros(size)
    var[0, 0], var[1, 1] = first**2, slope_start**2
    for k in range(2, size):
        var[k, k] = sds[2] ** 2
    total = 0.0
    for t in range(y.size):
        if t > 0:
            # The slope of this step is the start's at first, and has moved since.
            if t > 1:
                var[1, 1] += sds[1] ** 2
            mean[0] += mean[1]
            for k in range(size):
                var[0, k] += var[1, k]
            for k in range(size):
                var[k, 0] += var[k, 1]
            var[0, 0] += sds[0] ** 2
        k = 2 + t % season
        for i in range(size):
            gain[i] = var[i, 0] + var[i, k]
        whole = gain[0] + gain[k] + sds[3] ** 2
        error = y[t] - mean[0] - mean[k]
        total -= 0.5 * (np.log(2 * np.pi * whole) + error**2 / whole)
        for i in range(size):
            mean[i] += gain[i] * error / whole
            for j in range(size):
                var[i, j] -= gain[i] * gain[j] / whole
    return total


def trend_and_season(dim: int, seed: int) -> Truth:
    """Filters over four scales."""
    y = data_of(SECOND["trend_and_season"](dim, seed))

    def log_f(at: np.ndarray) -> float:
        prior = sum(log_half_normal(x, sd) for x, sd in zip(at[:3], (0.5, 0.1, 1), strict=True))
        noise = np.exp(at[3])
        return prior - noise + at[3] + season_kalman(y, SEASON, np.exp(at), 3.0, 0.2)

    return on_lattices(log_f, log_f, [-1.9, -4.5, -0.4, -0.9], step=0.9, depth=12.0)


def process_truth(
    name: str, dim: int, seed: int, log_prior: Density, at: np.ndarray, places: int
) -> Truth:
    """Grids over the length, the scale and the level of an exponential covariance.

    At even places that is an autoregression, some values of which have no data.
    """
    counts = data_of(SECOND[name](dim, seed))
    span, sharp, constant = span_of_counts(counts), sharpest_count(counts), gammaln(counts + 1)
    y, seen = np.zeros(places), np.zeros(places, bool)
    y[at], seen[at] = counts, True

    def at_spacing(spacing: float) -> Density:
        def log_f(x: np.ndarray) -> float:
            ell, eta, mu = np.exp(x[0]), np.exp(x[1]), x[2]
            apart = LENGTH / max(places - 1, 1) / ell
            phi, step = np.exp(-apart), eta * np.sqrt(-np.expm1(-2 * apart))
            field = (phi, mu * (1 - phi), step, mu, eta)
            found = by_grid(POISSON, y, field, span, sharp, spacing, seen=seen)
            return log_prior(x) + norm.logpdf(mu, 0, 2) - constant.sum() + found

        return log_f

    return on_both(at_spacing, [0.5, -0.4, 0.8])


def gaussian_process_counts(dim: int, seed: int) -> Truth:
    """At even places."""

    def log_prior(x: np.ndarray) -> float:
        return invgamma.logpdf(np.exp(x[0]), 3, scale=4) + x[0] + log_half_normal(x[1], 1)

    return process_truth(
        "gaussian_process_counts", dim, seed, log_prior, np.arange(dim - 3), dim - 3
    )


def gaussian_process_whitened(dim: int, seed: int) -> Truth:
    """At uneven places."""

    def log_prior(x: np.ndarray) -> float:
        return gamma.logpdf(np.exp(x[0]), 3) + x[0] - np.exp(x[1]) + x[1]

    return process_truth(
        "gaussian_process_whitened", dim, seed, log_prior, *uneven_times(dim, seed)
    )


def banded_spline(dim: int, seed: int) -> Density:
    """Return the log density of the data of a spline at the logarithms of its scales."""
    data = curve(dim, seed)
    size, n = data.splines, data.y.size
    walk, gram, linear = np.zeros((3, size)), np.zeros((4, size)), np.zeros(size)
    for k, one in enumerate((1.0, -2.0, 1.0)):
        for j, other in enumerate((1.0, -2.0, 1.0)[: k + 1]):
            walk[k - j, j : j + size - 2] += one * other
    for k in range(4):
        np.add.at(linear, data.which[:, k], data.basis[:, k] * data.y)
        for j in range(k + 1):
            np.add.at(gram[k - j], data.which[:, j], data.basis[:, k] * data.basis[:, j])
    squares = data.y @ data.y

    def log_p(at: np.ndarray) -> float:
        tau, noise = np.exp(at)
        whole = gram / noise**2
        whole[:3] += walk / tau**2
        whole[0, :2] += 1.0
        root = cholesky_banded(whole, lower=True)
        rhs = linear / noise**2
        exponent = 0.5 * (rhs @ cho_solve_banded((root, True), rhs) - squares / noise**2)
        log_dets = (size - 2) * at[0] + np.log(root[0]).sum()
        return float(exponent - log_dets - n * (at[1] + 0.5 * np.log(2 * np.pi)))

    return log_p


def penalized_spline(dim: int, seed: int) -> Truth:
    """Banded factors over two scales."""
    log_p = banded_spline(dim, seed)

    def log_f(at: np.ndarray) -> float:
        return log_half_normal(at[0], 0.1) + log_half_normal(at[1], 1) + log_p(at)

    start = [1.5 - 1.5 * np.log(dim), -0.7]
    return on_lattices(log_f, log_f, start, step=0.8)


def covariate_error(dim: int, seed: int) -> Truth:
    """Quadratures of each covariate over five hyperparameters."""
    model = SECOND["covariate_error"](dim, seed)
    y, w = data_of(model, "y"), data_of(model, "w")
    z, weights = np.linspace(-8, 8, 37), norm.pdf(np.linspace(-8, 8, 37)) * 16 / 36
    middle, within = w.mean(axis=1), 0.5 * np.diff(w, axis=1)[:, 0] ** 2
    sign = 2.0 * y - 1

    def log_f(at: np.ndarray) -> float:
        a, b, mean, spread, error = *at[:3], *np.exp(at[3:])
        prior = norm.logpdf(at[:3], 0, 2).sum()
        prior += log_half_normal(at[3], 2) + log_half_normal(at[4], 1)
        # The two measurements: their mean, and their difference.
        whole = spread**2 + error**2 / 2
        log_p = norm.logpdf(middle, mean, np.sqrt(whole)) - 0.5 * within / error**2
        log_p -= 0.5 * np.log(4 * np.pi) + at[4]
        var = 1 / (1 / spread**2 + 2 / error**2)
        center = var * (mean / spread**2 + 2 * middle / error**2)
        x = center[:, None] + np.sqrt(var) * z
        log_p += np.log(expit(sign[:, None] * (a + b * x)) @ weights)
        return float(prior + log_p.sum())

    return on_lattices(log_f, log_f, [-0.3, 1.1, 0.5, 0.2, -0.4], step=1.1, depth=11.5)


def by_items(
    log_f: Density, start: np.ndarray, rng: np.random.Generator, draws: int,
    positive: Sequence[int] = (), root: np.ndarray | None = None,
) -> tuple[Truth, np.ndarray, np.ndarray]:  # fmt: skip
    """Integrate by importance sampling from a law around the mode, and return mode and root too.

    The density must be smooth where arguments said to be positive are negative; that part of it is
    no part of the integral.
    """
    spot = minimize(lambda x: -log_f(x), start, method="BFGS", options={"gtol": 0.05}).x
    spot[list(positive)] = np.abs(spot[list(positive)])
    for _ in range(2 if root is None else 1):
        root = 0.03 * np.eye(spot.size) if root is None else root
        root = root @ root_of_inverse(curvature(log_f, spot, root, 0.7))

    def cut(x: np.ndarray) -> float:
        return log_f(x) if np.all(x[list(positive)] > 0) else -1e300

    return by_importance(cut, spot, root, rng, draws, freedom=10.0 + spot.size), spot, root


def over_scale(
    log_f: Callable[[np.ndarray, float], float], start: np.ndarray, log_scale: float,
    rng: np.random.Generator, draws: int, positive: Sequence[int], step: float = 0.16,
) -> Truth:  # fmt: skip
    """Integrate over the logarithm of a scale by equal steps, from the middle outwards."""
    found: dict[int, Truth] = {}
    for way in (1, -1):
        spot, root = start, None
        for k in range(0 if way == 1 else -1, 40 * way, way):
            at = log_scale + k * step
            found[k], spot, root = by_items(
                lambda x, at=at: log_f(x, at), spot, rng, draws, positive, root
            )
            if found[k][0] < max(value for value, _ in found.values()) - 7:
                break
    values = np.array([value for value, _ in found.values()])
    log_z = logsumexp(values)
    error = np.sqrt(np.sum((np.exp(values - log_z) * [e for _, e in found.values()]) ** 2))
    return float(log_z + np.log(step)), float(error)


def log_answers(dim: int, seed: int, angles: int = 15) -> Callable[[np.ndarray, float], float]:
    """Log density of the answers of crossed_bernoulli, persons summed out, with all priors.

    The arguments are the two fixed effects, the persons' scales, the log odds of the correlation,
    the items' effects, and the logarithm of the items' scale. Scales of persons that may be zero
    have no long tail here, as their logarithms would have.
    """
    data = answers(dim, seed)
    node, weight = np.polynomial.hermite_e.hermegauss(angles)
    z = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 2)
    log_w = np.log(np.outer(weight, weight).ravel() / (2 * np.pi))
    kept = log_w > -20
    z, log_w = z[kept], log_w[kept]
    where = np.zeros((2, 2, data.persons, data.items))
    np.add.at(where, (data.second, data.y, data.person, data.item), 1)
    flat = where.transpose(2, 0, 1, 3).reshape(data.persons, -1)

    def log_f(at: np.ndarray, log_spread: float) -> float:
        sd, rho, v = at[2:4], np.tanh(at[4] / 2), at[5:]
        prior = norm.logpdf(at[:2], 0, 1.5).sum() - np.abs(sd).sum()
        # On correlations of two effects the law of Lewandowski and others is 3 / 4 (1 - rho^2).
        prior += np.log(1.5) + np.log1p(-(rho**2)) + log_uniform(at[4])
        prior += log_half_normal(log_spread, 1) + norm.logpdf(v, 0, np.exp(log_spread)).sum()
        u0 = sd[0] * z[:, 0]
        u1 = sd[1] * (rho * z[:, 0] + np.sqrt(1 - rho**2) * z[:, 1])
        eta = np.stack([at[0] + u0 + x * (at[1] + u1) for x in (-0.5, 0.5)])
        eta = eta[:, None, :] + v[:, None]
        table = np.stack([log_expit(-eta), log_expit(eta)], axis=1).reshape(-1, z.shape[0])
        return float(prior + logsumexp(flat @ table + log_w, axis=1).sum())

    return log_f


def crossed_bernoulli(dim: int, seed: int) -> Truth:
    """Sums over persons, importance sampling of the rest."""
    data = answers(dim, seed)
    start, rng = np.r_[0.4, 0.8, 1.0, 0.6, 0.0, np.zeros(data.items)], np.random.default_rng(seed)
    return over_scale(log_answers(dim, seed), start, -0.4, rng, DRAWS // 4, (2, 3))


def log_responses(dim: int, seed: int, space: float = 0.3) -> Callable[[np.ndarray, float], float]:
    """Log density of item_response with all priors, persons summed out.

    The arguments are the logarithms of the slopes, the intercepts (minus slope times difficulty)
    and the center of the difficulties; and the logarithm of their spread.
    """
    y = data_of(SECOND["item_response"](dim, seed)).astype(float)
    items = y.shape[1]
    theta = np.arange(-7, 7 + space / 2, space)
    log_w = norm.logpdf(theta) + np.log(space)

    def log_f(at: np.ndarray, log_spread: float) -> float:
        a, c, center = np.exp(at[:items]), at[items : 2 * items], at[-1]
        prior = norm.logpdf(at[:items], 0, 0.5).sum() + norm.logpdf(center)
        # The element of the intercept is the slope times that of the difficulty.
        prior += norm.logpdf(-c / a, center, np.exp(log_spread)).sum() - at[:items].sum()
        prior += log_half_normal(log_spread, 1.5)
        none = log_expit(-a * theta[:, None] - c).sum(axis=1)
        log_p = np.outer(y @ a, theta) + (y @ c)[:, None] + none + log_w
        return float(prior + logsumexp(log_p, axis=1).sum())

    return log_f


def item_response(dim: int, seed: int) -> Truth:
    """Sums over persons, importance sampling of the rest."""
    items = data_of(SECOND["item_response"](dim, seed)).shape[1]
    log_f, rng = log_responses(dim, seed), np.random.default_rng(seed)
    if items < ITEMS:
        # The joint density has no mode, for the spread of few items may be zero.
        return over_scale(log_f, np.zeros(2 * items + 1), 0.0, rng, DRAWS // 5, (), 0.4)
    start = np.zeros(2 * items + 2)
    return by_items(lambda x: log_f(x[:-1], x[-1]), start, rng, 2 * DRAWS)[0]


SECOND_TRUTHS: dict[str, Callable[[int, int], Truth]] = {
    law.__name__: law
    for law in (
        student_walk, autoregression_poisson, trend_and_season, gaussian_process_counts,
        gaussian_process_whitened, crossed_bernoulli, item_response, penalized_spline,
        covariate_error,
    )
}  # fmt: skip
"""Truths of the second half."""
