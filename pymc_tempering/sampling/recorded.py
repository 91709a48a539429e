"""What recorded chains tell: cycles, whether draws suffice, what they hold in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pymc.util import get_untransformed_name, is_transformed_name

from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.loop import (
    LOWEST,
    N_DIVERGENCES,
    N_STEPS,
    N_UNDEFINED,
    STEPS,
    TOUR_START,
)
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.cycles import RUNG_STATS, CycleStats
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.evidence.datatree import Run, flat_trace
from pymc_tempering.exceptions import warn_user
from pymc_tempering.model.path import Path

GOLDEN = 0.5 * (5.0**0.5 - 1.0)
"""Multiples of it, without their whole parts, fill an interval evenly."""

MOST_HELD = 2e9
"""Bytes that chains may hold after a round of twice the length. Their DataTree takes up to four
times as much while it is made."""


def draws_of(runs: Sequence[ChainRun]) -> int:
    """Draws of the shortest chain."""
    return min(run.state.n_draws for run in runs)


def drawn_in_all(runs: Sequence[ChainRun]) -> int:
    """Draws of all chains."""
    return sum(run.state.n_draws for run in runs)


def steps_of(runs: Sequence[ChainRun]) -> int:
    """Density evaluations of recorded runs."""
    return sum(int(run.record.scalars[: run.state.n_draws, N_STEPS].sum()) for run in runs)


def pace_of(
    seconds: float, runs: Sequence[ChainRun], before: int, otherwise: float = np.nan
) -> float:
    """Return the seconds in which each chain makes a draw, given the draws of all before them.

    Where there are no new ones it is another value.
    """
    new = drawn_in_all(runs) - before
    return seconds * len(runs) / new if new else otherwise


def cycles_of(plan: Plan, runs: Sequence[ChainRun]) -> CycleStats:
    """Statistics of recorded cycles in the form that estimators read."""
    n = draws_of(runs)
    per_rung = np.array([run.record.per_rung[:n] for run in runs])
    scalars = np.array([run.record.scalars[:n] for run in runs])
    ladder = plan.ladder
    return CycleStats(
        beta=ladder.betas,
        log_z_ladder=ladder.log_z,
        log_weight=ladder.log_weights,
        **{name: per_rung[:, :, i] for i, name in enumerate(RUNG_STATS)},
        tempering_steps=scalars[:, :, STEPS],
        beta_min=ladder.betas[scalars[:, :, LOWEST].astype(int)],
        n_divergences=scalars[:, :, N_DIVERGENCES],
        tour_start=scalars[:, :, TOUR_START] != 0,
        n_undefined=scalars[:, :, N_UNDEFINED],
    )


def traced_run(
    plan: Plan, runs: Sequence[ChainRun], reference: np.ndarray, n_undefined: int = 0
) -> Run:
    """Return recorded chains that kept their trace, with the reference draws beside them."""
    stats = cycles_of(plan, runs)
    log_ratios = [np.concatenate([part[0] for part in run.trace]) for run in runs]
    rungs = [np.concatenate([part[1] for part in run.trace]) for run in runs]
    return Run(stats, flat_trace(stats, log_ratios, rungs), reference, n_undefined)


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
    n = draws_of(runs)
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


def bytes_held(runs: Sequence[ChainRun], draws: int) -> float:
    """Bytes that chains will hold with so many draws each: their records and traces."""
    total = 0.0
    for run in runs:
        record, done = run.record, max(1, run.state.n_draws)
        rows = (record.x, record.per_rung, record.scalars)
        total += draws * sum(part.nbytes / max(1, len(part)) for part in rows)
        parts = [*run.trace, *(run.hot.parts if run.hot else ())]
        total += draws / done * sum(array.nbytes for part in parts for array in part)
    return total


def too_large(runs: Sequence[ChainRun], draws: int) -> bool:
    """Whether twice so many draws of each chain would hold too much; this is said."""
    held = bytes_held(runs, 2 * draws)
    if held <= MOST_HELD:
        return False
    warn_user(
        f"The run ends at {draws} draws of each chain, because with twice as many the chains would "
        f"hold {held / 1e9:.1f} GB in memory. Add draws in parts with pmt.extend, hold less of "
        "each with keep=None, or ask for a number of draws."
    )
    return True
