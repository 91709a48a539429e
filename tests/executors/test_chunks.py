"""Chunks: results for their arguments, errors of workers, versions, Ctrl-C, and what is refused."""

import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from pymc_tempering.exceptions import ArgumentError, WorkerError
from pymc_tempering.executors import chunks
from pymc_tempering.executors.chunks import as_it_is


def late_first(shared, i):
    """Return twice the argument; the first takes longest."""
    time.sleep(0.05 if i == 0 else 0.0)
    return 2 * i


def fails_at(shared, i):
    if i in (2, 5):
        raise ZeroDivisionError(f"chunk {i}")
    return i


class Inline(Executor):
    """Does each task at once, when `works` says so, and else returns the given error."""

    def __init__(self, works=lambda n: True, error=None):
        self.works, self.error, self.n = works, error, 0

    def submit(self, fn, *args):
        future, self.n = Future(), self.n + 1
        try:
            if not self.works(self.n):
                raise self.error
            future.set_result(fn(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


def sent(executor, function, arguments, common=None):
    found = {}
    ended = chunks.send_chunks(executor, function, common, arguments, found.__setitem__)
    return found, ended


def test_each_result_is_that_of_its_argument_whatever_ends_first():
    others = threading.Event()

    def first_is_last_but_one(shared, i):
        if i == 0:
            others.wait()
        if i == 7:
            others.set()
        return 2 * i

    with ThreadPoolExecutor(4) as pool:
        found, ended = sent(pool, first_is_last_but_one, range(8))
    assert found == {i: 2 * i for i in range(8)}
    assert not ended.early
    order = list(found)
    assert order[0] != 0  # they were taken as they ended


def test_tasks_come_back_in_their_order():
    def task(i):
        return lambda stop: late_first(None, i)

    with ThreadPoolExecutor(4) as pool:
        own = chunks.Crew(pool, chunks.pack_made(as_it_is, {}), {})
        results, interrupted = chunks.run_work([task(i) for i in range(6)], own)
    assert results == [0, 2, 4, 6, 8, 10]
    assert not interrupted


def test_an_error_in_a_chunk_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError, match="chunk 2"):
        sent(Inline(), fails_at, range(6))


def test_what_is_shared_is_opened_once_by_a_process():
    opened = []
    parcel = chunks.pack_made(_counted, 3)
    _counted.calls = opened
    with ThreadPoolExecutor(3) as pool:
        found, _ = sent(pool, lambda shared, i: shared + i, range(5), parcel)
    assert found == {i: 3 + i for i in range(5)}
    assert opened == [3]


def _counted(thing):
    getattr(_counted, "calls", []).append(thing)
    return thing


def test_what_each_process_has_of_its_own_goes_by_name():
    own = threading.Lock()  # cannot be pickled
    task = {"own": own, "numbers": np.arange(3)}
    content = chunks._dumps(task, {"lock": own})
    there = object()
    assert chunks._loads(content, {"lock": there})["own"] is there
    with pytest.raises(WorkerError, match="cannot be sent"):
        chunks._dumps(task, {})


def test_a_worker_of_another_version_is_refused_with_both_named(monkeypatch):
    here = chunks.versions_here()

    class Elsewhere(Inline):
        def submit(self, fn, *args):
            with monkeypatch.context() as patch:
                patch.setattr(chunks, "versions_here", lambda: here | {"pymc": "5.1.0"})
                return super().submit(fn, *args)

    found = {}
    with pytest.raises(WorkerError, match=rf"pymc 5\.1\.0 there and {here['pymc']} here") as caught:
        chunks.send_chunks(Elsewhere(), late_first, None, [1, 2], found.__setitem__)
    assert "numba" not in str(caught.value)
    assert not found


def test_a_worker_without_the_package_is_refused():
    error = ModuleNotFoundError("No module named 'pymc_tempering'", name="pymc_tempering.executors")
    with pytest.raises(WorkerError, match=r"A worker has no pymc_tempering .* install"):
        sent(Inline(lambda n: False, error), late_first, [1])


def test_a_broken_pool_leaves_what_was_finished():
    executor = Inline(lambda n: n != 3, BrokenProcessPool("a process died"))
    found, ended = sent(executor, late_first, [0, 1, 2, 3])
    assert {0, 1} <= found.keys()
    assert 2 not in found
    assert "Inline lost its workers (BrokenProcessPool: a process died)" in ended.broken
    own = chunks.Crew(
        Inline(lambda n: n != 2, BrokenProcessPool("gone")),
        chunks.pack_made(as_it_is, {}),
        {},
    )
    with pytest.raises(WorkerError, match=r"gone.*1 of 2 parts were finished"):
        chunks.run_work([lambda stop: 1, lambda stop: 2], own)


class KilledWorker(Exception):
    """What Dask raises for a task whose workers died."""


def test_a_chunk_that_ends_its_workers_is_lost_alone_where_that_can_be_told():
    def executor():
        return Inline(lambda n: n != 2, KilledWorker("tried 3 times"))

    found = {}
    ended = chunks.send_chunks(
        executor(), late_first, None, [0, 1, 2], found.__setitem__, lose=str.upper
    )
    assert not ended.early
    assert found == {0: 0, 1: "KILLEDWORKER: TRIED 3 TIMES", 2: 4}
    found, ended = sent(executor(), late_first, [0, 1, 2])
    assert "tried 3 times" in ended.broken


@pytest.mark.parametrize("where", ["here", "in a worker"])
def test_ctrl_c_keeps_what_was_finished(where):
    executor = Inline(lambda n: where == "here" or n != 2, KeyboardInterrupt())
    found = {}

    def take(i, result):
        if where == "here" and i == 1:
            raise KeyboardInterrupt
        found[i] = result

    ended = chunks.send_chunks(executor, late_first, None, [0, 1, 2], take)
    assert ended.interrupted
    assert found == {0: 0}


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (4, "must be a concurrent.futures.Executor, not 4"),
        (ThreadPoolExecutor, r"make one: ThreadPoolExecutor\(...\)"),
        (type("Client", (), {"get_executor": None})(), r"pass client.get_executor\(\)"),
    ],
)
def test_what_is_no_executor_is_refused(thing, words):
    with pytest.raises(ArgumentError, match=words):
        chunks.check_executor(thing)


def test_an_executor_that_is_shut_down_is_refused():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(WorkerError, match=r"takes no work.*Make a new one"):
        sent(pool, late_first, [1])
