"""References for densities over arrays: uniform bits, the marginals of data, any product law."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.weighting import effective_number, log_mean_error
from pymc_tempering.exceptions import ArgumentError

N_CHECK = 2000
"""Draws with which a reference's normalization is checked, as many for a fit before."""

MIN_CHECK_ESS = 100.0
"""Effective number of weights below which the check of a normalization says nothing."""

MAX_CHECK_Z, MIN_FAULT = 5.0, 0.01
"""Standard errors, and nats, by which log of the integral may differ from 0."""

MAX_VALUES = 50
"""Different values of a coordinate up to which it is taken for discrete, if these are whole."""


@dataclass(frozen=True, eq=False)
class BernoulliReference:
    """Independent bits: a normalized law that can be drawn from exactly.

    Parameters
    ----------
    probabilities : array, shape (d,)
        Chance of a one at each place, above 0 and below 1.

    Raises
    ------
    ArgumentError
        They are not between 0 and 1: no such law is normalized with every state possible.

    Examples
    --------
    >>> reference = pmt.arrays.BernoulliReference(np.full(3, 0.5))
    >>> bits = reference.draw(2, np.random.default_rng(1))
    >>> bits.shape, bits.dtype.name
    ((2, 3), 'float32')
    >>> reference.log_density(bits).round(4).tolist()
    [-2.0794, -2.0794]
    """

    probabilities: np.ndarray

    def __post_init__(self) -> None:
        p = np.array(self.probabilities, dtype=float)
        if p.ndim != 1 or p.size == 0 or not np.all((p > 0.0) & (p < 1.0)):
            raise ArgumentError(
                "probabilities of a product of bits must be a vector of numbers above 0 and below "
                "1, so that the law is normalized and leaves no state out; marginals of data need "
                "some smoothing (data_marginals does it)."
            )
        object.__setattr__(self, "probabilities", p)

    @property
    def log_odds(self) -> np.ndarray:
        """Log p / (1 - p), shape (d,)."""
        return np.log(self.probabilities) - np.log1p(-self.probabilities)

    @property
    def log_none(self) -> float:
        """Log probability of all zeros, in nats."""
        return float(np.log1p(-self.probabilities).sum())

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return n draws of zeros and ones, float32 of shape (n, d)."""
        shape = (n, self.probabilities.size)
        p = self.probabilities.astype(np.float32)
        return (rng.random(shape, dtype=np.float32) < p).astype(np.float32)

    def log_density(self, states: np.ndarray) -> np.ndarray:
        """Return the log probability of states (n, d), shape (n,), in nats."""
        return np.asarray(states @ self.log_odds + self.log_none)


def uniform_bits(dim: int) -> BernoulliReference:
    """Return the law of independent fair coins.

    Parameters
    ----------
    dim : int
        Number of coins.

    Returns
    -------
    BernoulliReference

    Examples
    --------
    >>> float(pmt.arrays.uniform_bits(2).log_none.__round__(4))
    -1.3863
    """
    return BernoulliReference(np.full(dim, 0.5))


def data_marginals(data: np.ndarray, *, smoothing: float = 0.5) -> BernoulliReference:
    """Return the product of the marginals of binary data.

    The choice of Salakhutdinov & Murray (2008) for RBMs: at beta = 0 the visible units have the
    means of the data.

    Parameters
    ----------
    data : array, shape (n, d)
        Zeros and ones, or numbers between.
    smoothing : float, default 0.5
        Ones and zeros that are added to the counts of each place; above 0.

    Returns
    -------
    BernoulliReference

    Raises
    ------
    ArgumentError
        The data are no matrix of numbers from 0 to 1.

    Examples
    --------
    >>> law = pmt.arrays.data_marginals(np.array([[1, 0], [1, 1], [0, 0]]))
    >>> law.probabilities.tolist()
    [0.625, 0.375]
    """
    data = np.asarray(data)
    if data.ndim != 2 or len(data) == 0 or not np.all((data >= 0) & (data <= 1)):
        raise ArgumentError(
            f"data must be a matrix of numbers from 0 to 1, one row a state; its shape is "
            f"{data.shape}."
        )
    if not smoothing > 0.0:
        raise ArgumentError(f"smoothing must be above 0, not {smoothing!r}.")
    total = data.sum(axis=0, dtype=float) + smoothing
    return BernoulliReference(total / (len(data) + 2.0 * smoothing))


def normalization_fault(
    draw: Callable[[int, np.random.Generator], np.ndarray],
    log_density: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> str:
    """Say that a reference is not normalized, or not the law of its draws; empty if neither shows.

    For any normalized u, E[u(x) / p(x)] = 1 over draws x of p. As u serves the product of the
    draws' own marginals, from other draws. Where that is far from p its weights are uneven, and
    nothing can be said.
    """
    fit, held = draw(N_CHECK, rng), draw(N_CHECK, rng)
    values = np.asarray(log_density(held), dtype=float)
    if values.shape != (N_CHECK,) or not np.isfinite(values).all():
        return (
            f"log_reference must be {N_CHECK} finite numbers at {N_CHECK} draws of the reference, "
            f"and has shape {values.shape}."
        )
    log_w = _product_law(fit.reshape(N_CHECK, -1), held.reshape(N_CHECK, -1)) - values
    if effective_number(log_w) < MIN_CHECK_ESS:
        return ""
    off = float(logsumexp(log_w) - np.log(N_CHECK))
    if abs(off) <= max(MIN_FAULT, MAX_CHECK_Z * log_mean_error(log_w)):
        return ""
    return (
        f"The reference is not normalized, or reference_draw draws from another law: by its draws "
        f"the integral of exp(log_reference) is {np.exp(-off):.3g} in place of 1. log Z would be "
        "off by the logarithm of that."
    )


def _product_law(fit: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Log density at ``held`` of the product of the marginals of ``fit``; both are (n, d)."""
    total = np.zeros(len(held))
    for own, other in zip(fit.T, held.T, strict=True):
        known, counts = np.unique(own, return_counts=True)
        if len(known) <= MAX_VALUES and np.array_equal(known, np.rint(known)):
            place = np.minimum(np.searchsorted(known, other), len(known) - 1)
            share = np.where(known[place] == other, counts[place] / len(own), 0.0)
            with np.errstate(divide="ignore"):
                total += np.log(share)
        else:
            mean, sd = own.mean(), own.std()
            total -= 0.5 * ((other - mean) / sd) ** 2 + np.log(sd) + 0.5 * np.log(2 * np.pi)
    return total
