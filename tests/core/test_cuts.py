"""What is said of a time limit that ended something, and of how long would have been enough."""

import numpy as np
import pytest

from pymc_tempering.core.deadline import Cut, in_round_seconds, stages_to_come, tell_cuts

RUN = Cut("the run", "at 312 of 1000 draws", 94.2)
PASS = Cut("the annealed pass", "at beta = 0.01", 1210.0)
SEARCH = Cut("the search", "before it began", np.nan)


@pytest.mark.parametrize(
    ("cuts", "sentence"),
    [
        (
            [RUN],
            "max_time ended the run at 312 of 1000 draws; about 95 s would have been enough.",
        ),
        (
            [PASS, SEARCH, RUN],
            "max_time ended the annealed pass at beta = 0.01, the search before it began and "
            "the run at 312 of 1000 draws; at least about 1,300 s would have been needed.",
        ),
        (
            [SEARCH],
            "max_time ended the search before it began; how long that would have needed cannot be "
            "told.",
        ),
    ],
)
def test_each_stage_is_named_and_the_longest_need(cuts, sentence):
    assert tell_cuts(cuts) == sentence


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (7.0, "7 s"), (94.2, "95 s"), (1201.0, "1,300 s"), (36_000.0, "10 hours")],
)
def test_a_need_has_two_digits(seconds, words):
    assert in_round_seconds(seconds) == words


def test_stages_to_come_go_on_at_the_pace_of_the_last():
    assert stages_to_come([2.0**-6, 2.0**-5, 2.0**-4]) == pytest.approx(4.0)
    assert stages_to_come([0.5, 1.0]) == 0.0
    assert stages_to_come([0.1]) == np.inf
