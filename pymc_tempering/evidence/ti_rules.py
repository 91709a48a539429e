"""Rules of integration over beta: from means and variances of log_ratio to log Z.

The trapezoid with second moments is that of Friel, Hurn & Wyse (2014), "Improving power posterior
estimation of statistical evidence".
"""

from collections.abc import Callable

import numpy as np
from scipy.integrate import cumulative_simpson

from pymc_tempering.core.cycles import FloatArray


def _riemann(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.tril(np.append(0.0, np.diff(betas))), np.zeros((betas.size, betas.size))


def _left_riemann(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.tril(np.append(np.diff(betas), 0.0), -1), np.zeros((betas.size, betas.size))


def _trapezoid(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    return 0.5 * (_riemann(betas)[0] + _left_riemann(betas)[0]), np.zeros((betas.size, betas.size))


def _corrected(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    square = np.diff(betas) ** 2 / 12.0
    upper = np.tril(np.append(0.0, square))
    lower = np.tril(np.append(square, 0.0), -1)
    return _trapezoid(betas)[0], lower - upper


def _simpson(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    if betas.size < 3:
        return _trapezoid(betas)
    weights = cumulative_simpson(np.eye(betas.size), x=betas, axis=0, initial=0.0)
    return np.asarray(weights), np.zeros((betas.size, betas.size))


RULES: dict[str, Callable[[FloatArray], tuple[FloatArray, FloatArray]]] = {
    "riemann": _riemann,
    "left_riemann": _left_riemann,
    "trapezoid": _trapezoid,
    "corrected": _corrected,
    "simpson": _simpson,
}
"""Rules of integration, each giving weights (K, K) of the means and of the variances."""


def integrate(rule: str, betas: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Integrate E[log_ratio] from beta = 0 to every rung.

    Parameters
    ----------
    rule : {"riemann", "left_riemann", "trapezoid", "corrected", "simpson"}
        "riemann" takes the mean at the upper end of each interval, as Figure 2 of Carlson et al.
        (2016). The integrand increases, since its derivative is the variance. So this sum is never
        below the integral and "left_riemann" never above. "corrected" is the trapezoid minus
        (beta_{k+1} - beta_k)^2 / 12 times the difference of the variances.
    betas, mean, variance : ndarray, shape (K,)
        Inverse temperatures, and mean and variance of log_ratio there (nats). Where they are NaN, a
        straight line between the neighbors takes their place (section 4.3 of Carlson et al. 2016).

    Returns
    -------
    ndarray, shape (K,)
        log Z_k (nats); NaN where the first or last mean is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence import integrate
    >>> betas = np.array([0.0, 0.5, 1.0])
    >>> integrate("corrected", betas, betas**3, 3 * betas**2)[-1].item()
    0.25
    """
    of_mean, of_variance = RULES[rule](betas)
    known = np.isfinite(mean) & np.isfinite(variance)
    if not (known[0] and known[-1]):
        return np.full(betas.size, np.nan)
    if not known.all():
        mean, variance = (np.interp(betas, betas[known], v[known]) for v in (mean, variance))
    return np.asarray(of_mean @ mean + of_variance @ variance)


ORDERS = {"riemann": 1, "left_riemann": 1, "trapezoid": 2, "corrected": 4, "simpson": 4}
"""The error of a rule falls with this power of the spacing of the rungs."""
