"""Random programs, each a default call, against their truth; and what the table counts."""

import math

import pytest

from benchmarks.errors.random_programs import Run, run_program, summary

SEEDS = (1, 3, 8, 9, 12, 14, 15, 17, 20, 22, 23, 26, 10072, 10144, 10332)
"""Of the programs that the package was made with: cheap ones; and those that failed once (a raw
error, or a wrong refusal)."""


@pytest.mark.slow("random models")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_is_answered(seed):
    """One in 1,700,000 sound answers is beyond 5."""
    run = Run(seed=seed, **{"status": "done"} | run_program(seed))
    assert run.status == "done", run.message
    assert run.verdict == "ok"
    assert abs(run.z) < 5
    assert run.mcse < 0.1


@pytest.mark.slow("random models")
def test_the_table_counts_what_is_wrong():
    runs = [
        Run(1, "done", z=0.5, mcse=0.01, verdict="ok", families="Normal + Beta", cpu=1.0),
        Run(2, "done", z=-1.5, mcse=0.06, verdict="ok", families="Normal", cpu=1.0),
        Run(3, "done", z=8.0, mcse=0.01, verdict="ok", families="Beta", cpu=1.0),
        Run(4, "done", z=0.0, mcse=math.inf, verdict="unchecked", cpu=1.0),
        Run(5, "refused", message="ModelError: 'x' has no density. Give it one.", cpu=1.0),
        Run(6, "over 300 CPU s"),
    ]
    rows, notes = summary(runs)
    row = rows[0]
    counts = {"ok": 3, "other verdicts": 1, "refused": 1, "raw errors": 1, "abs z > 5": 1}
    assert {key: row[key] for key in counts} == counts
    assert row["abs z > 7"] == 1
    assert row["sd z"] == pytest.approx(1.0)
    assert row["mcse > 0.05"] == 1
    assert notes["beyond 5"] == "seed 3 (z 8.0)"
    assert notes["answered"].startswith("Beta 2, Normal 2")
    assert "Cauchy" in notes["never answered"]
    assert any("has no density" in note for note in notes.values())
