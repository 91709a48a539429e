"""Learning of an energy whose normalizer is not known, by chains that persist between updates.

The slope of the mean log likelihood is the mean slope of the energy over the model, less that over
the data. The first is estimated by chains that go on from update to update (persistent contrastive
divergence, Tieleman 2008); Adam takes the steps, and the mean of the last of them is the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

CHAINS, LEAPS, ACCEPTED = 300, 6, 0.8
"""Chains, leapfrog steps of a Hamiltonian move, and the share of moves that is to be accepted."""

RATE, AVERAGED = 0.02, 0.25
"""The first rate of Adam, and the last share of updates, whose mean is taken."""

WIDEST = np.log(10.0)
"""Logarithm of the largest step over the smallest: narrow and wide parts of a density both move."""


@dataclass(frozen=True)
class Adam:
    """Running moments of slopes (Kingma & Ba 2015), and how many there were."""

    first: np.ndarray
    second: np.ndarray
    t: int = 0

    def step(self, slope: np.ndarray, rate: float) -> tuple[np.ndarray, "Adam"]:
        """Return the step along a slope, and the moments with it."""
        first, second = 0.9 * self.first + 0.1 * slope, 0.999 * self.second + 0.001 * slope**2
        t = self.t + 1
        scale = np.sqrt(second / (1.0 - 0.999**t)) + 1e-8
        return rate * first / (1.0 - 0.9**t) / scale, Adam(first, second, t)


def adam(like: np.ndarray) -> Adam:
    """Moments before the first slope of some parameters."""
    return Adam(np.zeros_like(like), np.zeros_like(like))


class Energy(Protocol):
    """A density up to a constant, with parameters in one vector."""

    def energy(self, x: np.ndarray) -> np.ndarray:
        """Energies of states (n, M), in nats."""

    def slope_by_states(self, x: np.ndarray) -> np.ndarray:
        """Slope of each energy by its state, (n, M)."""

    def mean_slope(self, x: np.ndarray) -> np.ndarray:
        """Slope of the mean energy by the parameters, in the order of `packed`."""

    def packed(self) -> np.ndarray:
        """Parameters in one vector."""

    def unpacked(self, packed: np.ndarray) -> Self:
        """The same model with other parameters, moved to where they are allowed."""


type Move = Callable[[Energy, np.ndarray, float, np.random.Generator], tuple[np.ndarray, float]]
"""States, a step size and a generator to new states and the share that was accepted."""


def hamiltonian(
    model: Energy, x: np.ndarray, step: float, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """One Hamiltonian trajectory for each state (n, M), each with a step size of its own."""
    steps = step * np.exp(-WIDEST * rng.uniform(size=(len(x), 1)))
    start = rng.normal(size=x.shape)
    place, momentum = x, start - 0.5 * steps * model.slope_by_states(x)
    for leap in range(LEAPS):
        place = place + steps * momentum
        half = 0.5 if leap == LEAPS - 1 else 1.0
        momentum = momentum - half * steps * model.slope_by_states(place)
    gain = model.energy(x) - model.energy(place)
    gain += 0.5 * np.sum(start**2 - momentum**2, axis=1)
    accepted = np.log(rng.uniform(size=len(x))) < gain
    return np.where(accepted[:, None], place, x), float(accepted.mean())


def learn[Model: Energy](
    model: Model,
    x: np.ndarray,
    rng: np.random.Generator,
    rounds: int,
    move: Move = hamiltonian,
    states: np.ndarray | None = None,
) -> Model:
    """Learn from data (N, M), from the parameters that a model has.

    Parameters
    ----------
    model : Energy
    x : array, shape (N, M)
    rng : numpy.random.Generator
    rounds : int
        Updates.
    move : callable
        Of the chains; it has to keep the model's density.
    states : array, shape (n, M), optional
        Where the chains begin; by default at data.
    """
    packed, step_size = model.packed(), 0.3
    moments, mean = adam(packed), np.zeros_like(packed)
    states = x[rng.integers(len(x), size=CHAINS)] if states is None else states
    last = max(1, round(AVERAGED * rounds))
    for t in range(rounds):
        states, accepted = move(model, states, step_size, rng)
        step_size *= 1.02 if accepted > ACCEPTED else 0.98
        data = x[rng.integers(len(x), size=CHAINS)]
        slope = model.mean_slope(states) - model.mean_slope(data)
        step, moments = moments.step(slope, RATE * (1.0 - t / rounds))
        model = model.unpacked(packed + step)
        packed = model.packed()
        mean += packed / last if t >= rounds - last else 0.0
    return model.unpacked(mean)
