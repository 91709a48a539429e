"""Ctrl-C and SIGTERM at each stage of a call: what is there is returned, or can be gone on with."""

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from support.kept_checkpoints import assert_same
from support.small_models import mean_only

import pymc_tempering as pmt
from pymc_tempering.sampling import (
    choose_plan,
    finish,
    fit_reference,
    rounds,
    sample as front,
    search,
)
from pymc_tempering.warmup import warm_up

STAGES = {
    "compiling": (front, "compile_with_kernels"),
    "annealed pass": (fit_reference, "anneal"),
    "first fit": (choose_plan, "fit_to_passes"),
    "fit": (choose_plan, "fit_reference"),
    "looks": (search, "take_looks"),
    "search": (choose_plan, "search"),
    "weights": (warm_up, "settle"),
    "reference draws": (rounds, "draw_beside"),
    "chains": (rounds, "run_chains"),
    "draws that suffice": (rounds, "least_ess"),
    "DataTree": (finish, "build_datatree"),
    "evidence": (finish, "diagnose"),
}
"""Where each stage is called from."""

KWARGS = {"draws": 300, "chains": 2, "cores": 2, "random_seed": 1, "quiet": True, "target_ess": 50}


@pytest.fixture(scope="module")
def model():
    return mean_only()


@pytest.fixture(scope="module")
def whole(model):
    return pmt.sample(model=model, **KWARGS)


def call(model, path):
    """Sample; None after a KeyboardInterrupt."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        try:
            return pmt.sample(model=model, checkpoint=path, **KWARGS)
        except KeyboardInterrupt:
            return None


def judge(found, path, model, whole):
    """A run that was returned has draws; a checkpoint goes on, or it is said that there is none."""
    if found is not None:
        assert found.posterior.sizes["draw"] > 0
        assert np.isfinite(found.posterior["mu"].values).all()
    again = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        try:
            again = pmt.resume(path, model=model, quiet=True)
        except pmt.exceptions.CheckpointError as error:
            said = str(error)
    if again is None:
        assert found is None
        assert "no checkpoint" in said
        return "nothing stored"
    if found is not None and "tempering_check" not in found.children:
        n = found.posterior.sizes["draw"]
        first = again.posterior["mu"].values[:, :n]
        assert all((one == first).all(axis=1).any() for one in found.posterior["mu"].values)
        return "short run"
    assert_same(whole, again)
    return "resumed"


def signal_at(monkeypatch, module, name, send):
    original, sent = getattr(module, name), []

    def at_stage(*args, **kwargs):
        if not sent:
            sent.append(1)
            send()
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, at_stage)
    return sent


@pytest.mark.slow("interrupts and restarts", every=4)
@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_at_a_stage(monkeypatch, model, whole, tmp_path, stage):
    path = tmp_path / "run.zarr"
    with monkeypatch.context() as patch:
        sent = signal_at(patch, *STAGES[stage], lambda: signal.raise_signal(signal.SIGINT))
        found = call(model, path)
    assert sent
    outcome = judge(found, path, model, whole)
    late = list(STAGES).index(stage) >= list(STAGES).index("reference draws")
    assert outcome == "resumed" if late else outcome in ("nothing stored", "short run")


@pytest.fixture(scope="module")
def usual(model, whole, tmp_path_factory):
    """Seconds of a call that is not the first one."""
    folder = tmp_path_factory.mktemp("usual")
    call(model, folder / "first.zarr")
    began = time.perf_counter()
    call(model, folder / "second.zarr")
    return time.perf_counter() - began


@pytest.mark.slow("interrupts and restarts", quick=["3"])
@pytest.mark.parametrize("seed", range(5))
def test_ctrl_c_at_a_random_moment(model, whole, usual, tmp_path, seed):
    path = tmp_path / "run.zarr"
    timer = threading.Timer(usual * np.random.default_rng(seed).random(), _thread.interrupt_main)
    timer.start()
    try:
        found = call(model, path)
        timer.cancel()
        timer.join()
        time.sleep(0.01)
    except KeyboardInterrupt:  # it came behind the call
        found = None
    judge(found, path, model, whole)


@pytest.mark.parametrize("stage", ["annealed pass", "looks", "chains"])
def test_sigterm_at_a_stage(monkeypatch, model, whole, tmp_path, stage):
    path, handler = tmp_path / "run.zarr", signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        sent = signal_at(patch, *STAGES[stage], lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(SystemExit) as ended:
            call(model, path)
    assert sent
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == handler
    outcome = judge(None, path, model, whole)
    assert outcome == ("resumed" if stage == "chains" else "nothing stored")


DRAWS = 10_000
SCRIPT = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
import pymc_tempering as pmt
from support.small_models import mean_only

model = mean_only()
pmt.sample(20, model=model, random_seed=1, quiet=True, reference="prior", chains=2)
context = multiprocessing.get_context("fork")  # what is compiled is there at once
with ProcessPoolExecutor(2, mp_context=context) as pool:
    list(pool.map(abs, range(8)))
    print(*pool._processes, flush=True)
    pmt.sample(
        int(sys.argv[2]), model=model, random_seed=1, quiet=True, reference="prior", chains=2,
        keep=None, executor=pool, checkpoint=sys.argv[1], checkpoint_every=0.1,
    )
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow("other processes")
@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM and no fork there")
def test_sigterm_leaves_a_checkpoint_and_no_workers(model, tmp_path):
    path = tmp_path / "run.zarr"
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, path, str(DRAWS)],
        stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        workers = [int(word) for word in child.stdout.readline().split()]
        assert len(workers) == 2
        end = time.monotonic() + 240
        while not list(path.glob("*-chains.npz")):  # the chains begin
            assert child.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        child.terminate()
        code = child.wait(timeout=120)
    finally:
        child.kill()
        child.stdout.close()
    assert code == 143
    assert not any(alive(pid) for pid in workers)
    again = pmt.resume(path, model=model, quiet=True)
    kwargs = {"random_seed": 1, "quiet": True, "reference": "prior", "chains": 2, "keep": None}
    assert_same(pmt.sample(DRAWS, model=model, **kwargs), again)
