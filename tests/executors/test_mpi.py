"""The script for MPI on the page "Past one machine", where MPI and mpi4py are installed."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "past_one_machine.md"

MORE = """
    alone = pmt.ais(level(), random_seed=1)
    print("same", (alone.log_z, alone.mcse) == (evidence.log_z, evidence.mcse))
    here = pmt.sample_many({"level": level}, random_seed=1, cores=1)
    print("same", here.log_z["level"] == table.log_z["level"])
"""

OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
"""Three processes, whatever the machine has and whoever asks."""


@pytest.mark.skipif(
    shutil.which("mpiexec") is None or importlib.util.find_spec("mpi4py") is None,
    reason="MPI or mpi4py is not installed",
)
def test_the_script_for_mpi_runs_as_printed_and_gives_the_same_bits(tmp_path):
    section = PAGE.read_text("utf-8").split("## MPI")[1]
    [script] = re.findall(r"^```\n(.*?)^```", section.split("\n## ")[0], re.DOTALL | re.M)
    (tmp_path / "run.py").write_text(script + MORE, encoding="utf-8")
    command = ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", "run.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | OPEN_MPI,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^same (\w+)$", done.stdout, re.M) == ["True", "True"]
    assert {path.suffix for path in (tmp_path / "runs").iterdir()} >= {".nc", ".json"}
