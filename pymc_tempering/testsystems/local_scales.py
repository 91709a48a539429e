"""Normal means with unknown scales, one for all (a funnel) or each its own (a scale mixture)."""

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

# In units of the prior's standard deviation: the variance of x weighs the upper end by exp(v).
V_EDGES = np.linspace(-10.0, 15.0, 301)

# For the half-t prior with more than two degrees of freedom, and lambda^2 times its density.
LOG_LAMBDA_EDGES = np.linspace(-28.0, 40.0, 273)

SCALE_MIXTURE_Y = np.array([0.1, -0.4, 0.7, -0.2, 6.0, -3.5])


def funnel(dim: int = 10, v_sd: float = 3.0) -> TestSystem:
    """Observe Neal's funnel, with data that leave its neck in the posterior.

    ``v ~ Normal(0, v_sd)``, ``x[i] ~ Normal(0, exp(v / 2))``, ``y[i] ~ Normal(x[i], 1)`` with y
    spread evenly over [0, 1]. Given v, all else is Gaussian for every beta; the integral over v is
    done by quadrature. The data are nearer to zero than their noise alone would put them, so they
    bound v above and leave it free below, where x has no room.

    Parameters
    ----------
    dim : int
        Number of dimensions: v and dim - 1 observed x.
    v_sd : float
        Prior standard deviation of v, at most 4.

    Returns
    -------
    TestSystem
        Variables ``v`` (scalar) and ``x`` of shape (dim - 1,); the cdf is that of ``v``. log Z in
        nats.

    Raises
    ------
    ValueError
        If there is no x, or v_sd is not in (0, 4].
    """
    if dim < 2 or not 0.0 < v_sd <= 4.0:
        raise ValueError(f"dim must be 2 or more and v_sd in (0, 4], got {dim} and {v_sd}.")
    y = np.linspace(0.0, 1.0, dim - 1)
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, v_sd)
        x = pm.Normal("x", 0.0, pm.math.exp(0.5 * v), shape=dim - 1)
        pm.Normal("y", x, 1.0, observed=y)

    grid = TemperedGrid(
        Axis(v_sd * V_EDGES),
        ONE_POINT,
        lambda v, _: stats.norm.logpdf(v, 0.0, v_sd),
        lambda beta, v, _: _log_marginal(beta, np.exp(0.5 * v), y).sum(axis=1, keepdims=True),
    )

    def moments(beta: float) -> Moments:
        p, v = grid.probabilities(beta)[:, 0], grid.u
        return {
            "v": total_moments(v[:, 0], np.zeros(p.size), p),
            "x": total_moments(*_conditional(beta, np.exp(0.5 * v), y), p),
        }

    return TestSystem("funnel", model, grid.log_z, moments, grid.cdf, **element("v"))


def scale_mixture(
    y: ArrayLike = SCALE_MIXTURE_Y, nu: float = 3.0, scale: float = 1.0
) -> TestSystem:
    """Shrink normal means by local scales, as the horseshoe does.

    ``lam[i] ~ HalfStudentT(nu, scale)``, ``x[i] ~ Normal(0, lam[i])``, ``y[i] ~ Normal(x[i], 1)``.
    The pairs (lam[i], x[i]) are independent at every beta, and given lam all x are Gaussian: log Z
    is a sum of integrals over log lam[i], done by quadrature. Small y leave the neck of a funnel,
    large ones are in the tail of the prior.

    Parameters
    ----------
    y : array_like of shape (n,)
        Data; the model has 2 n dimensions.
    nu : float
        Degrees of freedom of the half-t prior, more than two: then all variances are finite.
    scale : float
        Its scale.

    Returns
    -------
    TestSystem
        Variables ``lam`` (sampled on the log scale) and ``x``, both of shape (n,); the cdf is that
        of the ``lam`` of the largest absolute y. log Z in nats.

    Raises
    ------
    ValueError
        If y is not a vector of finite numbers, nu is not above two or scale is not positive.
    """
    data = np.asarray(y, dtype=np.float64)
    if data.ndim != 1 or data.size == 0 or not np.isfinite(data).all():
        raise ValueError(f"y must be a vector of finite numbers, got {y!r}.")
    if not nu > 2.0 or not scale > 0.0:
        raise ValueError(f"nu must be above 2 and scale above 0, got {nu} and {scale}.")
    with pm.Model() as model:
        lam = pm.HalfStudentT("lam", nu, scale, shape=data.size)
        x = pm.Normal("x", 0.0, lam, shape=data.size)
        pm.Normal("y", x, 1.0, observed=data)
    axis = Axis(LOG_LAMBDA_EDGES + np.log(scale))
    log_half_t = np.log(2.0) + stats.t.logpdf(np.exp(axis.nodes), nu, scale=scale) + axis.nodes

    def grid_of(own: FloatArray) -> TemperedGrid:
        return TemperedGrid(
            axis,
            ONE_POINT,
            lambda *_: log_half_t[:, None],
            lambda beta, s, _: _log_marginal(beta, np.exp(s), own),
        )

    grids = [grid_of(own) for own in data]

    def moments(beta: float) -> Moments:
        lam, shares = np.exp(axis.nodes), [g.probabilities(beta)[:, 0] for g in grids]
        scales = [total_moments(lam, np.zeros(lam.size), p) for p in shares]
        means = [
            total_moments(*_conditional(beta, lam, own), p)
            for own, p in zip(data, shares, strict=True)
        ]
        return {"lam": _stacked(scales), "x": _stacked(means)}

    def log_z(beta: float) -> float:
        return sum(g.log_z(beta) for g in grids)

    largest = int(np.argmax(np.abs(data)))
    return TestSystem(
        "scale_mixture",
        model,
        log_z,
        moments,
        lambda beta: of_log(grids[largest].cdf(beta)),
        **element("lam", largest),
    )


def _stacked(laws: list[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    mean, variance = np.transpose(laws)
    return mean, variance


def _log_marginal(beta: float, sd: FloatArray, y: FloatArray) -> FloatArray:
    """Log of the prior mean of Normal(y; x, 1)^beta where x ~ Normal(0, sd)."""
    total = 1.0 + beta * sd**2
    return -0.5 * (beta * LOG_2PI + np.log(total) + beta * y**2 / total)


def _conditional(beta: float, sd: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of x given its prior standard deviation."""
    variance = sd**2 / (1.0 + beta * sd**2)
    return beta * variance * y, variance + 0.0 * y
