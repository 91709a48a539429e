"""Every front door with an executor: the same bits by all engines, and after a lost worker."""

import multiprocessing
import os
import signal
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import loky
import numpy as np
import pytest
from distributed import Client, LocalCluster
from numba.core.event import install_listener
from support.small_runs import DATASETS, SHORT, front_doors, mean_of_two, same_numbers

import pymc_tempering as pmt
from pymc_tempering.chain import chains, pieces
from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.executors import chunks
from pymc_tempering.executors.chunks import as_it_is
from pymc_tempering.model.compilations import CompilationWatch

pytestmark = pytest.mark.filterwarnings(
    "ignore::pymc_tempering.exceptions.TemperingWarning",
    # Sockets of a cluster that is being closed, and of the library that reports their number.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)

NAMES = [*front_doors(None, None)]
ON_ALL = ("sample_many", "sample", "ais")
"""Front doors that run on all engines; the others go the same way as these."""


@pytest.fixture(scope="module")
def model():
    return mean_of_two()


@pytest.fixture(scope="module")
def doors(model):
    idata = pmt.sample(60, model=model, random_seed=1, quiet=True, reference="prior")
    return front_doors(model, idata)


@pytest.fixture(scope="module")
def alone(doors):
    """What each front door gives without an executor, when it is first asked for."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = doors[name](None)
        return found[name]

    return of


@pytest.fixture(scope="module")
def client():
    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "processes": True}
    with LocalCluster(n_workers=2, **settings) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.slow("other processes", every=4)
@pytest.mark.parametrize("name", NAMES)
def test_threads(doors, alone, name):
    with ThreadPoolExecutor(2) as pool:
        assert same_numbers(doors[name](pool), alone(name))


@pytest.mark.slow("other processes", quick=["ais"])
@pytest.mark.parametrize("name", [*ON_ALL, "cross_check", "fit"])
def test_processes(doors, alone, processes, name):
    assert same_numbers(doors[name](processes), alone(name))


@pytest.mark.slow("other processes")
@pytest.mark.parametrize("name", ON_ALL)
def test_loky(doors, alone, name):
    pool = loky.get_reusable_executor(max_workers=1, timeout=30)
    assert same_numbers(doors[name](pool), alone(name))
    if name == ON_ALL[-1]:
        pool.shutdown()


@pytest.mark.slow("other processes")
@pytest.mark.parametrize("name", ON_ALL)
def test_dask(doors, alone, client, name):
    assert same_numbers(doors[name](client.get_executor()), alone(name))


@pytest.mark.slow("other processes")
def test_dask_with_one_worker(doors, alone, client):
    one = next(iter(client.scheduler_info()["workers"]))
    assert same_numbers(doors["ais"](client.get_executor(workers=[one])), alone("ais"))


CHUNKS = 8


class KillsAfter(Executor):
    """An executor of Dask that kills a process as soon as so many of its tasks are done."""

    def __init__(self, client, pid, n):
        self._client = client  # so that it is known as an executor of Dask
        self.executor = client.get_executor()
        self.pid, self.n, self.done = pid, n, 0

    def submit(self, fn, /, *args):
        future = self.executor.submit(fn, *args)
        future.add_done_callback(self.count)
        return future

    def count(self, future):
        self.done += 1
        if self.done == self.n:
            os.kill(self.pid, signal.SIGKILL)


def spectrum(shared, i):
    """Take a tenth of a second or more."""
    matrices = np.random.default_rng(i).normal(size=(60, 90, 90))
    return float(shared[i] + np.linalg.svd(matrices, compute_uv=False).sum())


@pytest.mark.slow("other processes")
@pytest.mark.parametrize("after", [1, 4])
def test_what_a_killed_worker_had_to_do_is_done_again(client, monkeypatch, after):
    monkeypatch.setattr(chunks, "MANY_BYTES", 0)  # what is shared is lost with it, too
    client.wait_for_workers(2)
    pid = [nanny.pid for nanny in client.cluster.workers.values()][after % 2]
    shared = np.arange(float(CHUNKS)) + after
    parcel = chunks.pack_made(as_it_is, shared)
    executor, found = KillsAfter(client, pid, after), {}
    ended = chunks.send_chunks(executor, spectrum, parcel, range(CHUNKS), found.__setitem__)
    assert not ended.early
    assert executor.done >= after
    assert found == {i: spectrum(shared, i) for i in range(CHUNKS)}


class OneChunk:
    """A time limit that is over after one chunk of iterations."""

    def __init__(self, at):
        self.asked = 0

    def is_set(self):
        self.asked += 1
        return self.asked > 1


def test_pieces_of_a_chain_join_to_the_same_chain(model, monkeypatch):
    """From the prior, where some states weigh so little that a generator decides which are kept."""
    more = {"keep": "states", "reference": "prior", "chains": 3, "random_seed": 3, "quiet": True}
    whole = pmt.sample(150, model=model, **more)
    monkeypatch.setattr(pieces, "TimeLimit", OneChunk)
    monkeypatch.setattr(chains, "FIRST_CHUNK", 50)
    sent = []
    send_tasks = pieces.send_tasks
    monkeypatch.setattr(
        pieces, "send_tasks", lambda *args: sent.append(len(args[1])) or send_tasks(*args)
    )
    with ThreadPoolExecutor(2) as pool:
        assert same_numbers(pmt.sample(150, model=model, executor=pool, **more), whole)
    assert sum(sent) >= 9  # three chains


def test_the_model_travels_once_for_all_pieces_of_the_chains(model, monkeypatch):
    more = {"reference": "prior", "chains": 2, "random_seed": 3, "quiet": True}
    monkeypatch.setattr(pieces, "TimeLimit", OneChunk)
    monkeypatch.setattr(chains, "FIRST_CHUNK", 50)
    monkeypatch.setattr(chunks, "MANY_BYTES", 0)
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(processes=False, **settings) as cluster, Client(cluster) as client:
        sent, send = [], client._graph_to_futures
        monkeypatch.setattr(
            client, "_graph_to_futures", lambda *a, **k: sent.extend(a[1]) or send(*a, **k)
        )
        pmt.sample(150, model=model, executor=client.get_executor(), **more)
    assert len(sent) >= 7  # pieces of two chains
    assert len([key for key in sent if key.startswith("parcel-")]) == 1


def dies():
    """Build a model, and end the process meanwhile."""
    os._exit(1)


@pytest.mark.slow("other processes")
def test_a_pool_that_broke_leaves_what_was_done(processes, model, tmp_path):
    settings = {**SHORT, "path": tmp_path / "runs", "save_draws": False}
    first = pmt.sample_many({"a": model}, executor=processes, **settings)
    both = {"a": model, "b": dies}
    with pytest.warns(TemperingWarning, match=r"ProcessPoolExecutor lost its workers.*1 of 2 runs"):
        second = pmt.sample_many(both, executor=processes, **settings)
    assert same_numbers(first, second)
    with pytest.raises(
        pmt.exceptions.WorkerError, match=r"ProcessPoolExecutor.*broke is broken for good"
    ):
        pmt.ais(model, n_particles=40, betas=4, executor=processes, progressbar=False)


@pytest.mark.slow("other processes")
def test_nothing_is_compiled_for_further_data_sets(model):
    pmt.sample_many(model, {"first": DATASETS["near"]}, **SHORT)
    watch = CompilationWatch()
    with install_listener("numba:compile", watch):
        pmt.sample_many(model, DATASETS, **SHORT)
    assert watch.count == 0
