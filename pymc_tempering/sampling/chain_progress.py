"""Progress in PyMC's look: a status line for the warm-up, a bar for each chain."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pymc.progress_bar import ProgressBarManager
from rich.progress import TextColumn
from rich.table import Column

from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.record import N_DIVERGENCES, RB_WEIGHT, TOUR_START
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.sampling.choose_plan import ChosenPlan


def running_log_z(runs: Sequence[ChainRun], ladder: Ladder) -> float:
    """RTS estimate (eq. 12) of log Z from the draws so far, in nats; NaN before the first."""
    sums = sum(run.record.per_rung[: run.state.n_draws, RB_WEIGHT].sum(axis=0) for run in runs)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(sums) - ladder.log_weights
    return float(ladder.log_z[-1] + np.subtract(off[-1], off[0]))


def watch_of(
    shown: Any, theme: Any
) -> Callable[[ChosenPlan, list[ChainRun], int], ProgressBarManager]:
    """Return what makes the bars of each round."""

    def watch(chosen: ChosenPlan, runs: list[ChainRun], total: int) -> ProgressBarManager:
        return ChainProgress(runs, chosen.plan.ladder, total, shown, theme)

    return watch


class ChainProgress(ProgressBarManager):
    """Bars with draws, divergences, round trips and the current log Z of each chain."""

    step_name = "Draw"

    def __init__(
        self, runs: Sequence[ChainRun], ladder: Ladder, total: int, progressbar: Any, theme: Any
    ) -> None:
        super().__init__(len(runs), progressbar, theme)
        self.runs, self.ladder, self.total = runs, ladder, total
        self.shown = [0] * len(runs)
        columns = [
            TextColumn("{task.fields[divergences]}", table_column=Column("Divergences", ratio=1)),
            TextColumn("{task.fields[round_trips]}", table_column=Column("Round trips", ratio=1)),
            TextColumn("{task.fields[log_z]:.2f}", table_column=Column("log Z", ratio=1)),
        ]
        n = len(runs)
        stats = {
            "draw": [0] * n,
            "divergences": [0] * n,
            "round_trips": [0] * n,
            "log_z": [np.nan] * n,
            "marker_pos": [0] * n,
        }
        self._backend = self._create_backend(
            total * n if self.combined_progress else total, columns, stats
        )

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Show how far the chains are."""
        if not self._show_progress:
            return
        bars = [list(self.runs)] if self.combined_progress else [[run] for run in self.runs]
        for i, group in enumerate(bars):
            draws = sum(run.state.n_draws for run in group)
            scalars = np.concatenate([r.record.scalars[: r.state.n_draws] for r in group])
            stats: dict[str, Any] = {"draw": draws}
            if self.full_stats:
                stats |= {
                    "divergences": int(scalars[:, N_DIVERGENCES].sum()),
                    "round_trips": max(0, int(scalars[:, TOUR_START].sum()) - len(group)),
                    "log_z": running_log_z(group, self.ladder) if draws else np.nan,
                }
            if draws > self.shown[i]:
                last = draws == self.total * len(group)
                self._backend.update(i, draws - self.shown[i], False, stats, last)
                self.shown[i] = draws
