"""Chunks that do not come back are sent once more, and the first copy that comes back counts."""

from concurrent.futures import Executor, Future
from contextlib import nullcontext

import pytest

from pymc_tempering.executors import chunks
from pymc_tempering.executors.chunks import Missing, Patience, as_it_is

SOON = Patience(least=0.01, times=0.0)


class Forgets(Executor):
    """Does each task at once, but those of some submissions, which it keeps and never does."""

    def __init__(self, forgotten):
        self.forgotten, self.sent, self.kept = forgotten, [], {}

    def submit(self, fn, *args):
        future, n = Future(), len(self.sent)
        self.sent.append(args)
        if n in self.forgotten:
            self.kept[n] = future, fn, args
        else:
            future.set_result(fn(*args))
        return future


def twice(shared, i):
    return 2 * i


def sent(executor, n, patience):
    found = []
    ended = chunks.send_chunks(
        executor, twice, None, range(n), lambda i, x: found.append((i, x)), patience=patience
    )
    assert not ended.early
    return found


@pytest.mark.parametrize("forgotten", [{0}, {3}, {1, 4}, {0, 5}, {1, 6}, {2, 6, 7}])
def test_a_chunk_that_is_forgotten_comes_back_by_a_copy(forgotten):
    """Submissions from 6 on are copies, some of which are forgotten too."""
    executor = Forgets(forgotten)
    found = sent(executor, 6, SOON)
    assert sorted(found) == [(i, 2 * i) for i in range(6)]
    assert all(future.cancelled() for future, *_ in executor.kept.values())
    # Of what came back nothing is sent again.
    assert len(executor.sent) == 6 + len(forgotten)


def test_each_copy_is_a_new_task():
    """Dask takes tasks with the same arguments for one."""
    executor = Forgets({0, 2})
    sent(executor, 2, SOON)
    assert executor.sent[0][:-1] == executor.sent[2][:-1] == executor.sent[3][:-1]
    assert len({args[-1] for args in executor.sent}) == 4
    again = Forgets(set())
    sent(again, 2, SOON)
    assert not {args[-1] for args in executor.sent} & {args[-1] for args in again.sent}


def test_a_copy_brings_what_is_shared_along(monkeypatch):
    """A task of Dask stands for it in the first place, and may be forgotten as well."""
    parcel = chunks.pack_made(as_it_is, None)
    monkeypatch.setattr(chunks, "sent_once", lambda executor, common: nullcontext("a task"))
    executor, found = Forgets({0}), {}
    chunks.send_chunks(executor, twice, parcel, [4], found.__setitem__, patience=SOON)
    assert found == {0: 8}
    assert [args[2] for args in executor.sent] == ["a task", parcel]


def test_a_copy_that_comes_back_late_counts_no_more():
    class Late(Forgets):
        def submit(self, fn, /, *args):
            future = super().submit(fn, *args)
            if len(self.sent) == 5:  # of chunk 1 the copy is back, and now the first one, too
                kept, fn, args = self.kept[1]
                kept.set_result(fn(*args))
            return future

    found = sent(Late({1, 2, 4}), 3, SOON)
    assert sorted(found) == [(0, 0), (1, 2), (2, 4)]


def test_an_error_of_the_first_copy_is_the_error():
    def fails(shared, i):
        raise ZeroDivisionError

    class Raises(Forgets):
        def submit(self, fn, *args):
            try:
                return super().submit(fn, *args)
            except ZeroDivisionError as error:
                future = Future()
                future.set_exception(error)
                return future

    executor = Raises({0})
    with pytest.raises(ZeroDivisionError):
        chunks.send_chunks(executor, fails, None, [1], lambda i, x: None, patience=SOON)
    assert executor.kept[0][0].cancelled()


def test_patience_goes_by_the_longest_chunk_and_doubles():
    patience = Patience(least=5.0, times=10.0)
    assert not patience.over(4.9, 0.1, 0)
    assert patience.over(5.1, 0.1, 0)
    assert not patience.over(19.0, 2.0, 0)
    assert patience.over(21.0, 2.0, 0)
    assert not patience.over(39.0, 2.0, 1)
    assert patience.over(41.0, 2.0, 1)


def test_silence_begins_anew_with_each_chunk_that_comes_back(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("pymc_tempering.executors.chunks.perf_counter", lambda: now[0])
    first, second = Future(), Future()
    missing = Missing({first: 0, second: 1}, since=0.0)
    now[0] = 5.5
    assert missing.overdue(Patience(5.0))
    assert missing.first_back(first) == 0
    assert not missing.overdue(Patience(5.0))
    now[0] = 11.0
    assert missing.overdue(Patience(5.0))
    assert missing.first_back(first) is None
    assert missing.indices == [1]


@pytest.mark.parametrize(("client", "copies"), [(None, 0), ("a client of Dask", 1)])
def test_executors_other_than_dask_are_believed(monkeypatch, client, copies):
    """A pool of processes says when it has lost one; a copy would only take its time."""
    monkeypatch.setattr(chunks, "Patience", lambda: SOON)
    monkeypatch.setattr(chunks, "client_of", lambda executor: client)
    executor = Forgets({0})
    asked = []

    def report(done):
        asked.append(done)
        if len(asked) == (50 if copies else 5):  # so that the test ends in any case
            kept, fn, args = executor.kept[0]
            kept.set_result(fn(*args))

    found = {}
    chunks.send_chunks(executor, twice, None, [4], found.__setitem__, report=report)
    assert found == {0: 8}
    assert len(executor.sent) == 1 + copies
