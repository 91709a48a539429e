"""Words for how long a stage will take, from how far it is."""

from collections.abc import Callable
from math import log
from time import perf_counter

SHORT = 2.0
"""Seconds below which nothing is said."""

RECENT = 5
"""Stages of an annealed pass whose steps tell how many are to come."""


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


def annealing_lines(report: Callable[[str], None]) -> Callable[[float], None]:
    """Make the `report` of an annealed pass, called with beta after each stage.

    The log of beta grows at about the pace of the last stages, so that the stages to come can be
    told; each is taken to cost as much as those so far.
    """
    began, betas = perf_counter(), list[float]()

    def tell(beta: float) -> None:
        betas.append(beta)
        recent = betas[-RECENT:]
        left = ""
        if len(recent) > 1 and beta < 1.0:
            more = (len(recent) - 1) * log(beta) / log(recent[0] / beta)
            left = time_left(len(betas) / (len(betas) + more), began)
        report(f"Annealed pass: beta = {beta:.3g}{left}")

    return tell
