"""Likelihoods with several modes: shells, mixtures of Gaussians, a narrow spike."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.polynomial import Chebyshev, legendre
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp, ndtr

from pymc_tempering.testsystems.system import (
    LOG_2PI,
    ONE_POINT,
    Axis,
    FloatArray,
    Moments,
    TemperedGrid,
    TestSystem,
    element,
    graded_edges,
    mean_and_variance,
    power_of,
)

# Kou, Zhou & Wong (2006), table 1.
TWENTY_MEANS = np.array(
    [
        [2.18, 5.76], [8.67, 9.59], [4.24, 8.48], [8.41, 1.68], [3.93, 8.82],
        [3.25, 3.47], [1.70, 0.50], [4.59, 5.60], [6.91, 5.81], [6.87, 5.40],
        [5.41, 2.65], [2.70, 7.88], [4.98, 3.70], [1.14, 2.39], [8.33, 9.50],
        [4.93, 1.50], [1.83, 0.09], [2.26, 0.31], [5.54, 6.86], [1.69, 8.11],
    ]
)  # fmt: skip


def gaussian_shells(
    dim: int = 2,
    radii: tuple[float, float] = (2.0, 2.0),
    widths: tuple[float, float] = (0.1, 0.1),
    half_distance: float = 3.5,
    half_width: float = 6.0,
) -> TestSystem:
    """Put two Gaussian shells in a box.

    ``x ~ Uniform(-half_width, half_width)`` in each coordinate, and as likelihood the sum of
    two ``circ(x; c, r, w) = exp(-(|x - c| - r)^2 / (2 w^2)) / sqrt(2 pi w^2)`` with centers at
    -half_distance and +half_distance on the first axis (Feroz, Hobson & Bridges 2009, MNRAS
    398, 1601, section 6.2, who give log Z = -1.75, -5.67, -14.59, -36.09 and -60.13 in 2, 5, 10,
    20 and 30 dimensions). The likelihood
    depends on x[0] and on the length rho of the rest, whose density under the uniform prior
    follows from a recursion over dimensions; a 2-D quadrature is then exact for every beta.

    Parameters
    ----------
    dim : int
        Number of dimensions, at least 2.
    radii, widths : tuple of two floats
        Of the shell on the negative and on the positive side.
    half_distance : float
        Distance of the centers from the origin.
    half_width : float
        Half the side of the box.

    Returns
    -------
    TestSystem
        Variable ``x`` of shape (dim,); the cdf is that of ``x[0]``. log Z in nats.

    Raises
    ------
    ValueError
        If `dim` is below 2.
    """
    if dim < 2:
        raise ValueError(f"shells need dim >= 2, got {dim}.")
    centers = np.zeros((2, dim))
    centers[:, 0] = -half_distance, half_distance
    with pm.Model() as model:
        x = pm.Uniform("x", -half_width, half_width, shape=dim)
        distance = pt.sqrt(((x[None, :] - centers) ** 2).sum(axis=1))
        deviation = (distance - np.array(radii)) / np.array(widths)
        pm.Potential(
            "shells",
            pt.logsumexp(-0.5 * deviation**2 - np.log(np.array(widths))) - 0.5 * LOG_2PI,
        )

    def log_shell(side: int, u: FloatArray, rho: FloatArray) -> FloatArray:
        deviation = np.hypot(u - centers[side, 0], rho) - radii[side]
        constant = -np.log(widths[side]) - 0.5 * LOG_2PI
        return constant - 0.5 * (deviation / widths[side]) ** 2

    grid = _cylinder_grid(
        dim - 1,
        half_width,
        min(widths),
        lambda u, rho: np.logaddexp(log_shell(0, u, rho), log_shell(1, u, rho)),
    )

    def moments(beta: float) -> Moments:
        p = grid.probabilities(beta)
        mean, variance = np.zeros(dim), np.full(dim, float(np.sum(grid.v**2 * p)) / (dim - 1))
        mean[0], variance[0] = mean_and_variance(grid.u, p)
        return {"x": (mean, variance)}

    def mode_weights() -> FloatArray:
        excess = log_shell(0, grid.u, grid.v) - log_shell(1, grid.u, grid.v)
        second = float(np.sum(grid.probabilities(1.0) / (1.0 + np.exp(np.minimum(excess, 700.0)))))
        return np.array([1.0 - second, second])

    modes = {"n_modes": 2, "mode_centers": centers, "exact_mode_weights": mode_weights}
    return _on_grid("gaussian_shells", model, grid, moments, **modes)


def _on_grid(
    name: str,
    model: pm.Model,
    grid: TemperedGrid,
    moments: Callable[[float], Moments],
    **more: Any,
) -> TestSystem:
    """System whose statistic, by default x[0], is the first coordinate of its grid."""
    return TestSystem(name, model, grid.log_z, moments, grid.cdf, **element("x", 0) | more)


def _cylinder_grid(
    m: int,
    half_width: float,
    panel: float,
    log_likelihood: Callable[[FloatArray, FloatArray], FloatArray],
) -> TemperedGrid:
    """Grid over x[0] and the length rho of the `m` other coordinates, uniform in the box.

    `panel` is the width that the panels have at most.
    """

    def log_prior(u: FloatArray, rho: FloatArray) -> FloatArray:
        scaled = rho / half_width
        log_rho = np.log(2.0 * scaled / half_width * _sum_of_squares_density(m)(scaled**2))
        return np.broadcast_to(log_rho - np.log(2.0 * half_width), (u.size, rho.size))

    # The density of rho has a kink wherever rho^2 is a multiple of half_width^2.
    kinks = half_width * np.sqrt(np.arange(m + 1))
    closing_in = 0.5 * panel * 0.2 ** np.arange(5)
    pieces = [
        np.append(np.linspace(a, b, int(np.ceil((b - a) / panel)) + 1)[:-1], a + closing_in)
        for a, b in pairwise(kinks)
    ]
    return TemperedGrid(
        Axis(np.linspace(-half_width, half_width, 2 * int(np.ceil(half_width / panel)) + 1)),
        Axis(np.unique(np.append(np.concatenate(pieces), kinks[-1]))),
        log_prior,
        power_of(log_likelihood),
    )


@cache
def _sum_of_squares_density(m: int) -> Callable[[FloatArray], FloatArray]:
    """Density of s, the sum of squares of m uniforms on (0, 1), at s in (0, m).

    p_1 = 1 / (2 sqrt(s)), p_2 = pi/4 - [s > 1] arctan(sqrt(s - 1)), and then
    p_m(s) = int_0^1 p_{m-1}(s - t^2) dt. Between integers p_m is analytic in
    v = sqrt(s - floor(s)), and is kept as a Chebyshev series in v.
    """
    if m == 1:
        return lambda s: 0.5 / np.sqrt(s)
    degree = 40
    pieces = [
        Chebyshev([np.pi / 4.0], domain=[0.0, 1.0]),
        Chebyshev.interpolate(lambda v: np.pi / 4.0 - np.arctan(v), degree, domain=[0.0, 1.0]),
    ]
    for _ in range(3, m + 1):
        pieces = _add_square(pieces, degree)

    def density(s: FloatArray) -> FloatArray:
        # A series has absolute accuracy only. That is not enough near zero, where there is a
        # closed form. Near m it may be negative, but no mass is there.
        ball = np.exp(0.5 * m * np.log(np.pi / 4.0) - gammaln(0.5 * m)) * s ** (0.5 * m - 1.0)
        return np.where(s < 1.0, ball, np.maximum(_evaluate(pieces, s), 1e-300))

    return density


def _add_square(pieces: list[Chebyshev], degree: int) -> list[Chebyshev]:
    nodes, weights = legendre.leggauss(degree)
    nodes, weights = 0.5 * (nodes[:, None] + 1.0), 0.5 * weights

    def piece(k: int) -> Chebyshev:
        def at(v: FloatArray) -> FloatArray:
            # At s = k + v^2, s - t^2 falls below k at t = v. On both sides t is taken to an
            # angle in which w = sqrt(s - t^2 - floor(s - t^2)) is analytic and dt = w d(angle).
            total = np.zeros_like(v)
            if k < len(pieces):
                w = v * np.cos(0.5 * np.pi * nodes)
                total += 0.5 * np.pi * (weights @ (pieces[k](w) * w))
            if k > 0:
                lower, upper = np.arctan(v), 0.5 * np.pi - np.arctan(v)
                w = np.sqrt(1.0 + v**2) * np.sin(lower + (upper - lower) * nodes)
                total += (upper - lower) * (weights @ (pieces[k - 1](w) * w))
            return total

        return Chebyshev.interpolate(at, degree, domain=[0.0, 1.0])

    return [piece(k) for k in range(len(pieces) + 1)]


def _evaluate(pieces: list[Chebyshev], s: FloatArray) -> FloatArray:
    which = np.clip(np.floor(s).astype(int), 0, len(pieces) - 1)
    v = np.sqrt(np.clip(s - which, 0.0, 1.0))
    return np.select([which == k for k in range(len(pieces))], [p(v) for p in pieces])


def gaussian_mixture(
    dim: int = 10,
    weights: Sequence[float] = (0.65, 0.35),
    separation: float = 12.0,
    scale: float | Sequence[float] = 0.5,
    positions: Sequence[float] | None = None,
    prior_sd: float = 5.0,
) -> TestSystem:
    """Multiply a Gaussian prior by a mixture of isotropic Gaussians on one line.

    ``x ~ Normal(m, prior_sd)`` and the potential log sum_i v_i N(x; mu_i, scale_i^2 I), with
    all means on a line of an oblique direction through the prior mean m. The v_i, which add
    up to one, are such that `weights` are the posterior's shares of the modes: with
    N_i = N(mu_i; m, (prior_sd^2 + scale_i^2) I), v_i is proportional to weights_i / N_i, and

        log Z(1) = log sum_i v_i N_i.

    A power of a sum has no closed form. But log likelihood depends only on the position t
    along the line and on the distance r from it, of which the prior is a Gaussian times a
    chi density, so that a 2-D quadrature is exact for every beta and dimension.

    Parameters
    ----------
    dim : int
        Number of dimensions.
    weights : sequence of float
        Posterior probability of each mode at beta = 1; scaled to add up to one.
    separation : float
        Distance between neighboring means, in units of the largest scale.
    scale : float or sequence of float
        Standard deviation of each component.
    positions : sequence of float, optional
        Signed distances of the means from the prior mean; takes the place of `separation`. By
        default evenly spaced, and about off-center by a tenth of their range.
    prior_sd : float
        Prior standard deviation in each dimension.

    Returns
    -------
    TestSystem
        Variable ``x`` of shape (dim,); the cdf is that of the position along the line. log Z
        in nats.

    Raises
    ------
    ValueError
        If a weight or scale is not positive or the lengths differ.
    """
    shares = np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum()
    scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), shares.shape)
    if positions is None:
        steps = np.arange(shares.size) - 0.4 * (shares.size - 1)
        positions_ = steps * separation * scales.max()
    else:
        positions_ = np.asarray(positions, dtype=np.float64)
    if positions_.shape != shares.shape or min(shares.min(), scales.min()) <= 0.0:
        raise ValueError("weights and scales must be positive, and positions one per weight.")
    return _collinear("gaussian_mixture", dim, shares, positions_, scales, prior_sd)


def spike(
    dim: int = 4,
    share: float = 0.9,
    spike_scale: float = 0.05,
    broad_scale: float = 1.0,
    separation: float = 3.0,
    prior_sd: float = 3.0,
) -> TestSystem:
    """Put a narrow spike that holds most of the evidence beside a broad component.

    A two-component `gaussian_mixture`. Below beta of about
    1 - log(share / (1 - share)) / (dim * log(broad_scale / spike_scale)) the broad component
    dominates, above it the spike, with nothing in between: a first-order transition, which no
    ladder makes easy, because the log likelihood has two separate values there.

    Parameters
    ----------
    dim : int
        Number of dimensions.
    share : float
        The spike's posterior probability at beta = 1.
    spike_scale, broad_scale : float
        Standard deviations of the two components.
    separation : float
        Distance of the spike from the center of the broad component, in units of
        `broad_scale`.
    prior_sd : float
        Prior standard deviation in each dimension.

    Returns
    -------
    TestSystem
        Variable ``x`` of shape (dim,), modes in the order (broad, spike); the cdf is that of
        the position along the line through both. log Z in nats.

    Raises
    ------
    ValueError
        If `share` is not between 0 and 1.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must be between 0 and 1, got {share}.")
    return _collinear(
        "spike",
        dim,
        np.array([1.0 - share, share]),
        broad_scale * separation * np.array([-0.3, 0.7]),
        np.array([broad_scale, spike_scale]),
        prior_sd,
    )


