"""Checkpoints of runs whose chains are on the workers of an executor, and going on with them."""

from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from support.kept_checkpoints import assert_same, run, run_and_keep_all

import pymc_tempering as pmt
from pymc_tempering.chain import chains, pieces
from pymc_tempering.exceptions import TemperingWarning

pytestmark = pytest.mark.filterwarnings("ignore:The draws tell too little")

CASES = {
    "prior": {"draws": 700, "reference": "prior", "keep": "states", "tune": 7},
    "target": {"draws": 150, "target_mcse": 0.006, "reference": "auto", "keep": None},
}


class FewChunks:
    """A time limit that is over after three chunks of iterations."""

    def __init__(self, at):
        self.asked = 0

    def is_set(self):
        self.asked += 1
        return self.asked > 3


class BreaksAt(ThreadPoolExecutor):
    """Loses its workers when so many tasks were sent."""

    def __init__(self, n):
        super().__init__(1)
        self.left = n

    def submit(self, fn, /, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            raise BrokenExecutor("a process died")
        return super().submit(fn, *args, **kwargs)


@pytest.fixture
def short_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "TimeLimit", FewChunks)


@pytest.mark.slow("other processes")
@pytest.mark.parametrize("name", CASES)
def test_from_each_checkpoint_the_same_draws_come_here_and_there(
    model, tmp_path, monkeypatch, short_pieces, name
):
    whole = run(model, **CASES[name])
    with ThreadPoolExecutor(2) as pool:
        sent, copies = run_and_keep_all(monkeypatch, tmp_path, model, executor=pool, **CASES[name])
        assert_same(whole, sent)
        # One before the first draw, one at the end, and some between.
        assert len(copies) >= 4
        first, middle, late = (copies[i] for i in (0, len(copies) // 2, -2))
        for path in (first, late):
            assert_same(whole, pmt.resume(path, model=model, quiet=True, cores=1))
        assert_same(whole, pmt.resume(middle, model=model, quiet=True, executor=pool))


@pytest.mark.slow("other processes")
def test_a_checkpoint_here_goes_on_there(model, tmp_path, monkeypatch, short_pieces):
    whole = run(model, **CASES["prior"])
    _, copies = run_and_keep_all(monkeypatch, tmp_path, model, **CASES["prior"])
    with ThreadPoolExecutor(1) as pool:
        path = copies[len(copies) // 2]
        assert_same(whole, pmt.resume(path, model=model, quiet=True, executor=pool))


@pytest.mark.slow("other processes")
@pytest.mark.filterwarnings("ignore:Interrupted")
def test_after_the_loss_of_all_workers_the_run_goes_on(model, tmp_path, monkeypatch, short_pieces):
    """The first pieces of all four chains come back; then the pool is gone."""
    monkeypatch.setattr(chains, "FIRST_CHUNK", 100)
    monkeypatch.setattr(chains, "MAX_CHUNK", 200)
    path, whole = tmp_path / "run.zarr", run(model, **CASES["prior"])
    with (
        BreaksAt(6) as pool,
        pytest.warns(TemperingWarning, match=r"threads broke.*pmt\.resume goes on"),
    ):
        cut = run(model, path, executor=pool, **CASES["prior"])
    assert cut["tempering"].attrs["interrupted"] == 1
    n = cut.posterior.sizes["draw"]
    assert 0 < n < 700
    np.testing.assert_array_equal(cut.posterior["mu"], whole.posterior["mu"][:, :n])
    assert_same(whole, pmt.resume(path, model=model, quiet=True))
