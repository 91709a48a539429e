"""What a time limit has cut off, and about how long the call would have needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

HOURS = 10_000.0
"""Seconds from which on a need is told in hours."""


@dataclass(frozen=True)
class Cut:
    """A stage of a call that its time limit has ended.

    Attributes
    ----------
    stage, place : str
        As in "the run" and "at 312 of 1000 draws".
    needed : float
        Seconds of the whole call that would have been enough for this stage; not a number where
        nothing is known of its pace.
    """

    stage: str
    place: str
    needed: float


def tell_cuts(cuts: Sequence[Cut]) -> str:
    """Return a sentence that says what `max_time` has ended, and what would have been enough."""
    ended = [f"{cut.stage} {cut.place}" for cut in cuts]
    words = " and ".join([", ".join(ended[:-1]), ended[-1]] if len(ended) > 1 else ended)
    known = [cut.needed for cut in cuts if isfinite(cut.needed)]
    if not known:
        return f"max_time ended {words}; how long that would have needed cannot be told."
    need = in_round_seconds(max(known))
    if len(cuts) == 1:
        return f"max_time ended {words}; about {need} would have been enough."
    return f"max_time ended {words}; at least about {need} would have been needed."


def in_round_seconds(seconds: float) -> str:
    """Round a time up to two digits, as in '1,300 s' or '4.2 hours'."""
    if seconds >= HOURS:
        return f"{seconds / 3600.0:,.2g} hours"
    unit = 10.0 ** max(floor(log10(max(seconds, 1.0))) - 1, 0)
    return f"{ceil(seconds / unit) * unit:,.0f} s"
