"""A restricted Boltzmann machine as a density over arrays: energies, block Gibbs, exact log Z.

`rbm.py`, `rbm_training.py` and the page "An RBM's log Z while it trains" import it; copy it into a
project of yours.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.arrays import ArrayDensity

MAX_ENUMERATED = 20
"""Units of the smaller layer up to which log Z is summed over all of its states."""

BLOCK = 1 << 12
"""States of an enumeration that are summed at a time."""


def softplus(z: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(z)) of any numbers, in their own type."""
    return np.asarray(np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))))


def draw_bits(
    logits: np.ndarray, rng: np.random.Generator, out: np.ndarray | None = None
) -> np.ndarray:
    """Draw zeros and ones with the given log odds, float32, into ``out``; the logits are spoilt.

    u (1 + exp(-z)) < 1 in place of u < 1 / (1 + exp(-z)), with no array between.
    """
    uniform = rng.random(logits.shape, dtype=np.float32)
    np.negative(logits, out=logits)
    with np.errstate(over="ignore", invalid="ignore"):  # exp(-z) is infinite: the bit is 0
        np.exp(logits, out=logits)
        logits += 1
        logits *= uniform
    bits = np.empty(logits.shape, np.float32) if out is None else out
    return np.less(logits, 1, out=bits)


@dataclass(frozen=True, eq=False)
class BernoulliReference:
    """Independent bits: a normalized law that can be drawn from exactly.

    `probabilities`, shape (d,), are the chances of a one at each place, above 0 and below 1.
    """

    probabilities: np.ndarray

    def __post_init__(self) -> None:
        p = np.array(self.probabilities, dtype=float)
        if p.ndim != 1 or p.size == 0 or not np.all((p > 0.0) & (p < 1.0)):
            raise ValueError(
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


def data_marginals(data: np.ndarray, *, smoothing: float = 0.5) -> BernoulliReference:
    """Return the product of the marginals of binary data.

    The choice of Salakhutdinov & Murray (2008) for RBMs: at beta = 0 the visible units have the
    means of the data.

    `data`, shape (n, d), are zeros and ones, or numbers between; `smoothing` ones and zeros are
    added to the counts of each place.
    """
    data = np.asarray(data)
    if data.ndim != 2 or len(data) == 0 or not np.all((data >= 0) & (data <= 1)):
        raise ValueError(
            f"data must be a matrix of numbers from 0 to 1, one row a state; its shape is "
            f"{data.shape}."
        )
    if not smoothing > 0.0:
        raise ValueError(f"smoothing must be above 0, not {smoothing!r}.")
    total = data.sum(axis=0, dtype=float) + smoothing
    return BernoulliReference(total / (len(data) + 2.0 * smoothing))


@dataclass(frozen=True, eq=False)
class RBM:
    """A restricted Boltzmann machine of bits v (M) and h (J).

    log f(v, h) = v'a + v'W h + h'b.

    Parameters
    ----------
    weights : array, shape (M, J)
    visible_bias : array, shape (M,)
    hidden_bias : array, shape (J,)

    Raises
    ------
    ValueError
        The shapes do not fit together, or numbers are not finite.

    Notes
    -----
    All is kept and computed in float32, as training does. Carlson et al. (2016), section 4.2.
    """

    weights: np.ndarray
    visible_bias: np.ndarray
    hidden_bias: np.ndarray

    def __post_init__(self) -> None:
        for name in ("weights", "visible_bias", "hidden_bias"):
            value = np.ascontiguousarray(getattr(self, name), dtype=np.float32)
            if not np.isfinite(value).all():
                raise ValueError(f"{name} of an RBM must be finite numbers.")
            object.__setattr__(self, name, value)
        shapes = self.visible_bias.shape, self.hidden_bias.shape
        if self.weights.ndim != 2 or shapes != tuple((n,) for n in self.weights.shape):
            raise ValueError(
                f"weights have shape {self.weights.shape}, which needs visible_bias "
                f"and hidden_bias of its two lengths, not {shapes[0]} and {shapes[1]}."
            )

    @property
    def n_visible(self) -> int:
        """Number of visible units M."""
        return self.visible_bias.size

    @property
    def n_hidden(self) -> int:
        """Number of hidden units J."""
        return self.hidden_bias.size

    def log_joint(self, states: np.ndarray) -> np.ndarray:
        """Return log f(v, h) of states (n, M + J), v first, shape (n,), in nats."""
        v, h = states[:, : self.n_visible], states[:, self.n_visible :]
        field = h @ self.weights.T
        field += self.visible_bias
        return np.asarray(np.einsum("ij,ij->i", v, field) + h @ self.hidden_bias)

    def log_marginal(self, v: np.ndarray) -> np.ndarray:
        """Return log f(v) = v'a + sum_j softplus(b_j + (v'W)_j) of bits (n, M), in nats."""
        v = np.asarray(v, dtype=np.float32)
        inside = softplus(v @ self.weights + self.hidden_bias)
        return np.asarray((v @ self.visible_bias).astype(float) + inside.sum(axis=1, dtype=float))

    def log_likelihood(self, v: np.ndarray, log_z: float) -> float:
        """Return the mean of log p(v) over bits (n, M), in nats."""
        return float(np.mean(self.log_marginal(v)) - log_z)

    def hidden_means(self, v: np.ndarray) -> np.ndarray:
        """Return the means of h given v (n, M), shape (n, J)."""
        logits = v @ self.weights + self.hidden_bias
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * logits))

    def draw_hidden(self, v: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw h given v, shape (n, J)."""
        return draw_bits(v @ self.weights + self.hidden_bias, rng)

    def draw_visible(self, h: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw v given h, shape (n, M)."""
        return draw_bits(h @ self.weights.T + self.visible_bias, rng)

    def complete(self, v: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw h for bits v (n, M): whole states (n, M + J), and log f(v) (n,), in nats."""
        v = np.asarray(v, dtype=np.float32)
        return np.concatenate([v, self.draw_hidden(v, rng)], axis=1), self.log_marginal(v)

    def exact_log_z(self) -> float:
        """Return log Z in nats, summed over all states of the smaller layer.

        Raises
        ------
        ValueError
            Both layers have more than 20 units.
        """
        weights, own, other = self.weights.T.astype(float), self.hidden_bias, self.visible_bias
        if self.n_visible < self.n_hidden:
            weights, own, other = weights.T, other, own
        if own.size > MAX_ENUMERATED:
            raise ValueError(
                f"log Z by enumeration needs a layer of at most {MAX_ENUMERATED} units, and the "
                f"smaller one has {own.size}: temper the machine's density instead."
            )
        total, numbers = [], np.arange(2**own.size)
        for part in np.array_split(numbers, max(1, numbers.size // BLOCK)):
            bits = (part[:, None] >> np.arange(own.size) & 1).astype(float)
            total.append(logsumexp(bits @ own + softplus(bits @ weights + other).sum(axis=1)))
        return float(logsumexp(total))

    def density(self, reference: BernoulliReference | None = None) -> ArrayDensity:
        """Return the density of (v, h), with its block Gibbs sweep, over a reference.

        Parameters
        ----------
        reference : BernoulliReference, optional
            Of v, for instance the marginals of data; h are fair coins. By default v are, too.

        Returns
        -------
        ArrayDensity
            States are float32 of shape (n, M + J). ``move`` draws h, then v. This is not its own
            reversal, which draws v, then h.

        Raises
        ------
        ValueError
            The reference has another number of bits.
        """
        law = reference or BernoulliReference(np.full(self.n_visible, 0.5))
        if law.probabilities.size != self.n_visible:
            raise ValueError(
                f"the reference has {law.probabilities.size} bits, the machine {self.n_visible}."
            )
        path = RBMPath(self, law)
        return ArrayDensity(
            path.reference_draw,
            path.log_ratio,
            path.move,
            path.reverse_move,
            log_reference=path.log_reference,
        )


@dataclass(frozen=True, eq=False)
class RBMPath:
    """The path from a product law over (v, h) to a machine, as an ``ArrayDensity`` needs it.

    At beta the logits of v are beta (a + W h) + (1 - beta) a_0 with the log odds a_0 of the
    reference, and those of h are beta (b + W'v).

    Attributes
    ----------
    rbm : RBM
    reference : BernoulliReference
        Of v.
    """

    rbm: RBM
    reference: BernoulliReference

    @cached_property
    def _odds(self) -> np.ndarray:
        return self.reference.log_odds.astype(np.float32)

    @cached_property
    def _tilt(self) -> np.ndarray:
        """A - a_0, by which the log odds of v change along the path, beside those from h."""
        return (self.rbm.visible_bias - self.reference.log_odds).astype(np.float32)

    @cached_property
    def _none(self) -> float:
        """Log p_1 of all zeros."""
        return self.reference.log_none - self.rbm.n_hidden * float(np.log(2.0))

    def _halves(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return states[:, : self.rbm.n_visible], states[:, self.rbm.n_visible :]

    def reference_draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw v from the reference and h from fair coins, shape (n, M + J)."""
        coins = (rng.random((n, self.rbm.n_hidden), dtype=np.float32) < 0.5).astype(np.float32)
        return np.concatenate([self.reference.draw(n, rng), coins], axis=1)

    def log_reference(self, states: np.ndarray) -> np.ndarray:
        """Return log p_1 of states, in nats."""
        return np.asarray(self._halves(states)[0] @ self.reference.log_odds + self._none)

    def log_ratio(self, states: np.ndarray) -> np.ndarray:
        """Return log f - log p_1 of states, in nats."""
        v, h = self._halves(states)
        return self._ratio(v, h, h @ self.rbm.weights.T + self._tilt)

    def _ratio(self, v: np.ndarray, h: np.ndarray, field: np.ndarray) -> np.ndarray:
        """Log ratio by the ``field`` W h + a - a_0 on v."""
        return np.asarray(np.einsum("ij,ij->i", v, field) + h @ self.rbm.hidden_bias - self._none)

    def move(
        self, states: np.ndarray, beta: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw h given v at beta, then v given h; return the states and their log_ratio."""
        rbm, beta = self.rbm, beta[:, None]
        new = np.empty_like(states)
        v, h = self._halves(new)
        on_h = self._halves(states)[0] @ rbm.weights
        on_h += rbm.hidden_bias
        on_h *= beta
        draw_bits(on_h, rng, h)
        field = h @ rbm.weights.T
        field += self._tilt
        self._draw_visible(field, beta, rng, v)
        return new, self._ratio(v, h, field)

    def reverse_move(
        self, states: np.ndarray, beta: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw v given h at beta, then h given v: the reversal of ``move`` in time."""
        rbm, beta = self.rbm, beta[:, None]
        new = np.empty_like(states)
        v, h = self._halves(new)
        field = self._halves(states)[1] @ rbm.weights.T
        field += self._tilt
        self._draw_visible(field, beta, rng, v)
        on_h = v @ rbm.weights
        on_h += rbm.hidden_bias
        draw_bits(on_h * beta, rng, h)
        return new, np.einsum("ij,ij->i", h, on_h) + v @ self._tilt - self._none

    def _draw_visible(
        self, field: np.ndarray, beta: np.ndarray, rng: np.random.Generator, out: np.ndarray
    ) -> None:
        logits = field * beta
        logits += self._odds
        draw_bits(logits, rng, out)
