"""Deadlines: when they are late, their parts, and none at all."""

import time

import pytest

from pymc_tempering.core import deadline as module, threads
from pymc_tempering.core.deadline import NEVER, PAST, Deadline, deadline_in


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    return now


def test_a_deadline_is_late_from_its_time_on(clock):
    deadline = deadline_in(10.0)
    assert (deadline.began, deadline.at) == (100.0, 110.0)
    assert not deadline.late
    clock[0] = 109.9
    assert deadline.left == pytest.approx(0.1)
    assert not deadline.late
    clock[0] = 110.0
    assert deadline.late
    clock[0] = 113.0
    assert deadline.left == pytest.approx(-3.0)


def test_a_part_is_counted_from_the_beginning(clock):
    whole = deadline_in(10.0)
    clock[0] = 105.0
    part = whole.part(0.6)
    assert part == Deadline(100.0, 106.0)
    assert part.part(0.5) == Deadline(100.0, 103.0)
    assert part.part(0.5).late
    assert whole.part(1.0) == whole


def test_what_is_after_is_never_earlier(clock):
    whole = deadline_in(10.0)
    assert whole.after(3.0) == whole
    clock[0] = 108.0
    assert whole.after(3.0) == Deadline(100.0, 111.0)
    clock[0] = 120.0
    assert whole.late
    assert not whole.after(0.5).late


def test_the_rest_is_a_share_of_what_is_left_and_never_nothing(clock):
    whole = deadline_in(10.0)
    clock[0] = 106.0
    assert whole.rest(0.5) == Deadline(100.0, 108.0)
    clock[0] = 112.0
    assert whole.rest(0.5) == Deadline(100.0, 112.0 + 10.0 * module.SOON_SHARE)
    assert PAST.rest(0.5).at == 112.0 + module.SOON
    assert whole.rest(0.5, 0.0).late


def test_the_overtime_is_a_third_of_the_time(clock):
    assert deadline_in(9.0).last == Deadline(100.0, 112.0)


def test_what_would_have_been_enough_is_told_of_the_whole_call(clock):
    part = deadline_in(10.0).part(0.6).part(0.5)
    clock[0] = 103.0
    assert part.enough(6.0) == pytest.approx((3.0 + 6.0) / 0.3)


def test_without_a_number_there_is_no_limit(clock):
    for deadline in (NEVER, deadline_in(None), deadline_in(None).part(0.6), NEVER.after(1.0)):
        clock[0] = 1e12
        assert not deadline.late
        assert deadline.left == float("inf")
        assert not any(d.limited or d.late for d in (deadline, deadline.last, deadline.rest(0.1)))
    assert NEVER.part(0.6) == NEVER
    assert deadline_in(None).began == 1e12


@pytest.mark.slow("compiles models of its own")
def test_time_to_leave_begins_at_the_deadline(monkeypatch):
    """A task that took long before it is not taken for one that hangs, if it then ends in time."""
    monkeypatch.setattr(threads, "LEAVE_SECONDS", 1.0)
    limit = deadline_in(1.5)

    def task(stop):
        while not limit.late:
            time.sleep(0.01)
        time.sleep(0.4)
        return not stop.is_set()

    assert threads.run_all([task], 1, limit) == [True]
