"""One line on the terminal that says what is being done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.status import Status


@contextmanager
def status_line(show: bool) -> Iterator[Any]:
    """Give a function `report(line)` that shows the line; without `show` it does nothing."""
    if not show:
        yield lambda line: None
        return
    with Status("", console=Console(stderr=True)) as status:
        yield status.update
