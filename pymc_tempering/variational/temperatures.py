"""Grids of temperatures, annealing schedules, and q(y), the distribution over a grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import entr, roots_jacobi, softmax

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.variational.normalizers.likelihood_terms import check_temperatures

N_TEMPERATURES = 100
"""Temperatures of VT, as in Section 4 of Mandt et al. (2016)."""

N_LOCAL = 10
"""Temperatures of a datum; the tempered likelihood is evaluated at each for each datum."""

LARGEST = 10.0
"""Largest temperature, as in Section 4 of Mandt et al. (2016)."""

N_BETA = 12
"""Nodes of the quadrature over a Beta-distributed 1/T."""


def exponential_grid(n: int = N_TEMPERATURES, largest: float = LARGEST) -> FloatArray:
    """Temperatures from 1 to ``largest``, evenly spaced in log T, shape (n,)."""
    return np.geomspace(1.0, largest, n)


def inverse_grid(n: int = N_LOCAL, largest: float = LARGEST) -> FloatArray:
    """Temperatures from 1 to ``largest``, evenly spaced in 1/T, shape (n,)."""
    return 1.0 / np.linspace(1.0, 1.0 / largest, n)


def check_grid(temperatures: Sequence[float]) -> FloatArray:
    """Return the temperatures as an array that starts at 1 and increases, shape (M,).

    Raises
    ------
    ValueError
        Where they do not.
    """
    grid: FloatArray = check_temperatures(temperatures)
    if grid[0] != 1.0:
        raise ValueError(
            f"temperatures must contain 1, the model itself; the smallest is {grid[0]:g}. Start "
            "the grid at 1."
        )
    return grid


SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "linear": lambda share, start: start + (1.0 - start) * share,
    "exponential": lambda share, start: start ** (1.0 - share),
}
"""Temperature at a share of the annealing, from ``start`` at 0 to 1 at 1."""


@dataclass(frozen=True)
class AnnealingSchedule:
    """The temperature of annealed variational inference over the iterations.

    Attributes
    ----------
    function : callable
        Temperature at a share in [0, 1) of the annealing.
    n_annealing : int
        Iterations after which T = 1.
    """

    function: Callable[[float], float]
    n_annealing: int

    def inverse_temperature(self, iteration: int) -> float:
        """1/T at an iteration, counted from 0; 1 from ``n_annealing`` on."""
        if iteration >= self.n_annealing:
            return 1.0
        return 1.0 / float(self.function(iteration / self.n_annealing))


def annealing_schedule(
    schedule: str | Callable[[float], float], start: float, n_annealing: int
) -> AnnealingSchedule:
    """Build a schedule from its name or from a function, and check it.

    Raises
    ------
    ValueError
        If the name is not known, or the function does not give temperatures of 1 or higher.
    """
    if isinstance(schedule, str):
        check_choice(
            "schedule", schedule, SCHEDULES, " or a function of the share of the annealing"
        )
        named = SCHEDULES[schedule]
        return AnnealingSchedule(lambda share: named(share, start), n_annealing)
    for share in np.linspace(0.0, 1.0, 100, endpoint=False):
        temperature = float(schedule(float(share)))
        if not (np.isfinite(temperature) and temperature >= 1.0 - 1e-12):
            raise ValueError(
                f"schedule({share:.2f}) gave the temperature {temperature}; it takes the share of "
                "the annealing, from 0 to 1, and must give finite temperatures of 1 or higher"
            )
    return AnnealingSchedule(schedule, n_annealing)


def beta_grid(a: float, b: float, n: int = N_BETA) -> tuple[FloatArray, FloatArray]:
    """Temperatures and prior weights that stand for 1/T ~ Beta(a, b), each of shape (n + 1,).

    Nodes and weights of Gauss-Jacobi quadrature in 1/T, so that q(T), which is not a Beta
    distribution, is free at the nodes, and averages over it are exact for polynomials of 1/T up to
    degree 2 n - 1. T = 1 stands first with weight zero, for the stage at T = 1.

    Raises
    ------
    ValueError
        If ``a`` or ``b`` is not positive.
    """
    if not (np.isfinite([a, b]).all() and min(a, b) > 0.0):
        raise ValueError(f"the Beta prior of 1/T needs two positive numbers, got ({a}, {b})")
    nodes, weights = roots_jacobi(n, b - 1.0, a - 1.0)
    inverse = (1.0 + nodes[::-1]) / 2.0
    return (
        np.concatenate([[1.0], 1.0 / inverse]),
        np.concatenate([[0.0], weights[::-1] / weights.sum()]),
    )


@dataclass(frozen=True)
class TemperaturePosterior:
    """q(y): the variational distribution over a grid of temperatures.

    Attributes
    ----------
    temperatures : ndarray, shape (M,)
    log_prior : ndarray, shape (M,)
        log pi_m.
    logits : ndarray, shape (M,)
        log q(y_m) up to a constant.
    """

    temperatures: FloatArray
    log_prior: FloatArray
    logits: FloatArray

    @property
    def q(self) -> FloatArray:
        """Probability of each temperature, shape (M,)."""
        return np.asarray(softmax(self.logits))

    @property
    def inverse_temperature(self) -> float:
        """E_q[1/T]."""
        return float(self.q @ (1.0 / self.temperatures))

    def update(self, energies: FloatArray, damping: float) -> "TemperaturePosterior":
        """Take one damped step of equation (9) of Mandt et al. (2016).

        ``energies`` (M,) holds E_q[log-likelihood] / T_m - log C(T_m). Its logarithms are mixed,
        which is a step of 1 - damping along the natural gradient.
        """
        target = energies + self.log_prior
        return replace(self, logits=damping * self.logits + (1.0 - damping) * target)

    def at_least(self, temperature: float) -> "TemperaturePosterior":
        """Return q(y) given that T is at least so high, or the largest of the grid."""
        allowed = self.temperatures >= min(temperature, self.temperatures[-1]) * (1.0 - 1e-12)
        return replace(self, logits=np.where(allowed, self.logits, -np.inf))

    def offset(self, log_c: FloatArray) -> float:
        """Terms of the tempered ELBO, equation (5), that depend on q(y) alone (nats)."""
        return float(self.q @ (self.log_prior - log_c) + entr(self.q).sum())


def uniform_posterior(temperatures: FloatArray) -> TemperaturePosterior:
    """q(y) before the first update: uniform over the grid, as its prior is."""
    n = temperatures.size
    return TemperaturePosterior(temperatures, np.full(n, -np.log(n)), np.zeros(n))
