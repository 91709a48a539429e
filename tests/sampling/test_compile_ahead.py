"""The loops of a first run are there before it, with the bits of those that are compiled then."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from pymc_tempering.model import ahead
from pymc_tempering.sampling import compile_ahead

RUN = """
import json, sys
from pathlib import Path
from numba.core import event
from pymc_tempering.model import ahead
ahead.FOLDER = Path(sys.argv[1])
import numpy as np, pymc as pm, pymc_tempering as pmt
rng = np.random.default_rng(1)
X = rng.normal(size=(20, 2))
with pm.Model():
    b = pm.Normal("b", 0, 2, shape=2)
    pm.Normal("y", X @ b, 1, observed=rng.normal(size=20))
    with event.install_recorder("numba:compile") as told:
        idata = pmt.sample(50, random_seed=1, quiet=True, compute_convergence_checks=False)
names = {entry.data["dispatcher"].py_func.__name__ for _, entry in told.buffer}
draws = idata.posterior["b"].values
bits = [draws.tobytes().hex(), float(pmt.log_marginal_likelihood(idata).log_z)]
print(json.dumps([sorted(names), bits]))
"""


def in_a_process(folder, cache):
    flags = f"base_compiledir={cache}/pytensor"
    environment = os.environ | {"NUMBA_CACHE_DIR": f"{cache}/numba", "PYTENSOR_FLAGS": flags}
    command = [sys.executable, "-W", "ignore", "-c", RUN, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The functions and the bits of a run with all compiled then, with loops ahead, and again."""
    root = tmp_path_factory.mktemp("ahead")
    if ahead.FOLDER.is_dir():  # the set-up did it; entries of these sources are as they are
        shutil.copytree(ahead.FOLDER, root / "ahead")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_ahead, "FOLDER", root / "ahead")
        patch.setattr(ahead, "FOLDER", root / "ahead")
        compile_ahead.main()
    assert len(list((root / "ahead").iterdir())) == 9
    plain = in_a_process(root / "none", root / "plain")
    first = in_a_process(root / "ahead", root / "user")
    second = in_a_process(root / "ahead", root / "user")
    return plain, first, second


SHARED = {"run", "sweep_states", "explore", "evaluate_rows", "product", "hmc_transition"}


def test_a_first_run_compiles_its_model_alone(runs):
    plain, first, second = (set(names) for names, _ in runs)
    assert plain >= SHARED
    assert not first & SHARED
    assert "density" in first
    assert second == set()


def test_the_bits_are_those_of_loops_that_are_compiled_then(runs):
    plain, first, second = (bits for _, bits in runs)
    assert first == plain
    assert second == plain


def test_entries_of_other_sources_are_removed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(compile_ahead, "FOLDER", tmp_path)
    monkeypatch.setattr(ahead, "FOLDER", tmp_path)
    monkeypatch.setattr(compile_ahead, "shared_functions", lambda: iter(()))
    old = tmp_path / "run.0123456789abcdef"
    old.write_bytes(b"old")
    compile_ahead.main()
    assert not old.exists()
    assert capsys.readouterr().out == "0 functions compiled ahead, 0 kB\n"
