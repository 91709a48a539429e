"""What a user sees of a call: one line on the terminal, and its result in a notebook."""

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text


def open_console() -> Console:
    """Return where progress is shown: standard error, or the page of a notebook.

    rich shows nothing on a page without ipywidgets, and warns of that at each refresh. There the
    console is one that keeps silent: a page is no terminal, whose last line could be overwritten.
    """
    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        return Console(stderr=True, force_jupyter=False, force_terminal=False)
    return console


@contextmanager
def status_line(show: bool, note: Callable[[], str] = str) -> Iterator[Any]:
    """Give a function `report(line)` that shows the line; without `show` it does nothing.

    The words of `note()` are appended, asked for again several times a second; by default none.
    """
    if not show:
        yield lambda line: None
        return
    with Status("", console=open_console()) as status:
        yield lambda line: status.update(_Noted(line, note))


@dataclass(frozen=True)
class _Noted:
    """A line with words that change while it is shown."""

    line: str
    note: Callable[[], str]

    def __rich__(self) -> Text:
        return Text.from_markup(self.line).append(self.note())


def text_as_html(value: Any) -> str:
    """Return the text of a result, as `print` shows it, as HTML."""
    return f"<pre>{html.escape(repr(value))}</pre>"
