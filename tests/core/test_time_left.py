"""What a line of progress says of the time that is left."""

import pytest

from pymc_tempering.core import deadline as module
from pymc_tempering.core.deadline import annealing_lines, time_left


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    return now


def test_the_rest_goes_at_the_same_pace(clock):
    clock[0] = 10.0
    assert time_left(0.25, began=0.0) == ", about 30 s left"
    assert time_left(0.5, began=8.0) == ", about 2 s left"


@pytest.mark.parametrize("share", [0.0, 0.9, 1.0, 1.2])
def test_nothing_is_said_of_nothing(clock, share):
    clock[0] = 10.0
    assert time_left(share, began=0.0) == ""


def test_an_annealed_pass_tells_its_stages_to_come(clock):
    """Beta doubles from 1/1024 on, ten stages of 3 s each; after four of them six are left."""
    lines = []
    tell = annealing_lines(lines.append)
    for stage in range(11):
        clock[0] = 3.0 * (stage + 1)
        tell(2.0 ** (stage - 10))
    assert lines[0] == "Annealed pass: beta = 0.000977"
    assert lines[4] == "Annealed pass: beta = 0.0156, about 18 s left"
    assert lines[9] == "Annealed pass: beta = 0.5, about 3 s left"
    assert lines[10] == "Annealed pass: beta = 1"
