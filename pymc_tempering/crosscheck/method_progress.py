"""Progress of a cross-check: a bar of the methods, and what the one at work is doing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from pymc_tempering.borrowed.private import install_listener
from pymc_tempering.core.status import open_console
from pymc_tempering.model.compilations import CompilationWatch


@dataclass(frozen=True)
class Steps:
    """What is told while methods run, one after another.

    Attributes
    ----------
    begin : callable
        Takes the name of the method that starts.
    report : callable
        Takes a line on what it is doing.
    end : callable
        Called when it has ended.
    """

    begin: Callable[[str], None] = field(default=lambda name: None)
    report: Callable[[str], None] = field(default=lambda line: None)
    end: Callable[[], None] = field(default=lambda: None)


class _Note(ProgressColumn):
    """What is being compiled."""

    def __init__(self, watch: CompilationWatch) -> None:
        super().__init__()
        self.watch = watch

    def render(self, task: Task) -> Text:
        """Words of the watch."""
        return Text(self.watch.note().removeprefix(", "))


@contextmanager
def method_progress(show: bool, total: int) -> Iterator[Steps]:
    """Show a bar of `total` methods on the terminal; without `show` nothing is shown."""
    if not show:
        yield Steps()
        return
    watch = CompilationWatch()
    columns = (
        SpinnerColumn(), TextColumn("Cross-check: {task.description}", markup=False), BarColumn(20),
        MofNCompleteColumn(), TimeElapsedColumn(), _Note(watch),
    )  # fmt: skip
    progress = Progress(*columns, console=open_console(), transient=True)
    with install_listener("numba:compile", watch), progress:
        bar = progress.add_task("", total=total)
        name = [""]

        def begin(method: str) -> None:
            name[0] = method
            progress.update(bar, description=method, refresh=True)

        yield Steps(
            begin,
            lambda line: progress.update(bar, description=f"{name[0]}, {line}"),
            lambda: progress.advance(bar),
        )