def twenty_modes(sigma: float = 0.1, weights: ArrayLike | None = None) -> TestSystem:
    """Lay out the classical mixture of twenty Gaussians in the plane.

    ``x ~ Uniform(0, 10)`` in both coordinates and the potential log sum_i w_i N(x; mu_i,
    sigma^2 I) with the means of Kou, Zhou & Wong (2006, Annals of Statistics 34, table 1). Exact
    by quadrature on a grid; at beta = 1 log Z = -log 100 + log of the mass inside of the
    square, which is less than one since a mode lies on its border.

    Parameters
    ----------
    sigma : float
        Standard deviation of each component.
    weights : array_like of shape (20,), optional
        Mixture weights, equal by default; scaled to add up to one.

    Returns
    -------
    TestSystem
        Variable ``x`` of shape (2,); the cdf is that of ``x[0]``. log Z in nats.

    Raises
    ------
    ValueError
        If there are not twenty positive weights.
    """
    mixture = np.full(20, 0.05) if weights is None else np.asarray(weights, dtype=np.float64)
    if mixture.shape != (20,) or mixture.min() <= 0.0:
        raise ValueError("weights must be twenty positive numbers.")
    mixture = mixture / mixture.sum()
    with pm.Model() as model:
        x = pm.Uniform("x", 0.0, 10.0, shape=2)
        pm.Potential("mixture", _log_mixture(x, TWENTY_MEANS, np.full(20, sigma), mixture))

    def log_likelihood(u: FloatArray, v: FloatArray) -> FloatArray:
        squares = ((u - first) ** 2 + (v - second) ** 2 for first, second in TWENTY_MEANS)
        return _log_sum(2, np.log(mixture), np.full(20, sigma), squares)

    axis = Axis(np.linspace(0.0, 10.0, max(int(np.ceil(10.0 / sigma)), 20) + 1))
    grid = TemperedGrid(
        axis, axis, lambda u, v: np.full((u.size, v.size), -np.log(100.0)), power_of(log_likelihood)
    )

    def moments(beta: float) -> Moments:
        p = grid.probabilities(beta)
        pairs = [mean_and_variance(grid.u, p), mean_and_variance(grid.v, p)]
        return {"x": (np.array([m for m, _ in pairs]), np.array([v for _, v in pairs]))}

    def mode_weights() -> FloatArray:
        inside = ndtr((10.0 - TWENTY_MEANS) / sigma) - ndtr(-TWENTY_MEANS / sigma)
        mass = mixture * inside.prod(axis=1)
        return mass / mass.sum()

    modes = {"mode_centers": TWENTY_MEANS.copy(), "exact_mode_weights": mode_weights}
    return _on_grid("twenty_modes", model, grid, moments, n_modes=20, **modes)


