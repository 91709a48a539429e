"""Two runs in one process: in threads, in an event loop, in a forked worker; bits as alone.

`tests/executors/test_same_bits.py` has spawned workers.
"""

import asyncio
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from support.kept_checkpoints import assert_same
from support.small_models import downstream, mean_only

import pymc_tempering as pmt

pytestmark = pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")

BUILDS = (mean_only, downstream)


def run(model, path=None, **kwargs):
    few = {"draws": 60, "chains": 2, "cores": 2, "random_seed": 1, "quiet": True}
    return pmt.sample(model=model, checkpoint=path, **few | kwargs)


@pytest.fixture(scope="module")
def alone():
    return [run(build()) for build in BUILDS]


@pytest.mark.slow("compiles models of its own")
def test_two_runs_in_threads(alone, tmp_path):
    """Each builds and compiles its own model, and writes its own checkpoint."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda i: run(BUILDS[i](), tmp_path / f"{i}.zarr"), range(2))
        for one, other in zip(alone, found, strict=True):
            assert_same(one, other)


@pytest.mark.slow("compiles models of its own")
def test_two_runs_of_one_model_in_threads(alone):
    model = mean_only()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda seed: run(model, random_seed=seed), [1, 2])
    assert_same(alone[0], first)
    assert_same(run(mean_only(), random_seed=2), second)


@pytest.mark.slow("compiles models of its own")
def test_in_a_loop_of_events_that_runs(alone):
    """As in a notebook."""

    async def cells():
        here = run(mean_only())
        there = await asyncio.gather(*(asyncio.to_thread(run, build()) for build in BUILDS))
        return here, *there

    for one, other in zip((alone[0], *alone), asyncio.run(cells()), strict=True):
        assert_same(one, other)


@pytest.mark.slow("other processes")
@pytest.mark.skipif(os.name == "nt", reason="no fork there")
def test_in_a_forked_worker(alone):
    model = mean_only()
    run(model)  # what is compiled goes along
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert_same(alone[0], run(model, executor=pool))
        assert_same(alone[0], pool.submit(run_fresh).result())


def run_fresh():
    return run(mean_only())
