"""Progress in PyMC's look: a status line for the warm-up, a bar for each chain."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Self

import numpy as np
from rich.progress import Progress, TextColumn
from rich.table import Column

from pymc_tempering.borrowed.private import OpenBars
from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.record import N_DIVERGENCES, RB_WEIGHT, TOUR_START
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.sampling.choose_plan import ChosenPlan

PATIENCE = 0.5
"""Seconds before bars are shown: those of a shorter run would only flash."""


def running_log_z(runs: Sequence[ChainRun], ladder: Ladder) -> float:
    """RTS estimate (eq. 12) of log Z from the draws so far, in nats; NaN before the first."""
    sums = sum(run.record.per_rung[: run.state.n_draws, RB_WEIGHT].sum(axis=0) for run in runs)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(sums) - ladder.log_weights
    return float(ladder.log_z[-1] + np.subtract(off[-1], off[0]))


def _text_of(log_z: float) -> str:
    """Return a log Z as text; empty where it is not known yet."""
    return f"{log_z:.2f}" if np.isfinite(log_z) else ""


def _with_text_for_speed(backend: Any) -> bool:
    """Put our text in the place of the speed in PyMC's table, which is 0.00 at first.

    Returns
    -------
    bool
        Whether there is such a table: not in a marimo notebook, nor without progress.
    """
    held = vars(backend).values()  # there is no public name for it
    table = next((one for one in held if isinstance(one, Progress)), None)
    if table is None:
        return False
    table.columns = tuple(
        TextColumn("{task.fields[speed]}", table_column=column.get_table_column())
        if isinstance(column, TextColumn) and "sampling_speed" in column.text_format
        else column
        for column in table.columns
    )
    return True


def watch_of(shown: Any, theme: Any) -> Callable[[ChosenPlan, list[ChainRun], int], OpenBars]:
    """Return what makes the bars of each round."""

    def watch(chosen: ChosenPlan, runs: list[ChainRun], total: int) -> OpenBars:
        return ChainProgress(runs, chosen.plan.ladder, total, shown, theme)

    return watch


class ChainProgress(OpenBars):
    """Bars with draws, percent, divergences, round trips and the current log Z of each chain.

    They appear once there are draws to tell of and the run has taken half a second.
    """

    step_name = "Draw"

    def __init__(
        self, runs: Sequence[ChainRun], ladder: Ladder, total: int, progressbar: Any, theme: Any
    ) -> None:
        super().__init__(len(runs), progressbar, theme)
        self.runs, self.ladder, self.total = runs, ladder, total
        self.shown = [0] * len(runs)
        groups = [runs] if self.combined_progress else [[run] for run in runs]
        self.first = [sum(run.state.n_draws for run in group) for group in groups]
        self.began, self.shows = perf_counter(), False
        columns = [
            TextColumn("{task.percentage:.0f} %", table_column=Column("Done", ratio=1)),
            TextColumn("{task.fields[divergences]}", table_column=Column("Divergences", ratio=1)),
            TextColumn("{task.fields[round_trips]}", table_column=Column("Round trips", ratio=1)),
            TextColumn("{task.fields[log_z]}", table_column=Column("log Z", ratio=1)),
        ]
        n = len(runs)
        stats = {
            "draw": [0] * n,
            "divergences": [0] * n,
            "round_trips": [0] * n,
            "log_z": [""] * n,
            "speed": [""] * n,
            "marker_pos": [0] * n,
        }
        self._backend = self.make_backend(
            total * n if self.combined_progress else total, columns, stats
        )

        self.wanted = bool(progressbar) and self._backend is not None
        self.in_table = self.wanted and _with_text_for_speed(self._backend)

    def __enter__(self) -> Self:
        self.began = perf_counter()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:
        return self._backend.__exit__(exc_type, exc_val, exc_tb) if self.shows else None

    def _speed(self, draws: int) -> str:
        """Return draws a second as text; empty while the time is too short to tell."""
        seconds = perf_counter() - self.began
        return f"{draws / seconds:,.0f} draws/s" if seconds > 0.2 else ""

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Show how far the chains are."""
        if not self.wanted:
            return
        if not self.shows:
            drawn = any(run.state.n_draws for run in self.runs)
            if not drawn or perf_counter() - self.began < PATIENCE:
                return
            self._backend.__enter__()
            self.shows = True
        bars = [list(self.runs)] if self.combined_progress else [[run] for run in self.runs]
        for i, group in enumerate(bars):
            draws = sum(run.state.n_draws for run in group)
            scalars = np.concatenate([r.record.scalars[: r.state.n_draws] for r in group])
            stats: dict[str, Any] = {"draw": draws}
            if self.full_stats:
                stats |= {
                    "divergences": int(scalars[:, N_DIVERGENCES].sum()),
                    "round_trips": max(0, int(scalars[:, TOUR_START].sum()) - len(group)),
                    "log_z": _text_of(running_log_z(group, self.ladder)) if draws else "",
                }
            if draws > self.shown[i]:
                last = draws == self.total * len(group)
                if self.in_table:
                    stats["speed"] = self._speed(draws - self.first[i])
                self._backend.update(i, draws - self.shown[i], False, stats, last)
                self.shown[i] = draws
