"""Where progress is shown: on a terminal, in a notebook, in a log."""

import io
import time

import pytest
from rich.console import Console

from pymc_tempering.core import status


@pytest.mark.parametrize(("widgets", "on_page"), [(None, False), (object(), True)])
def test_a_page_without_ipywidgets_shows_no_progress_and_no_warning(
    monkeypatch, capsys, widgets, on_page
):
    """rich warns of missing widgets at each refresh, some ten times a second."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a kernel's standard error says that it is a terminal
    monkeypatch.setattr(status, "find_spec", lambda name: widgets)
    console = status.open_console()
    assert console.is_jupyter is on_page
    if not on_page:
        assert not console.is_terminal
        with status.status_line(True) as report:  # a warning would be an error here
            report("working")
        assert not capsys.readouterr().err


def test_a_log_has_a_line_from_time_to_time_as_long_as_the_work_goes_on(monkeypatch, capsys):
    """Also where nothing new is to be said, and at most 15 seconds apart."""
    assert status.LOG_SECONDS <= 12.0
    monkeypatch.setattr(status, "LOG_SECONDS", 0.05)
    with status.status_line(True, lambda: ", compiling run") as report:
        report("working [bold]hard[/bold]")
        with report.aside():  # nothing else is in the way of a log
            time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 6
    assert set(lines) == {"0:00:00 working hard, compiling run"}
    time.sleep(0.1)
    assert not capsys.readouterr().err


def test_other_lines_on_a_terminal_come_without_the_status_line(monkeypatch):
    console = Console(force_terminal=True, width=80, file=io.StringIO())
    monkeypatch.setattr(status, "open_console", lambda theme: console)
    with status.status_line(True) as report:
        report("working")
        assert report.live.is_started
        with report.aside():
            assert not report.live.is_started
        assert report.live.is_started
    assert "working" in console.file.getvalue()
