"""The status line says what is being compiled, and nothing where nothing is, or if it is quiet."""

import errno
import tempfile
from io import StringIO
from types import SimpleNamespace

import pytest
from numba.core.event import Event, EventStatus, _registered
from rich.console import Console
from support.small_models import mean_only

import pymc_tempering as pmt
from pymc_tempering.core import status
from pymc_tempering.core.status import status_line
from pymc_tempering.model.compilations import CompilationWatch, compiling_status
from pymc_tempering.model.jit import njit


def event(kind, name=""):
    function = SimpleNamespace(py_func=SimpleNamespace(__name__=name))
    return Event("numba:compile", kind, {"dispatcher": function})


def begin(watch, name):
    watch.notify(event(EventStatus.START, name))


def end(watch):
    watch.notify(event(EventStatus.END))


def test_the_outermost_function_is_named_and_all_are_counted():
    watch = CompilationWatch()
    assert watch.note() == ""
    begin(watch, "run")
    begin(watch, "evaluate")
    end(watch)
    begin(watch, "_move")
    assert (
        watch.note()
        == ", compiling run (3 functions in 0 s so far, kept on disk for the next time)"
    )
    end(watch)
    end(watch)
    assert watch.note() == ""


def test_time_between_functions_does_not_count(monkeypatch):
    clock = iter([10.0, 15.0, 115.0, 117.0])
    monkeypatch.setattr("pymc_tempering.model.compilations.perf_counter", lambda: next(clock))
    watch = CompilationWatch()
    begin(watch, "run")
    end(watch)
    begin(watch, "adapt")
    assert (
        watch.note()
        == ", compiling adapt (2 functions in 7 s so far, kept on disk for the next time)"
    )


def test_an_end_without_a_beginning_is_of_another_thread():
    watch = CompilationWatch()
    end(watch)
    begin(watch, "run")
    assert "run (1 " in watch.note()


def test_a_real_compilation_is_seen_and_the_listener_leaves(monkeypatch):
    seen = []

    class Watch(CompilationWatch):
        def on_start(self, event):
            super().on_start(event)
            seen.append(self.note())

    monkeypatch.setattr("pymc_tempering.model.compilations.CompilationWatch", Watch)
    before = list(_registered["numba:compile"])
    with compiling_status(True) as report:
        report("Working")
        njit(key=None)(eval("lambda x: x + 1.0"))(1.0)  # not kept: a second run compiles it too
    assert seen
    assert seen[0].startswith(", compiling <lambda> (1 functions in 0 s")
    assert _registered["numba:compile"] == before


def test_the_line_carries_the_note(monkeypatch):
    console = Console(force_terminal=True, record=True, width=100, file=StringIO())
    monkeypatch.setattr(status, "open_console", lambda theme: console)
    with status_line(True, lambda: ", compiling run") as report:
        report("Learning")
        console.print("")  # refreshes the line
    assert "Learning, compiling run" in console.export_text()


def test_quiet_stays_quiet(capfd):
    before = list(_registered["numba:compile"])
    with compiling_status(False) as report:
        report("Working")
        assert _registered["numba:compile"] == before
    assert capfd.readouterr() == ("", "")


DOORS = {
    "sample": lambda model: pmt.sample(9, model=model, quiet=True),
    "SimulatedTempering": lambda model: pmt.SimulatedTempering(model=model, quiet=True),
    "compile": lambda model: pmt.compile(model, progressbar=False),
    "smc": lambda model: pmt.smc(model, progressbar=False),
    "fit": lambda model: pmt.fit(9, model=model, progressbar=False),
}


@pytest.mark.parametrize("name", DOORS)
def test_a_temporary_folder_that_is_gone_is_named(name, monkeypatch, tmp_path):
    """PyTensor writes a file there for each graph, and said "No such file or directory"."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(pmt.exceptions.FolderError, match=r"No such file.*gone\).*set .*TMPDIR"):
        DOORS[name](mean_only())


def test_the_folders_that_were_tried_are_named(monkeypatch):
    def none():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/none']")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(pmt.exceptions.FolderError, match=r"found in \['/none'\]\. Make one, or"):
        DOORS["sample"](mean_only())
