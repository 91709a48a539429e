"""The script on the page "Past one machine" runs as printed, on a local cluster."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

PAGE = Path(__file__).resolve().parents[2] / "docs" / "past_one_machine.md"


def exact():
    """Log evidences of the two models of the page, in closed form."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=20)
    y = 0.5 * x + rng.normal(size=20)
    level = np.eye(20) + 1.0
    normal = [stats.multivariate_normal(np.zeros(20), c) for c in (level, level + np.outer(x, x))]
    return [law.logpdf(y) for law in normal]


@pytest.mark.slow("other processes")
def test_the_script_runs_as_printed(tmp_path):
    [script] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    level, line = exact()
    rows = dict(re.findall(r"^(level|line) +(-[\d.]+)", done.stdout, re.M))
    [(ais, error)] = re.findall(r"^(-[\d.]+) ([\d.]+)$", done.stdout, re.M)
    [sampled] = re.findall(r"^(-[\d.]+)$", done.stdout, re.M)
    # Errors are below .02, as the table says; the bound is six of them.
    assert abs(float(rows["level"]) - level) < 0.12
    assert abs(float(rows["line"]) - line) < 0.12
    assert abs(float(sampled) - line) < 0.12
    assert abs(float(ais) - line) < 5 * float(error)
    files = {path.suffix for path in (tmp_path / "runs").iterdir()}
    assert {".nc", ".json"} <= files
