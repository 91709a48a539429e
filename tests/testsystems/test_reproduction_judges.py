"""What the reproduction page says to hold follows from the tables, and sections can stay."""

import sys

from benchmarks.papers import reproduce

HOLDS, NOT = "**holds**", "**does not hold**"


def test_figure_1_of_rts():
    rows = [
        {"way": way, "round": "12", "log Z off": off}
        for way, off in (("Rao-Blackwell", "-0.4"), ("counts", "-109.7"))
    ]
    assert reproduce.judge_rts_figure1(rows).startswith(HOLDS)
    assert reproduce.judge_rts_figure1([rows[0] | {"log Z off": "3"}, rows[1]]).startswith(NOT)
    assert reproduce.judge_rts_figure1([rows[0], rows[1] | {"log Z off": "3"}]).startswith(NOT)


def test_figure_3_of_rts():
    row = {
        "machine": "784 x 500 (rbm)", "method": "RTS", "sweeps": "1000", "mean": "451.3",
        "RMSE": "0.3", "RMSE from": "0.2", "RMSE to": "0.4", "repeats": "30",
    }  # fmt: skip
    ais = row | {"method": "AIS", "sweeps": "10000"}
    assert reproduce.judge_figure3([row, ais]).count(HOLDS) == 2
    assert reproduce.judge_figure3([row | {"mean": "450.9", "RMSE": "0.5"}, ais]).count(NOT) == 2


def test_optima_that_all_starts_find():
    rows = [{"method": "VI", "all found": "60%"}, {"method": "VT", "all found": "100%"}]
    assert reproduce.judge_figure1(rows).startswith(HOLDS)
    assert reproduce.judge_figure1([rows[0] | {"all found": "100%"}, rows[1]]).startswith(NOT)


def test_the_factorial_mixture_has_the_better_optimum():
    elbo = {"VI": "-11637", "AVI exp 100": "-9377", "VT": "-9327"}
    rows = [{"method": name, "ELBO median": v, "all found": "0%"} for name, v in elbo.items()]
    assert reproduce.judge_factorial(rows).startswith(HOLDS)
    worse = [*rows[:2], rows[2] | {"ELBO median": "-12000"}]
    assert reproduce.judge_factorial(worse).startswith(NOT)


def test_held_out_patches():
    values = {"VI": "-31", "AVI lin 5": "-27.3", "VT": "-28.1"}
    rows = [{"method": name, "held out": v, "its se": "0.1"} for name, v in values.items()]
    said = reproduce.judge_patches(rows).split(". ")
    assert HOLDS in said[0]
    assert said[1].startswith(NOT)


def test_sections_of_papers_that_are_not_run_stay(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    section = (
        "## RTS, Figure 1: initial iterations\n\nSmall run (`rts_figure1.py`, 30 seconds): kept."
    )
    page.write_text(f"# Old\n\n{section}\n")
    of_rts = tuple(piece for piece in reproduce.PIECES if piece.paper == "RTS")
    monkeypatch.setattr(reproduce, "PIECES", of_rts)
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "--page", str(page), "--papers", "VT"])
    reproduce.main()
    text = page.read_text()
    assert text.startswith("# Reproduction of the papers' figures")
    assert "kept." in text
    assert "took 30 seconds" in text
