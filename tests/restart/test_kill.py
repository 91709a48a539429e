"""A process that is killed, for real, and what another one makes of its checkpoint."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support.kept_checkpoints import assert_same, run

import pymc_tempering as pmt

DRAWS = 30_000
SCRIPT = (
    "import sys, pymc_tempering as pmt\n"
    "from conftest import make_model\n"
    f"pmt.sample({DRAWS}, model=make_model(), random_seed=1, quiet=True, keep=None, cores=2,\n"
    "           checkpoint=sys.argv[1], checkpoint_every=0.05)\n"
)


def wait_until(condition, child, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None, "the child ended by itself"
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.slow("interrupts and restarts")
@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL there")
def test_a_killed_run_ends_with_the_draws_of_one_that_was_not(model, tmp_path):
    path = tmp_path / "run.zarr"
    search = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, path], env=os.environ | {"PYTHONPATH": search},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        # The third checkpoint is under way, or will be soon.
        wait_until(lambda: len(list(path.glob("*-chains.npz"))) >= 2, child)
        child.kill()
        code = child.wait(timeout=60)
    finally:
        child.kill()
    assert code == -signal.SIGKILL
    again = pmt.resume(path, model=model, quiet=True)
    assert_same(run(model, draws=DRAWS, keep=None), again)
