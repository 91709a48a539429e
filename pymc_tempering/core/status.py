"""What a user sees of a call: a line on the terminal or in a log, and its result in a notebook."""

import html
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from threading import Event, Thread
from time import perf_counter
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from rich.theme import Theme

logger = logging.getLogger("pymc.tempering")  # shares PyMC's handler and level

LOG_SECONDS = 10.0
"""Seconds from one line to the next where there is no terminal."""


def open_console(theme: Any = None) -> Console:
    """Return where progress is shown: standard error, or the page of a notebook.

    rich shows nothing on a page without ipywidgets, and warns of that at each refresh. So there
    the console is that of a log: a page is no terminal, whose last line could be overwritten.
    """
    theme = theme if isinstance(theme, Theme) else None
    console = Console(stderr=True, theme=theme)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        return Console(stderr=True, theme=theme, force_jupyter=False, force_terminal=False)
    return console


@dataclass(eq=False)
class StatusLine:
    """What a call is at: to be called with words, or with an object that rich and `str` can show.

    The words of `note()` are appended, asked for again at each look.
    """

    note: Callable[[], str] = str
    live: Live | None = None
    at: Any = ""

    def __call__(self, at: Any) -> None:
        """Show this from now on."""
        self.at = at

    def __str__(self) -> str:
        return Text.from_markup(str(self.at)).plain + self.note()

    def __rich__(self) -> RenderableType:
        if isinstance(self.at, str):
            return Text.from_markup(self.at).append(self.note())
        return Group(self.at, self.note()) if self.note() else self.at

    def tell(self, line: str) -> None:
        """Log a line that stays."""
        with self.aside():
            logger.info(line)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the line off a terminal meanwhile, for other lines; a log goes on."""
        if self.live is None:
            yield
            return
        self.live.stop()
        try:
            yield
        finally:
            self.live.start()


@contextmanager
def status_line(
    show: bool, note: Callable[[], str] = str, theme: Any = None
) -> Iterator[StatusLine]:
    """Give a function `report(line)` that shows the line; without `show` it does nothing.

    Where there is no terminal, a line of its own tells every ten seconds what is being done.
    """
    status = StatusLine(note)
    shown: AbstractContextManager[Any] = nullcontext()
    if show:
        console = open_console(theme)
        if console.is_terminal or console.is_jupyter:
            spinner = Spinner("dots", status, style="status.spinner")
            shown = status.live = Live(
                spinner, console=console, transient=True, refresh_per_second=8
            )
        else:
            shown = _lines_in_a_log(status)
    with shown:
        yield status


@contextmanager
def _lines_in_a_log(status: StatusLine) -> Iterator[None]:
    """Print what a call is at, and for how long it has been going on, from time to time."""
    over, began = Event(), perf_counter()

    def tell() -> None:
        while not over.wait(LOG_SECONDS):
            passed = timedelta(seconds=round(perf_counter() - began))
            print(f"{passed} {status}", file=sys.stderr, flush=True)

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def text_as_html(value: Any) -> str:
    """Return the text of a result, as `print` shows it, as HTML."""
    return f"<pre>{html.escape(repr(value))}</pre>"
