"""Log evidence of models whose hidden part sums out: filters, nodes, and importance sampling."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp
from scipy.stats import invgamma, multivariate_t, norm, t

from benchmarks.truths.real_models_exact import exponential, over_scales

STAGES = 8
"""Rounds in which the proposal learns."""
LEARNING = 20_000
"""Draws of each round, at most."""
EFFECTIVE = 10.0
"""Effective draws for each dimension from which it learns at least; weights are tempered for it."""

type Values = Callable[[np.ndarray], np.ndarray]


def by_importance(
    smooth: Values,
    start: np.ndarray,
    n: int,
    noisy: Values | None = None,
    held: tuple[int, ...] = (),
    seed: int = 1,
) -> tuple[float, float]:
    """Integrate exp of a function over R^d by draws of a t, with a standard error.

    The t lies around the mode at first, and takes mean and covariance of weighted draws, round by
    round; weights that are too uneven for it are tempered.

    Parameters
    ----------
    smooth : callable
        Log of the integrand at points (n, d), for the mode and the covariance.
    noisy : callable, optional
        Log of an unbiased estimate of the integrand, which takes its place in the sum.
    held : tuple of int, optional
        Coordinates that stay at `start` while the mode is sought: scales of effects that can all be
        zero, where the density has no bound.
    """
    free = np.setdiff1d(np.arange(start.size), held)

    def down(x: np.ndarray) -> float:
        return -float(smooth(x[None])[0])

    def of_free(z: np.ndarray) -> float:
        return down(_with(start, free, z))

    rng = np.random.default_rng(seed)
    mean = _with(start, free, minimize(of_free, start[free], method="BFGS").x)
    scale = np.linalg.inv(_curvature(down, mean))
    for _ in range(STAGES):
        x, log_w = _weigh(smooth, mean, scale, min(n // 4, LEARNING), rng)
        w = _tempered(log_w, EFFECTIVE * start.size)
        mean = w @ x
        scale = (w[:, None] * (x - mean)).T @ (x - mean)
    _, log_w = _weigh(noisy or smooth, mean, scale, n, rng)
    log_z = float(logsumexp(log_w) - np.log(n))
    return log_z, float(np.exp(log_w - log_z).std() / np.sqrt(n))


def _with(x: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return a copy with some coordinates changed."""
    x = x.copy()
    x[at] = values
    return x


def _tempered(log_w: np.ndarray, least: float) -> np.ndarray:
    """Return normalized weights to the largest power of 1, 1/2, ... with enough effective draws."""
    power = 1.0
    while True:
        w = np.exp(power * log_w - logsumexp(power * log_w))
        if 1.0 / (w**2).sum() >= least or power < 1e-3:
            return w
        power /= 2.0


