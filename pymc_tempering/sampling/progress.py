"""How far chains are: a table for a terminal, with the columns that it has room for, or a line."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from time import perf_counter
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions
from rich.progress_bar import ProgressBar
from rich.table import Column, Table

from pymc_tempering.arguments import check_choice
from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.loop import N_DIVERGENCES, RB_WEIGHT, TOUR_START
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.rts import rts_log_z
from pymc_tempering.sampling.recorded import drawn_in_all

MODES = ("combined", "split", "combined+stats", "stats+combined", "split+stats", "stats+split")
"""What `progressbar` may be beside True and False."""

LEAST_BAR = 8
"""Characters that a bar has at least; columns that leave it fewer are not shown."""


def check_progressbar(progressbar: bool | str) -> None:
    """Raise a ValueError unless it is a way to show progress."""
    if not isinstance(progressbar, bool | np.bool_):
        check_choice("progressbar", progressbar, MODES, ", True or False")


def running_log_z(runs: Sequence[ChainRun], ladder: Ladder) -> float:
    """RTS estimate (eq. 12) of log Z from the draws so far, in nats; NaN before the first."""
    own = [run.record.per_rung[: run.state.n_draws, RB_WEIGHT].sum(axis=0) for run in runs]
    return float(rts_log_z(np.sum(own, axis=0), ladder.log_z, ladder.log_weights)[-1])


class ChainProgress:
    """How far chains are in a round: rows of a table for rich, one line as text.

    Parameters
    ----------
    runs : sequence of ChainRun
    ladder : Ladder
    total : int
        Draws of each chain at the end of the round.
    progressbar : bool or str, default True
        Whether all chains are one row, and whether statistics are shown, as in `pm.sample`.
    """

    def __init__(
        self, runs: Sequence[ChainRun], ladder: Ladder, total: int, progressbar: bool | str = True
    ) -> None:
        mode = progressbar if isinstance(progressbar, str) else "split+stats"
        self.runs, self.ladder, self.total = runs, ladder, total
        self.stats = "stats" in mode
        self.rows = [[*runs]] if "combined" in mode else [[run] for run in runs]
        self.began, self.before = perf_counter(), drawn_in_all(runs) / max(1, len(runs))

    def cells(self, runs: Sequence[ChainRun]) -> dict[str, str]:
        """Return what is told of chains by its heading, the most important first."""
        draws, passed = drawn_in_all(runs), perf_counter() - self.began
        new, missing = draws - self.before * len(runs), self.total * len(runs) - draws
        left = f"{timedelta(seconds=round(passed * missing / new))}" if new > 0 else ""
        told = {"Draws": f"{draws:,}", "Left": left}
        if not self.stats:
            return told
        scalars = np.concatenate([run.record.scalars[: run.state.n_draws] for run in runs])
        log_z = running_log_z(runs, self.ladder) if draws else np.nan
        round_trips = max(0, int(scalars[:, TOUR_START].sum()) - len(runs))
        return told | {
            "log Z": f"{log_z:.2f}" if np.isfinite(log_z) else "",
            "Round trips": f"{round_trips:,}",
            "Divergences": f"{int(scalars[:, N_DIVERGENCES].sum()):,}",
            "Draws/s": f"{new / max(passed, 1e-3):,.0f}",
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        rows = [self.cells(runs) for runs in self.rows]
        widths = {name: 2 + max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
        names, room = [], options.max_width - LEAST_BAR - 4
        for name, width in widths.items():
            room -= width
            if room < 0:
                break
            names.append(name)
        columns = [Column(name, justify="right", no_wrap=True) for name in names]
        table = Table(Column("Chains", ratio=1), *columns, box=SIMPLE_HEAD, expand=True)
        for runs, row in zip(self.rows, rows, strict=True):
            bar = ProgressBar(self.total * len(runs), drawn_in_all(runs))
            table.add_row(bar, *(row[name] for name in names))
        yield table

    def __str__(self) -> str:
        wanted, told = self.total * len(self.runs), self.cells(self.runs)
        share = f"{told.pop('Draws')} of {wanted:,} draws of {len(self.runs)} chains"
        more = [f"{name[:1].lower()}{name[1:]} {value}" for name, value in told.items() if value]
        return f"Sampling: {', '.join([share, *more])}"
