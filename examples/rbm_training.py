"""Training of RBMs: contrastive divergence, and tempered chains that follow log Z on the way.

`rbm.py` and the page "An RBM's log Z while it trains" import it; copy it into a project of yours.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from rbm_density import RBM, BernoulliReference, data_marginals
from rts_initial_iterations import initial_iterations

import pymc_tempering as pmt
from pymc_tempering.arrays import PartitionTracker

type Rate = float | Callable[[int], float]
"""Step of the gradient ascent, or a function of the number of the update."""


def first_machine(data: np.ndarray, n_hidden: int, rng: np.random.Generator) -> RBM:
    """Return small random weights, visible biases of the data's marginals, and no hidden ones."""
    weights = 0.01 * rng.standard_normal((data.shape[1], n_hidden))
    return RBM(weights, data_marginals(data).log_odds, np.zeros(n_hidden))


def drawn_bits(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw bits with the given means; bits stay what they are."""
    return (rng.random(rows.shape, dtype=np.float32) < rows).astype(np.float32)


def gradient_of(
    rbm: RBM, data: np.ndarray, v: np.ndarray, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradient of the mean log likelihood: data minus model, by weights and biases.

    The model's term is over visible states v (m, M), with weights that sum to 1, or equal ones.
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
    rate: Rate = 0.05,
    random_seed: int | np.random.Generator | None = None,
) -> RBM:
    """Train by contrastive divergence ("cd", Hinton 2002), or persistent chains ("pcd").

    "cd" starts its Gibbs sweeps at the batch of the data, "pcd" (Tieleman 2008) where those of the
    last update ended. Data (n, M) are bits, or numbers between, of which bits are drawn anew.
    """
    rng = np.random.default_rng(random_seed)
    v = drawn_bits(data[rng.integers(len(data), size=batch)], rng)
    for i in range(n_updates):
        rows = drawn_bits(data[rng.integers(len(data), size=batch)], rng)
        v = rows if method == "cd" else v
        for _ in range(sweeps):
            v = rbm.draw_visible(rbm.draw_hidden(v, rng), rng)
        rbm = stepped(rbm, gradient_of(rbm, rows, v), rate(i) if callable(rate) else rate)
    return rbm


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """A machine during its training, and what is known of it there.

    `log_z` with its error `mcse`, and the mean log likelihoods `train` and `validation` of the
    data, are in nats, with log Z as tracked under the parameters of `rbm`.
    """

    update: int
    rbm: RBM
    log_z: float
    mcse: float
    train: float
    validation: float


def train_tracked(
    rbm: RBM,
    data: np.ndarray,
    n_updates: int,
    *,
    validation: np.ndarray,
    reference: BernoulliReference | None = None,
    n_rungs: int = 100,
    chains: int = 200,
    sweeps: int = 10,
    batch: int = 100,
    rate: Rate = 0.02,
    patience: int | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> Iterator[TrainingStep]:
    """Train with tempered persistent chains, and follow log Z (section 4.4 of the RTS paper).

    Between two updates each chain makes a few sweeps, of its state at its rung and of its rung
    given its state. The states' weights q(beta = 1 | x) make the gradient, all chains included, and
    their log ratios update a `PartitionTracker`. The occupancies are the paper's, r = exp(2 beta).
    Training ends after `patience` updates in which the validation likelihood did not improve.
    """
    rng = np.random.default_rng(random_seed)
    law = data_marginals(data) if reference is None else reference
    betas = np.linspace(0.0, 1.0, n_rungs)
    with warnings.catch_warnings():  # a rough log Z will do: the tracker follows it from there
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        learned = initial_iterations(
            rbm.density(law), betas, chains=chains, max_rounds=50, log_weights=2.0 * betas,
            random_seed=rng,
        )  # fmt: skip
    tracker = PartitionTracker(betas, learned.ladder.log_z, 2.0 * betas)
    states, rung, best, since = learned.chains.states, learned.chains.rung, -np.inf, 0
    for i in range(n_updates):
        ratios = np.empty((chains, sweeps))
        for t in range(sweeps):
            states, ratios[:, t] = moved(rbm, law, betas[rung], states, rng)
            weights = tracker.probabilities(ratios[:, t])
            rung = tracker.draw_rungs(ratios[:, t], rng)
        tracker = tracker.update(ratios)
        log_z = float(tracker.log_z[-1])
        known, held = rbm.log_likelihood(data, log_z), rbm.log_likelihood(validation, log_z)
        yield TrainingStep(i, rbm, log_z, tracker.mcse, known, held)
        best, since = (held, 0) if held > best else (best, since + 1)
        if patience is not None and since >= patience:
            return
        rows = drawn_bits(data[rng.integers(len(data), size=batch)], rng)
        cold = weights[-1] / weights[-1].sum()
        gradient = gradient_of(rbm, rows, states[:, : rbm.n_visible], cold)
        rbm = stepped(rbm, gradient, rate(i) if callable(rate) else rate)


def moved(
    rbm: RBM,
    law: BernoulliReference,
    beta: np.ndarray,
    states: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Sweep each state at its beta, or draw it anew at beta = 0; also the log ratios."""
    density = rbm.density(law)
    states, ratio = density.move(states, beta.astype(np.float32), rng)
    fresh = beta == 0.0
    states[fresh] = density.reference_draw(int(fresh.sum()), rng)
    ratio[fresh] = density.log_ratio(states[fresh])
    return states, ratio