def _collinear(
    name: str,
    dim: int,
    shares: FloatArray,
    positions: FloatArray,
    scales: FloatArray,
    prior_sd: float,
) -> TestSystem:
    prior_mean = np.resize([1.0, -2.0, 0.5], dim)
    direction = np.resize([2.0, -1.0, 3.0, 1.0], dim)
    direction = direction / np.linalg.norm(direction)
    means = prior_mean + positions[:, None] * direction
    variances = prior_sd**2 + scales**2
    log_overlaps = -0.5 * dim * (LOG_2PI + np.log(variances)) - 0.5 * positions**2 / variances
    log_mixture = np.log(shares) - log_overlaps
    log_mixture -= logsumexp(log_mixture)
    with pm.Model() as model:
        x = pm.Normal("x", prior_mean, prior_sd, shape=dim)
        pm.Potential("mixture", _log_mixture(x, means, scales, np.exp(log_mixture)))

    grid = _line_grid(dim, log_mixture, positions, scales, prior_sd)

    def moments(beta: float) -> Moments:
        p = grid.probabilities(beta)
        mean, variance = mean_and_variance(grid.u, p)
        across = float(np.sum(grid.v**2 * p)) / max(dim - 1, 1)
        x_variance = variance * direction**2 + across * (1.0 - direction**2)
        return {"x": (prior_mean + mean * direction, x_variance)}

    shrinkage = prior_sd**2 / variances
    return _on_grid(
        name,
        model,
        grid,
        moments,
        n_modes=shares.size,
        statistic=lambda draws: (np.asarray(draws["x"]) - prior_mean) @ direction,
        statistic_name="position along the line through the means",
        mode_centers=prior_mean + (shrinkage * positions)[:, None] * direction,
        exact_mode_weights=shares.copy,
    )


