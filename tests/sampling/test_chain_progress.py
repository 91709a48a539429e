"""Bars of chains: none for a short run, no "nan", and percent; what rounds wanted."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_tempering.sampling import recorded
from pymc_tempering.sampling.call import Goal
from pymc_tempering.sampling.recorded import ChainProgress

TOTAL = 200


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(time=100.0)
    monkeypatch.setattr(recorded, "perf_counter", lambda: now.time)
    return now


@pytest.fixture(autouse=True)
def _known_log_z(monkeypatch):
    value = {0: np.nan}
    monkeypatch.setattr(
        recorded,
        "running_log_z",
        lambda runs, ladder: value.get(runs[0].state.n_draws, -12.345),
    )
    monkeypatch.setenv("COLUMNS", "160")


def chains(n=2):
    record = SimpleNamespace(scalars=np.zeros((TOTAL, 20)))
    return [SimpleNamespace(state=SimpleNamespace(n_draws=0), record=record) for _ in range(n)]


def test_a_short_run_shows_no_bars(clock, capsys):
    runs = chains()
    with ChainProgress(runs, None, TOTAL, True, None) as bars:
        for n in (0, 50, TOTAL):
            for run in runs:
                run.state.n_draws = n
            clock.time += 0.1
            bars.update()
    assert not bars.shows
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("mode", [True, "combined+stats"])
def test_a_long_run_shows_percent_and_no_nan(clock, capsys, mode):
    runs = chains()
    with ChainProgress(runs, None, TOTAL, mode, None) as bars:
        clock.time += 1.0
        bars.update()
        assert not bars.shows  # no draws to tell of
        for n in (50, TOTAL):
            for run in runs:
                run.state.n_draws = n
            clock.time += 1.0
            bars.update()
    shown = capsys.readouterr().out
    assert bars.shows
    assert "nan" not in shown
    last = shown.split("Done")[-1]
    assert "100 %" in last
    assert "-12.3" in last


def test_an_unknown_log_z_is_left_out(clock, capsys, monkeypatch):
    monkeypatch.setattr(recorded, "running_log_z", lambda runs, ladder: np.nan)
    runs = chains(1)
    with ChainProgress(runs, None, TOTAL, True, None) as bars:
        clock.time += 1.0
        runs[0].state.n_draws = 20
        bars.update()
    assert bars.shows
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Goal(), ""),
        (Goal(target_mcse=0.01), "; wanted: mcse 0.01"),
        (Goal(target_ess=400.0, max_time=60.0), "; wanted: ESS 400, within 60 s"),
        (Goal(max_steps=10**6), "; wanted: evaluations 1,000,000"),
    ],
)
def test_the_line_of_a_round_ends_with_what_was_wanted(goal, words):
    assert goal.wanted() == words
