"""Exact moments of sums of tempered Dirichlet probabilities, for log C(T) of mixtures."""

import numpy as np
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.special import gammaln, logsumexp

# An FFT is off by about 1e-16 of the largest element; below this, convolve term by term.
SMALLEST_BY_FFT = 1e-9


def log_tempered_moment(concentration: float, size: int, power: int, inv_temp: float) -> float:
    """Return log E[(sum_k p_k^(1/T))^N] for p ~ Dirichlet(a, ..., a) of K elements, in nats.

    By the multinomial theorem it is N! Gamma(K a) / Gamma(K a + N s) times the coefficient of
    order N in the K-th power of sum_n Gamma(a + n s) / (Gamma(a) n!) t^n, with s = 1/T. The power
    is taken by repeated squaring of the exponentially tilted series, which makes order N its
    mean, so that nothing under- or overflows. O(N log N log K).

    Parameters
    ----------
    concentration : float
        The Dirichlet's a.
    size : int
        Number K of elements.
    power : int
        N.
    inv_temp : float
        1/T.
    """
    if size == 1 or inv_temp == 1.0:
        return 0.0
    orders = np.arange(power + 1)
    log_series = gammaln(concentration + orders * inv_temp) - gammaln(concentration)
    log_series -= gammaln(orders + 1.0)

    def excess(tilt: float) -> float:
        logits = log_series + tilt * orders
        return float(orders @ np.exp(logits - logsumexp(logits))) - power / size

    low, high = -1.0, 1.0
    while excess(low) > 0.0:
        low *= 2.0
    while excess(high) < 0.0:
        high *= 2.0
    tilt = brentq(excess, low, high, xtol=1e-10)
    logits = log_series + tilt * orders
    log_scale = logsumexp(logits)
    coefficient = _power_at_end(np.exp(logits - log_scale), size)
    total = size * concentration
    return float(
        np.log(coefficient) + size * log_scale - tilt * power
        + gammaln(power + 1.0) + gammaln(total) - gammaln(total + power * inv_temp)
    )  # fmt: skip


def _power_at_end(series: np.ndarray, exponent: int) -> float:
    """Return the last element of a series' convolution power, truncated to its length."""
    value = float(_power(series, exponent, fftconvolve)[-1])
    if value > SMALLEST_BY_FFT:
        return value
    return float(_power(series, exponent, np.convolve)[-1])


def _power(series, exponent, convolve):  # type: ignore[no-untyped-def]
    result, square, size = None, series, len(series)
    while True:
        if exponent & 1:
            result = square if result is None else convolve(result, square)[:size]
        exponent >>= 1
        if not exponent:
            return result
        square = np.maximum(convolve(square, square)[:size], 0.0)
