"""Gradients in warped coordinates against differences of the log density of u."""

import numpy as np
import pytest

from pymc_tempering.references.warp import FunnelWarp, warped_scores


def funnel(seed=0):
    """A warp with all kinds of rows: centered or not, falling, bounded, with warped regressors."""
    rng = np.random.default_rng(seed)
    kinds = [  # index, scale, gamma, bounded, centered, falls, regressors
        (2, 0, 1.0, 0.0, 1.0, 0.0, (3, 0)),
        (4, 0, 1.0, 0.0, 1.0, 0.0, (2, 3)),
        (5, 1, 0.5, 1.0, 0.0, 1.0, (4, 2)),
        (6, 1, -0.5, 0.0, 0.0, 0.0, (3, 5)),
    ]
    index, scale, gamma, bounded, centered, falls, regressors = (
        np.array(column) for column in zip(*kinds, strict=True)
    )
    n = len(kinds)
    prior_mean, likelihood_mean = rng.normal(size=(2, n, 3))
    prior_mean[0, 2] = likelihood_mean[0, 2] = 0.0  # the place of no regressor
    return FunnelWarp(
        index, scale, gamma, bounded, centered, falls, *(0.5 * rng.normal(size=(3, n))),
        regressors, prior_mean, likelihood_mean,
    )  # fmt: skip


def log_density(xs):
    """Some smooth log density of x, and its gradient."""
    a = np.linspace(0.5, 2.0, xs.shape[1])
    value = -0.5 * (a * xs**2).sum(axis=1) + np.sin(xs[:, 0] * xs[:, 4]) + 0.3 * xs[:, 1]
    slope = -a * xs
    slope[:, 0] += xs[:, 4] * np.cos(xs[:, 0] * xs[:, 4])
    slope[:, 4] += xs[:, 0] * np.cos(xs[:, 0] * xs[:, 4])
    slope[:, 1] += 0.3
    return value, slope


def of_u(warp, us):
    xs = warp.inverse(us)
    return log_density(xs)[0] - warp.forward(xs)[1]


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_the_slopes_of_the_density_of_u(seed):
    warp = funnel(seed)
    xs = np.random.default_rng(seed).normal(size=(6, 7))
    us, scores = warped_scores(warp, xs, log_density(xs)[1])
    np.testing.assert_allclose(us, warp.forward(xs)[0], rtol=1e-12)
    step = 1e-5
    for j in range(7):
        up, down = us.copy(), us.copy()
        up[:, j] += step
        down[:, j] -= step
        slope = (of_u(warp, up) - of_u(warp, down)) / (2 * step)
        np.testing.assert_allclose(scores[:, j], slope, rtol=2e-5, atol=2e-5)


def test_the_determinant_counts():
    """The planted bug: the gradient of log p(x) alone, carried over to u."""
    warp = funnel()
    xs = np.random.default_rng(1).normal(size=(4, 7))
    _, right = warped_scores(warp, xs, log_density(xs)[1])
    flat = warped_scores(warp, xs, np.zeros_like(xs))[1]
    assert np.abs(flat[:, :2]).max() > 0.1  # a flat density of x is none of u
    assert np.abs(right - flat).max() > 0.1
