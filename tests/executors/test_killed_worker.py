"""A worker of Dask that is killed midway: what it had to do is done again, to the same results."""

import os
import signal
from concurrent.futures import Executor

import numpy as np
import pytest
from distributed import Client, LocalCluster

from pymc_tempering.executors import chunks, once_a_worker, parcels
from pymc_tempering.executors.once_a_worker import as_it_is

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


@pytest.fixture(scope="module")
def client():
    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "processes": True}
    with LocalCluster(n_workers=2, **settings) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.parametrize("after", [1, 4])
def test_what_a_killed_worker_had_to_do_is_done_again(client, monkeypatch, after):
    monkeypatch.setattr(once_a_worker, "MANY_BYTES", 0)  # what is shared is lost with it, too
    client.wait_for_workers(2)
    pid = [nanny.pid for nanny in client.cluster.workers.values()][after % 2]
    shared = np.arange(float(CHUNKS)) + after
    parcel = parcels.pack_made("Numbers", as_it_is, shared)
    executor, found = KillsAfter(client, pid, after), {}
    ended = chunks.send_chunks(executor, spectrum, parcel, range(CHUNKS), found.__setitem__)
    assert not ended.early
    assert executor.done >= after
    assert found == {i: spectrum(shared, i) for i in range(CHUNKS)}
