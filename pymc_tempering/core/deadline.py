"""When no further work is to start, what a limit has cut off, and how long things take in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf, isfinite, log, log10
from time import perf_counter

OVERTIME = 4.0 / 3.0
"""How many times its time all is over at the latest that was begun within it."""

SOON, SOON_SHARE = 0.1, 0.02
"""Seconds that work gets at least to come to an end, however late it is, and the share of the time
that was for it."""

HOURS = 10_000.0
"""Seconds from which on a need is told in hours."""

SHORT = 2.0
"""Seconds below which nothing is said."""

RECENT = 5
"""Stages of an annealed pass whose steps tell how many are to come."""

STAGES = {
    "compiling": "compiling",
    "prior_constant": "normalizing the prior",
    "annealed_pass": "annealed pass",
    "fit": "fit",
    "search": "search",
    "weights": "weights",
    "run": "run",
}
"""Stages of a call in their order, and what a line on the screen calls them."""


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


def time_left(share: float, began: float) -> str:
    """Words to append to a line of progress; none where little is left or nothing is known yet.

    Parameters
    ----------
    share : float
        Part of the work that is done; the rest is taken to go at the same pace.
    began : float
        When it began, by `perf_counter`.
    """
    if not 0.0 < share < 1.0:
        return ""
    seconds = (perf_counter() - began) * (1.0 / share - 1.0)
    return f", about {seconds:.0f} s left" if seconds >= SHORT else ""


def stages_to_come(betas: Sequence[float]) -> float:
    """Return how many stages bring beta to 1, by the pace of the last ones; infinity if unknown.

    The log of beta grows at about that pace.
    """
    recent = betas[-RECENT:]
    if len(recent) < 2:
        return inf
    return (len(recent) - 1) * log(recent[-1]) / log(recent[0] / recent[-1])


def annealing_lines(report: Callable[[str], None]) -> Callable[[float], None]:
    """Make the `report` of an annealed pass, called with beta after each stage.

    The stages to come can be told; each is taken to cost as much as those so far.
    """
    began, betas = perf_counter(), list[float]()

    def tell(beta: float) -> None:
        betas.append(beta)
        left = ""
        if beta < 1.0:
            left = time_left(len(betas) / (len(betas) + stages_to_come(betas)), began)
        report(f"Annealed pass: beta = {beta:.3g}{left}")

    return tell


def in_words(seconds: Mapping[str, float]) -> str:
    """Say how long a call took and where the time went, as in '3.1 s: fit 1.0, run 2.1'."""
    parts = [
        f"{words} {seconds[name]:.1f}"
        for name, words in STAGES.items()
        if seconds.get(name, 0.0) >= 0.05
    ]
    total = f"{sum(seconds.values()):.1f} s"
    return f"{total}: {', '.join(parts)}" if parts else total
