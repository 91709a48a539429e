"""The sums over past updates from which a tracker computes its lag, drift, bias and error."""

from dataclasses import dataclass

import numpy as np


def next_past(past: "Past", ends: np.ndarray, alpha: float, log_z: float) -> "Past":
    """Add an update: its RTS estimate, and q of each chain at beta = 0 and 1, shape (2, n)."""
    share = ends / ends.mean(axis=1, keepdims=True)
    noise = share[1] - share[0]  # by how much each chain moves log(c_K / c_1), to first order
    bias = 0.5 * (variance_of_mean(share[0] - 1.0) - variance_of_mean(share[1] - 1.0))
    return Past(
        past.n_updates + 1,
        past.start,
        past.fast.add(alpha, log_z, noise),
        past.slow.add(0.5 * alpha, log_z, noise),
        (1.0 - alpha) * past.bias + alpha * bias,
    )


def no_past(log_z: float, n_chains: int) -> "Past":
    """Return the past before the first update."""
    nothing = Mean(1.0, 0.0, 0.0, np.zeros(n_chains))
    return Past(0, log_z, nothing, nothing, 0.0)


def variance_of_mean(noise: np.ndarray) -> float:
    """Return the variance of the mean over chains, of noise that has mean 0."""
    return float(np.sum(noise**2) / (noise.size * max(noise.size - 1, 1)))


@dataclass(frozen=True)
class Mean:
    """Weighted sums over the updates; each update shrinks the earlier ones by its share.

    `left` is the weight of the start, before any update. `value` sums the RTS estimates at
    beta = 1, `age` the number of updates since each, and `noise`, shape (chains,), the effect of
    each chain on them.
    """

    left: float
    value: float
    age: float
    noise: np.ndarray

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return self.noise.size

    def add(self, share: float, value: float, noise: np.ndarray) -> "Mean":
        """Return the sums with one more update in them."""
        keep = 1.0 - share
        return Mean(
            keep * self.left,
            keep * self.value + share * value,
            keep * (self.age + 1.0 - self.left),
            keep * self.noise + share * noise,
        )

    def normalized(self) -> "Mean":
        """Return means over the updates."""
        done = 1.0 - self.left
        return Mean(self.left, self.value / done, self.age / done, self.noise / done)


@dataclass(frozen=True)
class Past:
    """Log Z at the start, the sums over updates with full and with half shares, and the bias."""

    n_updates: int
    start: float
    fast: Mean
    slow: Mean
    bias: float
