"""Digamma, log gamma, exp and log without branches: compiled loops over them use vectors."""

import numpy as np
from numba import float64

from pymc_tempering.model.jit import njit

LOG2_E, LN2 = 1.4426950408889634, 0.6931471805599453
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # their sum is LN2, to 86 bits
ROUND = 6755399441055744.0  # 1.5 * 2^52: a number added to it is rounded to a whole one
ONE_BITS = 1023 << 52
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
HALF_LOG_2_PI = 0.9189385332046727
LOWEST = -708.0
"""Below this, exp is 0: its result would be subnormal."""


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def exp(x):  # type: ignore[no-untyped-def]
    """Return exp(x) for x up to 709, to about 1e-15 relatively; 0 below -708."""
    shifted = x * LOG2_E + ROUND
    power = shifted - ROUND
    r = (x - power * LN2_HIGH) - power * LN2_LOW
    p = 1.0 / 39916800 + r / 479001600
    p = 1.0 / 362880 + r * (1.0 / 3628800 + r * p)
    p = 1.0 / 5040 + r * (1.0 / 40320 + r * p)
    p = 1.0 / 120 + r * (1.0 / 720 + r * p)
    p = 1.0 / 6 + r * (1.0 / 24 + r * p)
    p = 1.0 + r * (1.0 + r * (0.5 + r * p))
    value = p * np.int64((np.float64(shifted).view(np.int64) << 52) + ONE_BITS).view(np.float64)
    return 0.0 if x < LOWEST else value


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def log(x):  # type: ignore[no-untyped-def]
    """Return log(x) for normal x > 0, to about 1e-15 of the larger of 1 and its size."""
    bits = np.float64(x).view(np.int64)
    power = (bits - SQRT_HALF_BITS) >> 52
    m = np.int64(bits - (power << 52)).view(np.float64)
    f = (m - 1.0) / (m + 1.0)
    z = f * f
    p = 1.0 / 15 + z * (1.0 / 17 + z / 19.0)
    p = 1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13 + z * p))
    p = 1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * p))
    return power * LN2 + 2.0 * f * (1.0 + z * p)


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def psi(x):  # type: ignore[no-untyped-def]
    """Digamma of x > 0: six steps of its recurrence in one division, then the asymptotic series."""
    a, b, c = x * (x + 5.0), (x + 1.0) * (x + 4.0), (x + 2.0) * (x + 3.0)
    # sum of 1 / (x + i), i = 0 to 5, paired so that each pair has the numerator 2 x + 5
    steps = (2.0 * x + 5.0) * (b * c + a * c + a * b) / (a * b * c)
    y = 1.0 / (x + 6.0)
    z = y * y
    series = 1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760)))
    series = z * (1.0 / 12 - z * (1.0 / 120 - z * series))
    return log(x + 6.0) - 0.5 * y - series - steps


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def log_gamma(x):  # type: ignore[no-untyped-def]
    """Log of the gamma function of 0 < x < 1e50: six steps of its recurrence, then Stirling."""
    product = x * (x + 5.0) * ((x + 1.0) * (x + 4.0)) * ((x + 2.0) * (x + 3.0))
    shifted = x + 6.0
    y = 1.0 / shifted
    z = y * y
    series = 1.0 / 1260 - z * (1.0 / 1680 - z * (1.0 / 1188 - z * (691.0 / 360360)))
    series = y * (1.0 / 12 - z * (1.0 / 360 - z * series))
    return (shifted - 0.5) * log(shifted) - shifted + HALF_LOG_2_PI + series - log(product)
