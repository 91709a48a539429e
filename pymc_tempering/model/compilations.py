"""A status line that also says which function is being compiled, and how long this takes so far."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

from pymc_tempering.borrowed.private import Listener, check_temporary_folder, install_listener
from pymc_tempering.core.status import StatusLine, status_line


@contextmanager
def compiling_status(show: bool, theme: Any = None) -> Iterator[StatusLine]:
    """Give a function `report(line)` that shows the line and what Numba compiles meanwhile.

    Raises
    ------
    FolderError
        Nothing can be compiled, for want of a place for temporary files.
    """
    check_temporary_folder()
    watch = CompilationWatch()
    listening = install_listener("numba:compile", watch) if show else nullcontext()
    with listening, status_line(show, watch.note, theme) as report:
        yield report


class CompilationWatch(Listener):
    """Counts what Numba compiles and how long it takes; what comes from the disk cache is not told.

    Numba compiles under one lock, so that events come from one thread at a time. A function is
    compiled while another one is, if that one calls it: the outermost is named.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self._began = 0.0
        self.seconds = 0.0
        self.count = 0

    def on_start(self, event: Any) -> None:
        """Begin a function."""
        if not self._open:
            self._began = perf_counter()
        self.count += 1
        self._open.append(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: Any) -> None:
        """End a function."""
        if not self._open:  # another thread was compiling when this watch began
            return
        self._open.pop()
        if not self._open:
            self.seconds += perf_counter() - self._began

    def note(self) -> str:
        """Words for a status line; none while nothing is being compiled."""
        opened = self._open[:1]
        if not opened:
            return ""
        seconds = self.seconds + perf_counter() - self._began
        told = f"{self.count} functions in {seconds:.0f} s so far, kept on disk for the next time"
        return f", compiling {opened[0]} ({told})"
