"""Training of RBMs: contrastive divergence, persistent and tempered chains, a running log Z."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.arrays.array_rounds import LogWeights, learn_rounds, paper_rule, weights_at
from pymc_tempering.arrays.lockstep import LockstepChains, explore_once, start_chains
from pymc_tempering.arrays.rbm import RBM
from pymc_tempering.arrays.reference_laws import BernoulliReference, data_marginals
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.tracker import PartitionTracker
from pymc_tempering.exceptions import ArgumentError

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
        states, ratio = explore_once(density, tracker.betas, states, rung, rng)
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
