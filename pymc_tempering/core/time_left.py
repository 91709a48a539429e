"""Words for how long a stage will take, from how far it is."""

from collections.abc import Callable, Sequence
from math import inf, log
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
