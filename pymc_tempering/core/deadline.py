"""A point in time after which no further work is to start."""

from dataclasses import dataclass, field, replace
from time import perf_counter

OVERTIME = 4.0 / 3.0
"""How many times its time all is over at the latest that was begun within it."""

SOON, SOON_SHARE = 0.1, 0.02
"""Seconds that work gets at least to come to an end, however late it is, and the share of the time
that was for it."""


@dataclass(frozen=True)
class Deadline:
    """A time by the clock of `perf_counter`; infinite where there is no limit.

    Attributes
    ----------
    began, at : float
        Seconds.
    share : float, default 1.0
        Which share of the time of the whole call ends with it.
    """

    began: float = 0.0
    at: float = float("inf")
    share: float = field(default=1.0, compare=False)

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return perf_counter() >= self.at

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.at - perf_counter()

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.at < float("inf")

    @property
    def last(self) -> "Deadline":
        """When also that has to be over which was begun in time."""
        return replace(self, at=self.began + OVERTIME * (self.at - self.began))

    def part(self, share: float) -> "Deadline":
        """Return the deadline of a first part of the work."""
        at = self.began + share * (self.at - self.began)
        return replace(self, at=at, share=share * self.share)

    def rest(self, share: float, least: float | None = None) -> "Deadline":
        """Return the deadline of a share of the time that is left.

        It is `least` seconds from now at least; by default as much as it takes to come to an end.
        """
        if least is None:
            least = max(SOON, SOON_SHARE * (self.at - self.began))
        return replace(self, at=perf_counter() + max(least, share * self.left))

    def after(self, seconds: float) -> "Deadline":
        """Return this deadline, or one so many seconds from now, whichever is later."""
        return replace(self, at=max(self.at, perf_counter() + seconds))

    def enough(self, more: float) -> float:
        """Seconds of the whole call in which work would have ended that needs `more` from now."""
        return (perf_counter() - self.began + more) / self.share


def deadline_in(seconds: float | None) -> Deadline:
    """Return the deadline so many seconds from now; without a number there is none."""
    now = perf_counter()
    return Deadline(now, float("inf") if seconds is None else now + seconds)


NEVER, PAST = Deadline(), Deadline(at=0.0)
"""No limit, and one that is over."""
