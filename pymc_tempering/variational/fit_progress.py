"""The progress bar of a fit, in PyMC's look."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from pymc.progress_bar import CustomProgress, default_progress_theme
from rich.console import Console
from rich.progress import Progress, TextColumn

from pymc_tempering.variational.fit_loop import FitState

SHOW_EVERY = 100
"""Iterations between two updates of the bar."""


@contextmanager
def show_progress(total: int, progressbar: bool) -> Iterator[Callable[[FitState], None]]:
    """Yield a function that shows the iterations, loss and E[1/T] of a run."""
    if not progressbar:
        yield lambda run: None
        return
    bar = CustomProgress(
        *Progress.get_default_columns(),
        TextColumn("loss {task.fields[loss]:,.5g}, E[1/T] {task.fields[inverse]:.3f}"),
        console=Console(theme=default_progress_theme),
    )
    with bar:
        task = bar.add_task("Fitting", total=total, loss=np.nan, inverse=np.nan)
        shown = 0

        def show(run: FitState) -> None:
            nonlocal shown
            if run.n - shown < SHOW_EVERY and run.n < total:
                return
            shown = run.n
            recent = run.losses[max(0, run.n - 1000) : run.n]
            loss = float(recent.mean()) if recent.size else np.nan
            bar.update(task, completed=run.n, total=max(total, run.n), loss=loss, inverse=run.at)

        yield show
