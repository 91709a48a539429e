"""Exact moments of sums of tempered Dirichlet probabilities, for log C(T) of mixtures."""

import numpy as np
from scipy import fft
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

# Orders of a power that are told apart, as a multiple of N. Those above are counted with the ones
# below: sums of terms of at most N, whose mean is N, exceed 20 N with a chance of 1 / 20!.
MOST_ORDERS = 20
# From this N and K a on, the saddle point is off by less than 0.01 nats: about 0.1 / (K a).
MANY, CONCENTRATED = 1 << 14, 20.0
ONE_BY_ONE, PANEL, POINTS = 2048, 1.15, 8


def log_tempered_moment(concentration: float, size: int, power: int, inv_temp: float) -> float:
    """Return log E[(sum_k p_k^(1/T))^N] for p ~ Dirichlet(a, ..., a) of K elements, in nats.

    By the multinomial theorem it is N! Gamma(K a) / Gamma(K a + N s) times the coefficient of
    order N in the K-th power of sum_n Gamma(a + n s) / (Gamma(a) n!) t^n, with s = 1/T. The series
    is tilted exponentially, which makes order N the mean of the power, so that nothing under- or
    overflows. The power is taken by an FFT; where N and K a are large, by the saddle point, in
    O(log N).

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
    by_saddle_point = power >= MANY and size * concentration >= CONCENTRATED
    orders, log_weights = _few_orders(power) if by_saddle_point else (np.arange(power + 1), 0.0)
    log_series = gammaln(concentration + orders * inv_temp) - gammaln(concentration)
    log_series += log_weights - gammaln(orders + 1.0)

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
    if by_saddle_point:
        variance = float((orders - power / size) ** 2 @ np.exp(logits - log_scale))
        log_coefficient = -0.5 * np.log(2.0 * np.pi * size * variance)
    else:
        n_orders = fft.next_fast_len(min(size, MOST_ORDERS) * power + 1, real=True)
        transform = fft.rfft(np.exp(logits - log_scale), n_orders)
        log_coefficient = np.log(fft.irfft(transform**size, n_orders)[power])
    total = size * concentration
    return float(
        log_coefficient + size * log_scale - tilt * power
        + gammaln(power + 1.0) + gammaln(total) - gammaln(total + power * inv_temp)
    )  # fmt: skip


def _few_orders(power: int) -> tuple[np.ndarray, np.ndarray]:
    """Return orders and log weights that sum a smooth series from order 0 to `power`.

    One by one first; then Gauss-Legendre points on panels that grow geometrically.
    """
    first = min(ONE_BY_ONE, power + 1)
    n_panels = max(1, int(np.ceil(np.log((power + 0.5) / (first - 0.5)) / np.log(PANEL))))
    edges = np.geomspace(first - 0.5, power + 0.5, n_panels + 1)
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    half, middle = 0.5 * np.diff(edges)[:, None], 0.5 * (edges[1:] + edges[:-1])[:, None]
    tail, log_weights = (middle + half * nodes).ravel(), np.log(half * weights).ravel()
    return np.concatenate([np.arange(first), tail]), np.concatenate([np.zeros(first), log_weights])
