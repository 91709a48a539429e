"""What the reproduction page says to hold follows from the tables, and sections can stay."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import reproduce
from reproduce_pieces_hais import ORDER, judge_factors, judge_figure4, judge_figure5, judge_table1
from reproduce_pieces_vt import judge_figure2, judge_patches

HOLDS, NOT = "**holds**", "**does not hold**"


def lines(values, error="0.1"):
    return [
        {"model": name, "rungs": "1000", "estimate": value, "mcse": error, "exact": "-43.5"}
        for name, value in zip(ORDER, values, strict=True)
    ]


def test_the_order_of_table_1():
    assert judge_table1(lines(["-43.5", "-27.5", "-15.8"])).startswith(HOLDS)
    assert judge_table1(lines(["-43.5", "-15.8", "-27.5"])).startswith(NOT)
    assert judge_table1(lines(["-43.5", "-27.5", "-15.8"], "inf")).startswith(NOT)


def test_a_path_that_is_known_to_miss_mass_is_not_the_best():
    wrong = {
        "model": "mcRBM, by chains alone, own path",
        "rungs": "9",
        "estimate": "22",
        "mcse": "0",
    }
    said = judge_table1([*lines(["-43.5", "-27.5", "-15.8"]), wrong])
    assert "the best is experts, Student-t, -15.80" in said


def test_figure_5_needs_finite_errors():
    rows = [
        {"kind": kind, "experts": n, "method": "HAIS", "learned by": "chains", "mcse": "0.1",
         "log likelihood": str(base + int(n))}
        for kind, base in (("Laplace", 0), ("Student-t", 5)) for n in ("36", "72")
    ]  # fmt: skip
    assert judge_figure5(rows).count(HOLDS) == 3
    assert judge_figure5([*rows[:3], rows[3] | {"mcse": "inf"}]).startswith("**not shown**")


def test_figure_4_needs_a_finite_error_and_the_exact_value():
    assert judge_figure4(lines(["-43.6", "0", "0"])).startswith(HOLDS)
    assert judge_figure4(lines(["-44.0", "0", "0"])).startswith(NOT)
    assert judge_figure4(lines(["-43.6", "0", "0"], "inf")).startswith(NOT)


@pytest.mark.parametrize("times", [3, 30])
def test_factors_are_those_of_the_curves(times):
    rng, rows = np.random.default_rng(0), []
    for method, cost in {"HAIS": 1, "AIS, leapfrog": times, "AIS, Gaussian": 40}.items():
        for n in (10, 30, 100, 300, 1000, 3000, 10000):
            rmse = np.sqrt(100.0 * cost / n)
            rows += [
                {"model": "laplace", "method": method, "rungs": str(n), "error": str(rmse * sign)}
                for sign in rng.choice([-1.0, 1.0], size=12)
            ]
    said = judge_factors(rows).split("; ")
    assert said[0].startswith(HOLDS if times >= 10 else NOT)
    assert f"needs {times}.0 times" in said[0]
    assert said[1].startswith(HOLDS)


def words(values, error):
    return [
        {"method": name, "after 1": "0", "after 25": value, "its se": error}
        for name, value in values.items()
    ]


def test_held_out_words_are_judged_by_their_errors():
    values = {"SVI": "-8.2", "AVI from 1.5": "-8.1", "VT, T to 10": "-8.11", "LVT, to 0.5": "-8.0"}
    said = judge_figure2(words(values, "0.01"))
    assert said.count(HOLDS) == 3
    said = judge_figure2(words(values | {"LVT, to 0.5": "-8.1"}, "0.01"))
    assert said.count(HOLDS) == 2
    assert NOT in said.split(". ")[-1]
    assert judge_figure2(words(values, "nan")).count(HOLDS) == 0  # no error, no claim


def test_held_out_patches():
    values = {"VI": "-31", "AVI lin 5": "-27.3", "VT": "-28.1"}
    rows = [{"method": name, "held out": v, "its se": "0.1"} for name, v in values.items()]
    said = judge_patches(rows).split(". ")
    assert HOLDS in said[0]
    assert said[1].startswith(NOT)


def test_sections_of_papers_that_are_not_run_stay(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("# Old\n\n## RTS, Speed\n\nSmall run (`rts_speed.py`, 30 seconds): kept.\n")
    monkeypatch.setattr(reproduce, "HAIS_PIECES", ())
    monkeypatch.setattr(reproduce, "VT_PIECES", ())
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "--page", str(page), "--papers", "HAIS"])
    reproduce.main()
    text = page.read_text()
    assert text.startswith("# Reproduction of the papers' figures")
    assert "kept." in text
    assert "took 30 seconds" in text
