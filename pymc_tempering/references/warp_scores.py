"""Scores in warped coordinates: gradients of a log density of x, carried over to that of u(x)."""

import numpy as np

from pymc_tempering.references.warp import FunnelWarp, log_scale


def warped_scores(
    warp: FunnelWarp, xs: np.ndarray, slopes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Warp states, and the gradients there.

    Parameters
    ----------
    warp : FunnelWarp
    xs, slopes : array, shape (n, d)
        States, and gradients of a log density of x at them.

    Returns
    -------
    us, scores : array, shape (n, d)
        Warped states, and gradients along u of the log density of u, `log p(x) - log |du / dx|`.
    """
    us = xs.copy()
    scores = slopes.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        s = log_scale(xs[:, warp.scale], warp.gamma, warp.bounded)
        prior, likelihood = warp.precisions(s)
        precision, decay = prior + likelihood, np.exp(-warp.falls * s)
        others = xs[:, warp.regressors]
        a, b = (
            np.einsum("nwr,wr->nw", others, mean[:, 1:]) + mean[:, 0]
            for mean in (warp.prior_mean, warp.likelihood_mean)
        )
        w, rest = likelihood / precision, prior / precision
        root = np.sqrt(precision)
        us[:, warp.index] = (xs[:, warp.index] - rest * a - w * decay * b) * root
        by_x = _slope_of_log_scale(warp, xs)
        widening = np.exp(warp.log_kappa + 2.0 * s)
        of_log_v = 2.0 * widening / (np.exp(warp.log_v) + widening) - 2.0 * warp.falls
        # Slopes by s of w, of the mean, and of the log of the root of the precision.
        w_slope = w * rest * (2.0 * warp.centered - of_log_v)
        mean_slope = w_slope * (decay * b - a) - warp.falls * w * decay * b
        log_slope = -(rest * warp.centered + 0.5 * w * of_log_v)
        # x_i = mean + u_i / root, row after row: from the last row back to the first.
        for k in range(len(warp.index) - 1, -1, -1):
            i, t = warp.index[k], warp.scale[k]
            own = scores[:, i].copy()
            for r, j in enumerate(warp.regressors[k]):
                along = rest[:, k] * warp.prior_mean[k, 1 + r]
                along = along + w[:, k] * decay[:, k] * warp.likelihood_mean[k, 1 + r]
                scores[:, j] += own * along
            of_spread = own * us[:, i] / root[:, k] + 1.0  # and of the determinant
            scores[:, t] += by_x[:, k] * (own * mean_slope[:, k] - of_spread * log_slope[:, k])
            scores[:, i] = own / root[:, k]
    return us, scores


def _slope_of_log_scale(warp: FunnelWarp, xs: np.ndarray) -> np.ndarray:
    """Slope of s along its scale coordinate, shape (n, W)."""
    bounded = warp.gamma / (1.0 + np.exp(xs[:, warp.scale]))
    return np.where(warp.bounded > 0, bounded, warp.gamma)
