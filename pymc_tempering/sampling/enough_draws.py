"""Whether the draws of a run suffice: the least effective sample size of all free scalars."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pymc.util import get_untransformed_name, is_transformed_name

from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.model.path import Path

GOLDEN = 0.5 * (5.0**0.5 - 1.0)
"""Multiples of it, without their whole parts, fill an interval evenly."""


@dataclass(frozen=True)
class LeastEss:
    """The scalar that the draws tell least about.

    Attributes
    ----------
    name : str
        Of the free variable, with its place in it, as in ``theta[3]``.
    ess : float
        Its bulk effective sample size; 0 where the draws are too few for one.
    target : float
        What was wanted.
    """

    name: str
    ess: float
    target: float

    @property
    def short(self) -> bool:
        """Whether it is less than what was wanted."""
        return not self.ess >= self.target

    def __str__(self) -> str:
        return f"least ESS {self.ess:.0f} of {self.name!r}, {self.target:.0f} wanted"


def least_ess(
    path: Path, runs: Sequence[ChainRun], tune: int, target: float, deadline: Deadline = NEVER
) -> LeastEss:
    """Find the free scalar of the least bulk ESS, in unconstrained draws, tuning draws left out.

    Ranks make it that of the constrained variable too, but for transforms that mix scalars. After a
    deadline it is the least of those that there was time for.
    """
    n = min(run.state.n_draws for run in runs)
    draws = np.stack([run.record.x[min(tune, n) : n] for run in runs])
    known = np.nan_to_num(bulk_ess(draws, deadline.rest(1.0)), nan=0.0)
    worst = int(known.argmin())
    return LeastEss(scalar_name(path, worst), float(known[worst]), target)


def bulk_ess(draws: np.ndarray, deadline: Deadline = NEVER) -> np.ndarray:
    """Bulk effective sample size of each scalar of draws (chain, draw, d), shape (d,).

    Not a number below 4 draws a chain; infinite where there was no time for it, but for one.
    """
    from arviz_stats.base import array_stats  # slow to import

    scalars = np.moveaxis(draws, 2, 0).copy()  # in order, draw after draw
    ess = np.full(len(scalars), np.inf)
    for i in np.argsort(np.arange(len(scalars)) * GOLDEN % 1.0):  # the first ones from everywhere
        ess[i] = array_stats.ess(scalars[i], chain_axis=0, draw_axis=1, method="bulk")
        if deadline.late:
            break
    return ess


def scalar_name(path: Path, index: int) -> str:
    """Name of a raveled unconstrained scalar by its variable, as in ``theta[3]``.

    The place is that among the unconstrained values, of which a simplex has one fewer.
    """
    name, bracket, place = path.layout.label(index).partition("[")
    own = get_untransformed_name(name) if is_transformed_name(name) else name
    return own + bracket + place
