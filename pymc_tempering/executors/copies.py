"""Chunks that have not come back, and when they are sent once more.

Dask can forget work after a worker was killed (dask/distributed#3196): nobody computes it, and
nothing says so. A chunk is a pure function of its arguments, so a second copy gives the same bits.
"""

from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any


@dataclass(frozen=True)
class Patience:
    """How long nothing may come back before all that is missing is sent once more.

    Attributes
    ----------
    least : float
        Seconds at least.
    times : float
        Times the longest chunk that has come back.
    """

    least: float = 60.0
    times: float = 10.0

    def over(self, silence: float, longest: float, again: int) -> bool:
        """Whether to send once more; each time waits twice as long as the one before.

        Parameters
        ----------
        silence : float
            Seconds since the last chunk came back, or since chunks were sent.
        longest : float
            Seconds of the longest chunk that has come back; 0 if none has.
        again : int
            How often chunks were sent once more.
        """
        return silence > max(self.least, self.times * longest) * 2.0**again


@dataclass
class Missing:
    """Copies of chunks that have not come back.

    Attributes
    ----------
    chunks : dict of Future to int
        The chunk of each copy.
    since : float
        When the last chunk came back, or chunks were sent.
    longest : float
        Seconds of the longest chunk that has come back.
    again : int
        How often chunks were sent once more.
    """

    chunks: dict[Future[Any], int] = field(default_factory=dict)
    since: float = field(default_factory=perf_counter)
    longest: float = 0.0
    again: int = 0

    @property
    def indices(self) -> list[int]:
        """Chunks of which no copy has come back, in their order."""
        return sorted(set(self.chunks.values()))

    def first_back(self, copy: Future[Any]) -> int | None:
        """Return the chunk of a copy that has come back, and give up its other copies.

        None where another copy was back before.
        """
        i = self.chunks.pop(copy, None)
        if i is not None:
            self.since = perf_counter()
            self.give_up([other for other, j in self.chunks.items() if j == i])
        return i

    def overdue(self, patience: Patience) -> bool:
        """Whether what is missing is to be sent once more."""
        return patience.over(perf_counter() - self.since, self.longest, self.again)

    def give_up(self, copies: list[Future[Any]]) -> None:
        """Wait for some copies no longer."""
        for copy in copies:
            del self.chunks[copy]
            copy.cancel()
