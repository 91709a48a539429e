"""Turns: operations that users wrote are called by one thread at a time.

They may keep their work in one place, as wrapped programs do. A call that hangs keeps its turn:
once nobody waits for it any longer, further calls are refused by its name.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from time import perf_counter

from pymc_tempering.exceptions import LikelihoodError

POLL_SECONDS = 0.1


@dataclass
class Turn:
    """A call under way: of which operations, since when, and whether it was given up."""

    names: str
    since: float
    given_up: bool = False


class Turns:
    """A lock that knows who holds it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._now: Turn | None = None

    @contextmanager
    def turn(self, names: str) -> Iterator[None]:
        """Wait for the calls of other threads, and have them wait for this one.

        Raises
        ------
        LikelihoodError
            The call that is under way hangs.
        """
        while not self._lock.acquire(timeout=POLL_SECONDS):
            self.check()
        outer, self._now = self._now, Turn(names, perf_counter())
        try:
            yield
        finally:
            self._now = outer
            self._lock.release()

    def give_up(self) -> None:
        """Note that nobody waits any longer for the call that is under way, if it hangs."""
        now = self._now
        if now is not None and perf_counter() - now.since > POLL_SECONDS:
            now.given_up = True

    def check(self) -> None:
        """Raise a LikelihoodError if a call that was given up has still not come back."""
        now = self._now
        if now is not None and now.given_up:
            raise LikelihoodError(
                f"A call of {now.names} that began {perf_counter() - now.since:.0f} s ago has not "
                "come back, and such operations are called by one thread at a time. Start Python "
                "anew, and give the solver in it a limit of its own, after which it returns NaN."
            )


TURNS = Turns()
"""There is one, since different operations may share a program that they wrap."""