def _line_grid(
    dim: int, log_mixture: FloatArray, positions: FloatArray, scales: FloatArray, prior_sd: float
) -> TemperedGrid:
    """Grid over the position t along the line and the distance r from it."""

    def log_prior(t: FloatArray, r: FloatArray) -> FloatArray:
        along = -0.5 * (t / prior_sd) ** 2 - 0.5 * LOG_2PI - np.log(prior_sd)
        if dim == 1:
            return along
        m = dim - 1
        chi = (m - 1) * np.log(r) - 0.5 * (r / prior_sd) ** 2 - m * np.log(prior_sd)
        return along + chi - (0.5 * m - 1.0) * np.log(2.0) - gammaln(0.5 * m)

    def log_likelihood(t: FloatArray, r: FloatArray) -> FloatArray:
        squares = ((t - position) ** 2 + r**2 for position in positions)
        return _log_sum(dim, log_mixture, scales, squares)

    lower = min(-10.0 * prior_sd, float(np.min(positions - 12.0 * scales)))
    upper = max(10.0 * prior_sd, float(np.max(positions + 12.0 * scales)))
    line, distance = Axis(graded_edges(lower, upper, positions, scales)), ONE_POINT
    if dim > 1:
        distinct, far = np.unique(scales), prior_sd * (np.sqrt(dim) + 10.0)
        distance = Axis(graded_edges(0.0, far, np.zeros(distinct.size), distinct))
    return TemperedGrid(line, distance, log_prior, power_of(log_likelihood))


def _log_sum(
    dim: int, log_weights: FloatArray, scales: FloatArray, squares: Iterable[FloatArray]
) -> FloatArray:
    """Log density of a mixture of isotropic Gaussians at squared distances from their means."""
    total = np.array(-np.inf)
    # A running logaddexp needs no array of all components.
    for log_weight, scale, square in zip(log_weights, scales, squares, strict=True):
        constant = log_weight - 0.5 * dim * (LOG_2PI + 2.0 * np.log(scale))
        total = np.logaddexp(total, constant - 0.5 * square / scale**2)
    return total


def _log_mixture(
    x: pt.TensorVariable, means: FloatArray, scales: FloatArray, weights: FloatArray
) -> pt.TensorVariable:
    constant = np.log(weights) - 0.5 * means.shape[1] * (LOG_2PI + 2.0 * np.log(scales))
    distance = ((x[None, :] - means) ** 2).sum(axis=1)
    return pt.logsumexp(constant - 0.5 * distance / scales**2)
