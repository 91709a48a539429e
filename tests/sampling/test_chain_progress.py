"""How far chains are: whole numbers at any width, a line in a log; and what rounds wanted."""

import io
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from pymc.progress_bar.rich_progress import RichProgressBackend
from rich.console import Console

import pymc_tempering as pmt
from pymc_tempering.chain.loop import N_DIVERGENCES, RB_WEIGHT, TOUR_START
from pymc_tempering.core import status
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.sampling.call import Goal
from pymc_tempering.sampling.progress import ChainProgress

TOTAL, LOG_Z = 20_000, -123_456.7
LADDER = Ladder(np.array([0.0, 1.0]), np.array([0.0, LOG_Z]), np.zeros(2))


def chain(n_draws):
    """A chain in which each draw ends a tour and diverges."""
    scalars = np.zeros((TOTAL, 20))
    scalars[:n_draws, [TOUR_START, N_DIVERGENCES]] = 1.0
    per_rung = np.zeros((TOTAL, len(RUNG_STATS), 2))
    per_rung[:, RB_WEIGHT] = 1.0
    state = SimpleNamespace(n_draws=n_draws)
    return SimpleNamespace(state=state, record=SimpleNamespace(scalars=scalars, per_rung=per_rung))


def shown(runs, width, mode=True, passed=3000.0):
    of = ChainProgress(runs, LADDER, TOTAL, mode)
    of.began, of.before = of.began - passed, 0.0
    console = Console(width=width, file=io.StringIO())
    console.print(of)
    return of, console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_number_and_no_heading_is_cut_at_any_width(width):
    """Where all columns are shown at 80, "-123456.70" ends in an ellipsis."""
    of, text = shown([chain(0), chain(123), chain(19_876)], width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    heading, _, *rows = [line for line in text.splitlines() if line.strip()]
    assert len(rows) == 3
    cells = [value for name, value in of.cells(of.rows[2]).items() if name in heading]
    assert len(cells) >= 3
    assert all(f" {value} " in rows[2] for value in cells)


def test_a_wide_terminal_has_all_columns_and_80_have_log_z():
    of, wide = shown([chain(5)], 140)
    _, narrow = shown([chain(5)], 80)
    assert all(name in wide for name in of.cells(of.rows[0]))
    assert "log Z" in narrow
    assert "Draws/s" not in narrow


def test_chains_may_be_one_row_and_nothing_is_not_a_number():
    _, text = shown([chain(100), chain(0)], 80, "combined")
    assert len([line for line in text.splitlines() if line.strip()]) == 3
    assert "log Z" not in text
    none, text = shown([chain(0)], 140)
    assert "nan" not in text + str(none)


def test_the_line_of_a_log_tells_the_same():
    of, _ = shown([chain(10_000), chain(5_000)], 80)
    assert str(of) == (
        "Sampling: 15,000 of 40,000 draws of 2 chains, left 1:23:20, log Z -123456.70, "
        "round trips 14,998, divergences 15,000, draws/s 5"
    )


@pytest.mark.slow("compiles models of its own")
def test_a_run_into_a_log_tells_what_it_is_at_from_beginning_to_end(monkeypatch, capfd):
    monkeypatch.setattr(status, "LOG_SECONDS", 0.02)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 10), 1, observed=[1.0, 2.0])
    pmt.sample(60_000, chains=1, model=model, random_seed=1, compute_convergence_checks=False)
    lines = capfd.readouterr().err.splitlines()
    for words in ("Annealed pass: ", "Sampling: ", "Putting the draws together"):
        assert [line for line in lines if line.startswith("0:00:") and words in line], words


@pytest.mark.parametrize("width", [80, 110])
def test_no_number_in_the_table_of_pm_sample_is_cut(width, monkeypatch):
    """With two more columns on 80 characters the times of PyMC's end in an ellipsis."""
    monkeypatch.setenv("COLUMNS", str(width))
    columns = pmt.SimulatedTempering.columns()
    shown = pmt.SimulatedTempering.shown({"tempering_steps": 12, "beta_min": 0.0123})
    stats = {name: [value] for name, value in shown.items()} | {"draw": [0], "marker_pos": [0]}
    bars = RichProgressBackend("Draw", 1, 2000, False, True, columns, stats)
    console = Console(width=width, file=io.StringIO())
    bars._initialize_tasks()
    bars.update(0, 1999, False, {"draw": 1999} | shown, False)
    bars._progress.update(0, sampling_speed=1042.99)
    console.print(bars._progress.get_renderable())
    text = console.file.getvalue()
    [row] = [line for line in text.splitlines() if "1999" in line]
    assert "…" not in row
    assert "1042.99 draws/s" in row
    assert ("Steps/draw" in text) == (width == 110)


@pytest.mark.parametrize("door", ["sample", "resume", "extend"])
def test_a_wrong_word_is_refused_before_any_work(door):
    given = {"sample": {}, "resume": {"path": "nowhere"}, "extend": {"idata": None, "draws": 1}}
    with pytest.raises(ValueError, match="progressbar must be one of 'combined'"):
        getattr(pmt, door)(**given[door], progressbar="rows")


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
