"""Equation (23) of Carlson et al. (2016), written anew: weights of particles as Riemann sums."""

import numpy as np


def riemann_log_weights(betas, log_ratio):
    """Sum of (beta_k - beta_k-1) log_ratio(x_k) over the steps of each path."""
    return np.sum(np.diff(betas) * log_ratio, axis=-1)