def _weigh(
    values: Values, mean: np.ndarray, scale: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a t, wider and with fewer degrees of freedom in few dimensions; log weights."""
    dim = mean.size
    law = multivariate_t(mean, (1.0 + 2.0 / dim) * scale, df=4.0 + dim / 2.0, seed=rng)
    x = law.rvs(n).reshape(n, -1)
    return x, values(x) - law.logpdf(x)


def _curvature(f: Callable[[np.ndarray], float], x: np.ndarray, h: float = 1e-3) -> np.ndarray:
    """Matrix of second derivatives by central differences."""
    steps = h * np.eye(x.size)
    return np.array(
        [
            [
                (f(x + a + b) - f(x + a - b) - f(x - a + b) + f(x - a - b)) / (4 * h**2)
                for b in steps
            ]
            for a in steps
        ]
    )


def poisson_with_effects(
    X: np.ndarray, counts: np.ndarray, slope_sd: float, scale_sd: float
) -> tuple[float, float]:
    """Integrate a Poisson regression with a normal effect of each row, one row at a time.

    The effects are summed over a fine grid of standard normal values, the slopes and the log of
    the effects' scale by importance sampling.
    """
    nodes = np.linspace(-8.0, 8.0, 201)
    log_node = norm.logpdf(nodes) + np.log(nodes[1] - nodes[0])

    def block(points: np.ndarray) -> np.ndarray:
        b, log_s = points[:, :-1], points[:, -1]
        log_rate = (b @ X.T)[..., None] + np.exp(log_s)[:, None, None] * nodes
        log_p = counts[:, None] * log_rate - np.exp(np.minimum(log_rate, 50.0))
        log_p = logsumexp(log_p + log_node, axis=2).sum(axis=1) - gammaln(counts + 1.0).sum()
        prior = norm.logpdf(b, 0, slope_sd).sum(axis=1)
        return log_p + prior + np.log(2) + norm.logpdf(np.exp(log_s), 0, scale_sd) + log_s

    def values(points: np.ndarray) -> np.ndarray:
        parts = np.array_split(points, len(points) // 200 + 1)
        return np.concatenate([block(part) for part in parts])

    start = np.r_[np.log(counts.mean()), np.zeros(X.shape[1] - 1), np.log(0.5)]
    return by_importance(values, start, 40_000)


def random_walk_volatility(y: np.ndarray) -> tuple[float, float]:
    """Integrate returns whose log scale walks: by a filter on a grid, step and nu by quadrature."""

    def log_joint(step: float, nu: float) -> float:
        gap = min(step / 1.5, 0.1)  # the trapezoidal rule is nearly exact for normal moves
        h = np.arange(-11.0, 3.0, gap)
        move = norm.pdf(h[:, None], h, step) * gap
        seen = t.logpdf(y[:, None], nu, scale=np.exp(h))
        log_p, weight = 0.0, norm.pdf(h, -4, 2) * gap
        for i, row in enumerate(seen):
            weight = (move @ weight if i else weight) * np.exp(row - row.max())
            log_p += row.max() + np.log(weight.sum())
            weight /= weight.sum()
        return float(log_p + exponential(step, 10.0) + exponential(nu, 0.1))

    return over_scales(log_joint, [(0.025, 1.0), (0.7, 200.0)], 32)


def item_responses(y: np.ndarray) -> tuple[float, float]:
    """Integrate `irt`: persons one by one over a grid, the items by importance sampling.

    Parameters
    ----------
    y : array, shape (item, person)
        Zeros and ones.
    """
    items = y.shape[0]
    nodes = np.linspace(-7.0, 7.0, 57)
    log_node = norm.logpdf(nodes) + np.log(nodes[1] - nodes[0])

    def log_half_cauchy(log_x: np.ndarray) -> np.ndarray:
        """With scale 2, as a density of the log."""
        return np.log(1.0 / np.pi) - np.log1p(np.exp(2.0 * log_x) / 4.0) + log_x

    def block(points: np.ndarray) -> np.ndarray:
        (log_theta, log_a_sd, log_b_sd, mean), slopes, places = (
            points[:, :4].T, points[:, 4 : 4 + items], points[:, 4 + items :],
        )  # fmt: skip
        theta = np.exp(log_theta)[:, None] * nodes
        eta = np.exp(slopes)[:, None] * (theta[..., None] - places[:, None])
        log_p = eta @ y - np.logaddexp(0.0, eta).sum(axis=2)[..., None]
        log_p = logsumexp(log_p + log_node[:, None], axis=1).sum(axis=1)
        scales = sum(map(log_half_cauchy, (log_theta, log_a_sd, log_b_sd)))
        log_slopes = norm.logpdf(slopes, 0, np.exp(log_a_sd)[:, None]).sum(axis=1)
        log_places = norm.logpdf(places, mean[:, None], np.exp(log_b_sd)[:, None]).sum(axis=1)
        return log_p + scales + log_slopes + log_places + norm.logpdf(mean, 0, 5)

    def values(points: np.ndarray) -> np.ndarray:
        parts = np.array_split(points, len(points) // 100 + 1)
        return np.concatenate([block(part) for part in parts])

    start = np.r_[0.0, -0.7, 0.0, np.zeros(1 + 2 * items)]
    return by_importance(values, start, 200_000, held=(1, 2))


def poisson_field(x: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Integrate counts whose log rate is a level and a Gaussian process.

    Both the values and the two parameters of the process are summed by importance sampling.
    """
    rng = np.random.default_rng(1)
    square = (x[:, None] - x) ** 2

    def at(point: np.ndarray, n: int) -> float:
        kernel = np.exp(2.0 * point[1] - 0.5 * square / np.exp(2.0 * point[0]))
        K = kernel + 1e-6 * np.eye(x.size) + 4.0  # as PyMC stabilizes it; the level has sd 2
        height = np.log(2) + norm.logpdf(np.exp(point[1]), 0, 2)
        prior = invgamma.logpdf(np.exp(point[0]), 5, scale=5) + height + point.sum()
        return float(prior + counts_of_field(K, counts, n, rng))

    return by_importance(
        lambda points: np.array([at(point, 0) for point in points]),
        np.zeros(2),
        4000,
        noisy=lambda points: np.array([at(point, 40) for point in points]),
    )


def counts_of_field(
    K: np.ndarray,
    counts: np.ndarray,
    n: int,
    rng: np.random.Generator,
    exposed: np.ndarray | float = 1.0,
) -> float:
    """Log probability of Poisson counts given the covariance of their log rates.

    By `n` draws of Laplace's normal, or by its formula where `n` is 0 (Rasmussen & Williams 2006,
    algorithm 3.1). Counts are of rates times what is `exposed`.
    """
    exposed, one = np.broadcast_to(exposed, counts.shape), np.eye(counts.size)
    g = np.full(counts.size, np.log(counts.sum() / exposed.sum()))
    for _ in range(60):
        w, old = exposed * np.exp(np.minimum(g, 300.0)), g
        s = np.sqrt(w)
        right = w * g + counts - w
        inner = one + s[:, None] * K * s
        g = K @ (right - s * np.linalg.solve(inner, s * (K @ right)))
        if np.abs(g - old).max() < 1e-9:
            break
    s = np.sqrt(exposed) * np.exp(0.5 * g)
    inner = one + s[:, None] * K * s
    root = np.linalg.cholesky(K - (K * s) @ np.linalg.solve(inner, s[:, None] * K) + 1e-12 * one)
    low = np.linalg.cholesky(K)
    z = rng.normal(size=(n, counts.size)) if n else np.zeros((1, counts.size))
    values = g + z @ root.T
    log_p = counts * (values + np.log(exposed)) - exposed * np.exp(values) - gammaln(counts + 1.0)
    log_p = log_p.sum(axis=1)
    log_p -= 0.5 * (np.linalg.solve(low, values.T) ** 2).sum(axis=0)
    log_p += 0.5 * (z**2).sum(axis=1) + np.log(np.diag(root)).sum() - np.log(np.diag(low)).sum()
    return float(logsumexp(log_p) - np.log(len(values)))
