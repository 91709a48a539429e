"""Progress in PyMC's look: a status line for the warm-up, a bar for each chain."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Self

import numpy as np
from rich.progress import TextColumn
from rich.table import Column

from pymc_tempering.borrowed.private import OpenBars
from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.loop import N_DIVERGENCES, RB_WEIGHT, TOUR_START
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.sampling.recorded import drawn_in_all

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
