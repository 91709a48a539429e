"""Exact log evidences of two conjugate regressions, of many data sets that one of them drew."""

import numpy as np

ROWS, SD = 100, 0.2


def two_regressions(tables, n, *, doubled=False, share=0.5, sd=SD, seed=0):
    """Tables of data sets: the generating models (tables, n), and log evidences (tables, n, 2).

    The first model is noise of scale 1. The second has three coefficients with prior scale `sd`;
    with `doubled` its evidence is computed with twice that.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 3))
    generated = (rng.random(tables * n) < share).astype(int)
    y = rng.normal(size=(tables * n, ROWS))
    y += (generated * rng.normal(0.0, sd, (3, tables * n))).T @ x.T
    # The same as by the covariance of y, up to the density of noise alone, which cancels.
    width = 2.0 * sd if doubled else sd
    precision = np.eye(3) / width**2 + x.T @ x
    gain = np.linalg.solve(np.linalg.cholesky(precision), x.T @ y.T)
    _, size = np.linalg.slogdet(precision * width**2)
    log_bf = 0.5 * np.sum(gain**2, axis=0) - 0.5 * size
    log_z = np.stack([np.zeros(tables * n), log_bf], axis=1)
    return generated.reshape(tables, n), log_z.reshape(tables, n, 2)
