"""Whether the chains of one run agree: a test of homogeneity, and a search for equal chains."""

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.core.cycles import FloatArray

ROUNDING = 1e-10
"""Error of any estimate by rounding, relative to its size and at least to one nat."""


def homogeneity_pvalue(estimate: FloatArray, error: FloatArray, df: FloatArray) -> float:
    """Test whether independent estimates with estimated errors have one mean.

    The chi-square statistic sum((estimate - weighted mean)^2 / error^2), referred to the F
    distribution with Welch's (1951) correction for errors that are themselves estimated; with
    ``df`` to infinity it is the plain chi-square test with C - 1 degrees of freedom. The inverse
    variances weight the *test* alone, never an estimate.

    Parameters
    ----------
    estimate, error : ndarray, shape (C,)
        One estimate a chain, and its standard error (nats); those with an error that is not
        positive and finite are left out.
    df : ndarray, shape (C,)
        Degrees of freedom of each error: the effective number of tours less one.

    Returns
    -------
    float
        p-value; 1.0 where fewer than two chains can be compared.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence import homogeneity_pvalue
    >>> error, df = np.array([0.1, 0.1, 0.1]), np.array([50.0, 50.0, 50.0])
    >>> round(homogeneity_pvalue(np.array([1.0, 1.05, 0.9]), error, df), 2)
    0.56
    >>> homogeneity_pvalue(np.array([1.0, 1.0, 3.0]), error, df) < 1e-3
    True
    """
    from scipy.special import fdtrc  # scipy.stats takes half a second to import

    usable = np.isfinite(estimate) & np.isfinite(error) & (error > 0.0)
    if usable.sum() < 2:
        return 1.0
    value, df = estimate[usable], np.maximum(df[usable], 1.0)
    rounding = ROUNDING * np.maximum(np.abs(value), 1.0)
    weight = np.maximum(error[usable], rounding) ** -2.0
    n, share = value.size, weight / weight.sum()
    chi2 = float(np.sum(weight * (value - np.sum(share * value)) ** 2))
    spread = float(np.sum((1.0 - share) ** 2 / df))
    f_stat = chi2 / (n - 1) / (1.0 + 2.0 * (n - 2) / (n**2 - 1) * spread)
    return float(fdtrc(n - 1, (n**2 - 1) / (3.0 * spread), f_stat))


def identical_chains(rb_weight: FloatArray) -> list[list[int]]:
    """Return the groups of chains whose sums of ``rb_weight`` (chain, draw, K) are equal.

    Independent chains never agree to the last bit. Equal ones had the same seed or state.
    """
    sums = rb_weight.sum(axis=1)
    _, inverse = np.unique(sums, axis=0, return_inverse=True)
    label: NDArray[np.intp] = inverse.reshape(-1)
    groups = [np.flatnonzero(label == which) for which in range(int(label.max()) + 1)]
    return [group.tolist() for group in groups if group.size > 1]
