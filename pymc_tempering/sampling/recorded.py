"""What recorded chains tell: cycles, whether draws suffice, what they hold in memory; and bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

import numpy as np
from pymc.util import get_untransformed_name, is_transformed_name
from rich.progress import TextColumn
from rich.table import Column

from pymc_tempering.borrowed.private import OpenBars
from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.loop import (
    LOWEST,
    N_DIVERGENCES,
    N_STEPS,
    N_UNDEFINED,
    RB_WEIGHT,
    STEPS,
    TOUR_START,
)
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.cycles import RUNG_STATS, CycleStats
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.ladder import Ladder
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


PATIENCE = 0.5
"""Seconds before bars are shown: those of a shorter run would only flash."""

COLUMNS = {
    "Done": "{task.percentage:.0f} %",
    "Divergences": "{task.fields[divergences]}",
    "Round trips": "{task.fields[round_trips]}",
    "log Z": "{task.fields[log_z]}",
}
"""Headings, and what of a bar stands below."""


def running_log_z(runs: Sequence[ChainRun], ladder: Ladder) -> float:
    """RTS estimate (eq. 12) of log Z from the draws so far, in nats; NaN before the first."""
    sums = sum(run.record.per_rung[: run.state.n_draws, RB_WEIGHT].sum(axis=0) for run in runs)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(sums) - ladder.log_weights
    return float(ladder.log_z[-1] + np.subtract(off[-1], off[0]))


class ChainProgress(OpenBars):
    """Bars with draws, percent, divergences, round trips and the current log Z of each chain.

    They are of the draws that a round adds. They appear once there are draws to tell of and the run
    has taken half a second.
    """

    step_name = "Draw"

    def __init__(
        self, runs: Sequence[ChainRun], ladder: Ladder, total: int, progressbar: Any, theme: Any
    ) -> None:
        super().__init__(len(runs), progressbar, theme)
        self.ladder, self.total = ladder, total
        self.bars = [list(runs)] if self.combined_progress else [[run] for run in runs]
        self.told = [drawn_in_all(group) for group in self.bars]
        self.began, self.shows = perf_counter(), False
        columns = [
            TextColumn(text, table_column=Column(name, ratio=1)) for name, text in COLUMNS.items()
        ]
        stats = {"draw": 0, "divergences": 0, "round_trips": 0, "log_z": "", "marker_pos": 0}
        self._backend = self.make_backend(
            total * len(self.bars[0]) - min(self.told), columns,
            {name: [value] * len(runs) for name, value in stats.items()},
        )  # fmt: skip
        self.wanted = bool(progressbar) and self._backend is not None

    def __enter__(self) -> Self:
        self.began = perf_counter()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:
        return self._backend.__exit__(exc_type, exc_val, exc_tb) if self.shows else None

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Show how far the chains are."""
        if not self.wanted:
            return
        if not self.shows:
            drawn = any(drawn_in_all(group) for group in self.bars)
            if not drawn or perf_counter() - self.began < PATIENCE:
                return
            self._backend.__enter__()
            self.shows = True
        for i, group in enumerate(self.bars):
            draws, before = drawn_in_all(group), self.told[i]
            scalars = np.concatenate([r.record.scalars[: r.state.n_draws] for r in group])
            stats: dict[str, Any] = {"draw": draws}
            if self.full_stats:
                log_z = running_log_z(group, self.ladder) if draws else np.nan
                stats |= {
                    "divergences": int(scalars[:, N_DIVERGENCES].sum()),
                    "round_trips": max(0, int(scalars[:, TOUR_START].sum()) - len(group)),
                    "log_z": f"{log_z:.2f}" if np.isfinite(log_z) else "",
                }
            if draws > before:
                last = draws == self.total * len(group)
                self._backend.update(i, draws - before, False, stats, last)
                self.told[i] = draws
