"""At how many temperatures and draws log C(T) is computed, from what that is going to cost.

For a fine grid log C(T) is computed at Chebyshev nodes and interpolated by the polynomial through
them. Near T = 1 it bends within 1 / N in log T, where the average over the prior goes over to a
peak of it, and far out it is nearly linear in log T. In log(1 + log T / d) with a small d it is
smooth throughout.
"""

import logging
from dataclasses import dataclass
from time import process_time

import numpy as np

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.groups import NormalizerGroup
from pymc_tempering.variational.normalizers.particle_average import MOVES, N_POPULATIONS

logger = logging.getLogger("pymc.tempering")  # shares PyMC's handler and level

N_NODES = 21
"""Temperatures of the interpolation."""

NEAREST = 1000.0
"""Range of log T over d."""

LEAPS, STEPS_MORE = 5, 15
"""Leapfrog steps of a move, and temperatures that the annealing inserts, as a rule."""

ON_LINE = 25_000
"""Evaluations of a quadrature over one scalar at a temperature."""

AIM = 30.0
"""CPU seconds that fewer draws are taken for."""

TOLD = 5.0
"""CPU seconds from which on a message says beforehand how long it takes."""

DRAWS = 4000
"""Draws where no number was asked for, and an evaluation is quick."""

FEWEST = 20 * N_POPULATIONS
"""Draws below which no average is annealed for the sake of time."""


def nodes_of_temperature(hot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Temperatures to compute at, and the matrix that takes the values there to those at `hot`.

    Parameters
    ----------
    hot : array, shape (M,)
        Increasing, all above 1.

    Returns
    -------
    nodes : array, shape (m,)
        The temperatures themselves if they are few, else 21.
    matrix : array, shape (M, m)
        Barycentric interpolation through the nodes and through 0 at T = 1.
    """
    if hot.size <= N_NODES:
        return hot, np.eye(hot.size)
    place = 0.5 * (1.0 - np.cos(np.pi * np.arange(N_NODES + 1) / N_NODES))
    unit = np.log(hot[-1]) / NEAREST
    top = np.log1p(NEAREST)
    weight = (-1.0) ** np.arange(N_NODES + 1)
    weight[[0, -1]] *= 0.5
    gap = np.log1p(np.log(hot) / unit)[:, None] / top - place
    exact = np.abs(gap) < 1e-14
    terms = weight / np.where(exact, 1.0, gap)
    matrix = np.where(
        exact.any(axis=1, keepdims=True), exact, terms / terms.sum(axis=1, keepdims=True)
    )
    nodes = np.exp(unit * np.expm1(top * place[1:]))
    nodes[-1] = hot[-1]
    return nodes, matrix[:, 1:]


@dataclass(frozen=True)
class PartitionCost:
    """What one group is going to cost.

    Attributes
    ----------
    draws : int
        Particles.
    seconds : float
        Estimate (CPU).
    """

    draws: int
    seconds: float


def cost_of(
    group: NormalizerGroup,
    points: np.ndarray,
    nodes: np.ndarray,
    draws: int | None,
    max_time: float,
) -> PartitionCost:
    """Estimate the time from some evaluations; how many draws, if they are not given, follows.

    Raises
    ------
    NormalizerError
        It would take longer than `max_time` even so.
    """
    group.evaluate(points[:2], float(nodes[-1]))
    began, n = process_time(), 0
    while process_time() - began < 0.02 and n < len(points):
        group.evaluate(points[n : n + 10], float(nodes[-1]))
        n += 10
    one = (process_time() - began) / n
    if group.dim == 1:
        cost = PartitionCost(0, ON_LINE * len(nodes) * one)
    else:
        of_draw = (MOVES * (LEAPS + 1) + 1) * (len(nodes) + STEPS_MORE) * one
        taken = draws or min(DRAWS, max(FEWEST, int(AIM / of_draw)))
        cost = PartitionCost(taken, taken * of_draw)
    if cost.seconds > max_time:
        raise NormalizerError(
            f"log C(T) of {group.label()} would take about {cost.seconds / 60:.0f} minutes of CPU "
            f"time, longer than max_time = {max_time:g} s: {1e3 * one:.2g} ms for each evaluation "
            "of its normalizers. Data with parameters of their own (a regression) cost an integral "
            f"or a sum each. Raise max_time; of the fits, {WITHOUT_NORMALIZER}."
        )
    if cost.seconds > TOLD:
        fewer = draws is None and 0 < cost.draws < DRAWS
        few = f", with {cost.draws} draws in place of {DRAWS}" if fewer else ""
        logger.info(
            f"log C(T) of {group.label()}: about {cost.seconds:.0f} s of CPU time at "
            f"{len(nodes)} temperatures{few}"
        )
    return cost
