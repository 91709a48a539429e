"""A point in time after which no further work is to start."""

from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Deadline:
    """A time by the clock of `perf_counter`; infinite where there is no limit.

    Attributes
    ----------
    began, at : float
        Seconds.
    """

    began: float = 0.0
    at: float = float("inf")

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return perf_counter() >= self.at

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.at - perf_counter()

    def part(self, share: float) -> "Deadline":
        """Return the deadline of a first part of the work; above 1, of more than all of it."""
        return Deadline(self.began, self.began + share * (self.at - self.began))

    def after(self, seconds: float) -> "Deadline":
        """Return this deadline, or one so many seconds from now, whichever is later."""
        return Deadline(self.began, max(self.at, perf_counter() + seconds))


def deadline_in(seconds: float | None) -> Deadline:
    """Return the deadline so many seconds from now; without a number there is none."""
    now = perf_counter()
    return Deadline(now, float("inf") if seconds is None else now + seconds)


NEVER, PAST = Deadline(), Deadline(at=0.0)
"""No limit, and one that is over."""
