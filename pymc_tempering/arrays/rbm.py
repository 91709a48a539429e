"""Restricted Boltzmann machines of bits: energies, block Gibbs, exact log Z, and their training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.arrays.array_density import ArrayDensity, BernoulliReference, data_marginals
from pymc_tempering.arrays.array_run import LogWeights, learn_rounds, paper_rule, weights_at
from pymc_tempering.arrays.lockstep import LockstepChains, explore, start_chains
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.tracker import PartitionTracker
from pymc_tempering.exceptions import ArgumentError

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
    ArgumentError
        The shapes do not fit together, or numbers are not finite.

    Notes
    -----
    All is kept and computed in float32, as training does. Carlson et al. (2016), section 4.2.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> rbm = pmt.arrays.RBM(rng.normal(size=(6, 3)), np.zeros(6), np.zeros(3))
    >>> run = pmt.arrays.temper(rbm.density(), 300, chains=100, random_seed=1)
    >>> evidence = run.evidence()
    >>> bool(abs(evidence.log_z - rbm.exact_log_z()) < 4 * evidence.mcse)
    True
    """

    weights: np.ndarray
    visible_bias: np.ndarray
    hidden_bias: np.ndarray

    def __post_init__(self) -> None:
        for name in ("weights", "visible_bias", "hidden_bias"):
            value = np.ascontiguousarray(getattr(self, name), dtype=np.float32)
            if not np.isfinite(value).all():
                raise ArgumentError(f"{name} of an RBM must be finite numbers.")
            object.__setattr__(self, name, value)
        shapes = self.visible_bias.shape, self.hidden_bias.shape
        if self.weights.ndim != 2 or shapes != tuple((n,) for n in self.weights.shape):
            raise ArgumentError(
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
        ArgumentError
            Both layers have more than 20 units.
        """
        weights, own, other = self.weights.T.astype(float), self.hidden_bias, self.visible_bias
        if self.n_visible < self.n_hidden:
            weights, own, other = weights.T, other, own
        if own.size > MAX_ENUMERATED:
            raise ArgumentError(
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
        ArgumentError
            The reference has another number of bits.
        """
        law = reference or BernoulliReference(np.full(self.n_visible, 0.5))
        if law.probabilities.size != self.n_visible:
            raise ArgumentError(
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


METHODS = ("cd", "pcd")
"""Where the states of the model's term begin: at the data, or where the last update left them."""


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """A machine during its training, and what is known of it there.

    Attributes
    ----------
    update : int
        Updates of the parameters so far.
    rbm : RBM
    log_z, mcse : float
        Running log Z and its error, in nats; NaN and infinite where it is not tracked.
    train, validation : float
        Mean log likelihood of the training and of the validation data, in nats; NaN where log Z is
        not tracked or there are no such data.
    """

    update: int
    rbm: RBM
    log_z: float = float("nan")
    mcse: float = float("inf")
    train: float = float("nan")
    validation: float = float("nan")


def first_machine(data: np.ndarray, n_hidden: int, rng: np.random.Generator) -> RBM:
    """Return small random weights, visible biases of the data's marginals, and no hidden ones."""
    weights = 0.01 * rng.standard_normal((data.shape[1], n_hidden))
    return RBM(weights, data_marginals(data).log_odds, np.zeros(n_hidden))


def gradient_of(
    rbm: RBM, data: np.ndarray, v: np.ndarray, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradient of the mean log likelihood: data minus model, by weights and biases.

    Parameters
    ----------
    rbm : RBM
    data : array, shape (n, M)
    v : array, shape (m, M)
        Visible states from the model.
    weight : array, shape (m,), optional
        Their weights, which sum to 1; equal ones by default.
    """
    own = np.full(len(v), 1.0 / len(v)) if weight is None else weight
    own = own.astype(np.float32)[:, None]
    on, off = rbm.hidden_means(data) / np.float32(len(data)), rbm.hidden_means(v) * own
    return (
        data.T @ on - v.T @ off,
        data.mean(axis=0) - (v * own).sum(axis=0),
        on.sum(axis=0) - off.sum(axis=0),
    )


def stepped(rbm: RBM, gradient: tuple[np.ndarray, np.ndarray, np.ndarray], rate: float) -> RBM:
    """Return the machine after a step of gradient ascent."""
    parts = zip((rbm.weights, rbm.visible_bias, rbm.hidden_bias), gradient, strict=True)
    return RBM(*(value + np.float32(rate) * slope for value, slope in parts))


def train(
    rbm: RBM,
    data: np.ndarray,
    n_updates: int,
    *,
    method: str = "cd",
    sweeps: int = 1,
    batch: int = 100,
    rate: float | Callable[[int], float] = 0.05,
    random_seed: int | np.random.Generator | None = None,
) -> RBM:
    """Train an RBM by contrastive divergence, or by persistent chains.

    Parameters
    ----------
    rbm : RBM
        Where to start; ``first_machine`` gives one.
    data : array, shape (n, M)
        Bits, or numbers between, of which bits are drawn anew each time.
    n_updates : int
    method : {"cd", "pcd"}, default "cd"
        "cd" starts its sweeps at the batch of the data (Hinton 2002), "pcd" where those of the
        last update ended (Tieleman 2008).
    sweeps : int, default 1
        Block Gibbs sweeps between updates: the k of CD-k.
    batch : int, default 100
        Rows of each update, and persistent chains.
    rate : float or callable, default 0.05
        Step of the gradient ascent, or a function of the number of the update.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    RBM

    Raises
    ------
    ArgumentError
        The data have another number of columns than the machine has visible units.
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> data = np.repeat(rng.integers(0, 2, size=(100, 1)), 4, axis=1)
    >>> start = pmt.arrays.RBM(0.01 * rng.normal(size=(4, 3)), np.zeros(4), np.zeros(3))
    >>> rbm = pmt.arrays.train(start, data, 500, rate=0.2, random_seed=1)
    >>> before, after = (m.log_likelihood(data, m.exact_log_z()) for m in (start, rbm))
    >>> after > before + 0.5
    True
    """
    check_choice("method", method, METHODS)
    check_whole(1, n_updates=n_updates, sweeps=sweeps, batch=batch)
    rng = np.random.default_rng(random_seed)
    data = checked_bits(data, rbm)
    v = drawn_bits(data[rng.integers(len(data), size=batch)], rng)
    for i in range(n_updates):
        rows = drawn_bits(data[rng.integers(len(data), size=batch)], rng)
        v = rows if method == "cd" else v
        for _ in range(sweeps):
            v = rbm.draw_visible(rbm.draw_hidden(v, rng), rng)
        rbm = stepped(rbm, gradient_of(rbm, rows, v), rate(i) if callable(rate) else rate)
    return rbm


def train_tracked(
    rbm: RBM,
    data: np.ndarray,
    n_updates: int,
    *,
    validation: np.ndarray | None = None,
    reference: BernoulliReference | None = None,
    n_rungs: int = 100,
    chains: int = 200,
    sweeps: int = 10,
    log_weights: LogWeights = None,
    alpha: float = 0.2,
    batch: int = 100,
    rate: float | Callable[[int], float] = 0.02,
    first_rounds: int = 50,
    patience: int | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> Iterator[TrainingStep]:
    """Train an RBM with tempered persistent chains, and follow its log Z (RTS section 4.4).

    Between two updates each chain makes a few sweeps, of its state at its rung and of its rung
    given its state. The states' weights q(beta = 1 | x) make the gradient, all chains included, and
    the states' log ratios update a :class:`PartitionTracker`.

    Parameters
    ----------
    rbm : RBM
        Where to start, after some updates of CD as a rule.
    data : array, shape (n, M)
    n_updates : int
    validation : array, shape (m, M), optional
    reference : BernoulliReference, optional
        Of v at beta = 0; by default the marginals of the data.
    n_rungs : int, default 100
        Inverse temperatures, evenly spaced.
    chains : int, default 200
        The paper has 2,000.
    sweeps : int, default 10
        Between two updates; the paper has 25.
    log_weights : array of shape (K,) or callable, optional
        log r_k; by default 2 beta, the paper's, by which more states count in the gradient.
    alpha : float, default 0.2
        Share of each update of log Z.
    batch : int, default 100
        Rows of the data in each update.
    rate : float or callable, default 0.02
        Step of the gradient ascent, or a function of the number of the update.
    first_rounds : int, default 50
        Initial iterations of 50 sweeps at most, as in section 2.4.
    patience : int, optional
        Stop after so many updates in which the validation likelihood did not improve.
    random_seed : int or numpy.random.Generator, optional

    Yields
    ------
    TrainingStep
        After each update. Its log likelihoods take log Z as tracked, under the parameters with
        which the states were drawn.

    Raises
    ------
    ArgumentError
        Data have another number of columns than the machine has visible units, or ``patience`` is
        given without validation data.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> data = np.repeat(rng.integers(0, 2, size=(100, 1)), 4, axis=1)
    >>> start = pmt.arrays.RBM(0.01 * rng.normal(size=(4, 3)), np.zeros(4), np.zeros(3))
    >>> steps = list(pmt.arrays.train_tracked(start, data, 100, n_rungs=5, random_seed=1))
    >>> bool(abs(steps[-1].log_z - steps[-1].rbm.exact_log_z()) < 0.3)
    True
    """
    check_whole(1, n_updates=n_updates, chains=chains, sweeps=sweeps, batch=batch)
    if patience is not None and validation is None:
        raise ArgumentError("patience asks for validation data, by which training is to stop.")
    rng = np.random.default_rng(random_seed)
    data = checked_bits(data, rbm)
    held = None if validation is None else checked_bits(validation, rbm)
    law = data_marginals(data) if reference is None else reference
    betas = np.linspace(0.0, 1.0, n_rungs)
    ladder = Ladder(betas, np.zeros(n_rungs), weights_at(betas, log_weights or _paper_weights))
    rungs = rng.choice(n_rungs, size=chains, p=np.exp(ladder.log_weights))
    learned = learn_rounds(
        rbm.density(law), ladder, start_chains(rbm.density(law), chains, rungs, rng), rng,
        paper_rule, sweeps=50, max_rounds=first_rounds, redraw=True, ladder_move="gibbs",
    )  # fmt: skip
    tracker = PartitionTracker(betas, learned.ladder.log_z, ladder.log_weights, alpha)
    where, best, since = learned.chains, -np.inf, 0
    for i in range(n_updates):
        tracker, where, table = _between(rbm, law, tracker, where, sweeps, rng)
        step = TrainingStep(
            i, rbm, float(tracker.log_z[-1]), tracker.mcse,
            rbm.log_likelihood(data, tracker.log_z[-1]),
            float("nan") if held is None else rbm.log_likelihood(held, tracker.log_z[-1]),
        )  # fmt: skip
        yield step
        best, since = (step.validation, 0) if step.validation > best else (best, since + 1)
        if patience is not None and since >= patience:
            return
        rows = drawn_bits(data[rng.integers(len(data), size=batch)], rng)
        cold = table[-1] / table[-1].sum()
        gradient = gradient_of(rbm, rows, where.states[:, : rbm.n_visible], cold)
        rbm = stepped(rbm, gradient, rate(i) if callable(rate) else rate)


def _between(
    rbm: RBM,
    law: BernoulliReference,
    tracker: PartitionTracker,
    where: LockstepChains,
    sweeps: int,
    rng: np.random.Generator,
) -> tuple[PartitionTracker, LockstepChains, np.ndarray]:
    """Sweep between two updates; the tracker after it, the chains, and q of the last states."""
    density = rbm.density(law)
    states, rung = where.states, where.rung
    ratios = np.empty((rung.size, sweeps))
    for t in range(sweeps):
        states, ratio = explore(density, tracker.betas, states, rung, rng)
        ratios[:, t] = ratio
        table = tracker.probabilities(ratio)
        rung = tracker.draw_rungs(ratio, rng)
    where = replace(where, states=states, log_ratio=ratio, rung=rung)
    return tracker.update(ratios), where, table


def _paper_weights(betas: np.ndarray) -> np.ndarray:
    return 2.0 * betas


def checked_bits(data: np.ndarray, rbm: RBM) -> np.ndarray:
    """Return data as float32, or an error where they do not fit the machine."""
    rows = np.asarray(data, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != rbm.n_visible or not np.all((rows >= 0) & (rows <= 1)):
        raise ArgumentError(
            f"data must be rows of {rbm.n_visible} numbers from 0 to 1; their shape is "
            f"{rows.shape}."
        )
    return rows


def drawn_bits(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw bits with the given means; bits stay what they are."""
    return (rng.random(rows.shape, dtype=np.float32) < rows).astype(np.float32)
