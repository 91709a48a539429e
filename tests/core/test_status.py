"""Where progress is shown, in a notebook too."""

import pytest

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
