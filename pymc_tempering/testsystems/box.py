"""Benchmarks of nested sampling with a uniform prior on a box: Gaussian shells and the eggbox."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.polynomial import Chebyshev, legendre
from scipy.special import gammaln

from pymc_tempering.testsystems.gauss_legendre import Axis, TemperedGrid, mean_and_variance
from pymc_tempering.testsystems.system import FloatArray, Moments, TestSystem, element

LOG_2PI = float(np.log(2.0 * np.pi))


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

    return TestSystem(
        name="gaussian_shells",
        model=model,
        dim=dim,
        n_modes=2,
        exact_log_z=grid.log_z,
        exact_moments=moments,
        exact_cdf=grid.cdf,
        statistic=element("x", 0),
        statistic_name="x[0]",
        mode_centers=centers,
        exact_mode_weights=mode_weights,
    )


def eggbox() -> TestSystem:
    """Lay out the eggbox: a grid of equal peaks, some cut by the border of the box.

    ``x ~ Uniform(0, 10 pi)`` in both coordinates and the potential
    (2 + cos(x[0] / 2) cos(x[1] / 2))^5 (Feroz, Hobson & Bridges 2009, MNRAS 398, 1601, section
    6.1; their grid gives log Z = 235.88, a converged quadrature 235.856). Exact by quadrature on
    a grid.

    Returns
    -------
    TestSystem
        Variable ``x`` of shape (2,); the cdf is that of ``x[0]``. log Z in nats.
    """
    side = 10.0 * np.pi
    with pm.Model() as model:
        x = pm.Uniform("x", 0.0, side, shape=2)
        pm.Potential("eggbox", (2.0 + pt.cos(0.5 * x[0]) * pt.cos(0.5 * x[1])) ** 5)
    axis = Axis(np.linspace(0.0, side, 201))
    grid = TemperedGrid(
        axis,
        axis,
        lambda u, v: np.full((u.size, v.size), -2.0 * np.log(side)),
        lambda u, v: (2.0 + np.cos(0.5 * u) * np.cos(0.5 * v)) ** 5,
    )

    def moments(beta: float) -> Moments:
        mean, variance = mean_and_variance(grid.u, grid.probabilities(beta))
        return {"x": (np.full(2, mean), np.full(2, variance))}

    return TestSystem(
        name="eggbox",
        model=model,
        dim=2,
        n_modes=18,
        exact_log_z=grid.log_z,
        exact_moments=moments,
        exact_cdf=grid.cdf,
        statistic=element("x", 0),
        statistic_name="x[0]",
    )


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
        log_likelihood,
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
