"""How long each stage of a call takes."""

from collections.abc import Callable, Mapping
from time import perf_counter

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


def laps() -> Callable[[], float]:
    """Return a function that gives the seconds since it was made, or since it was last called."""
    last = perf_counter()

    def lap() -> float:
        nonlocal last
        before, last = last, perf_counter()
        return last - before

    return lap


def in_words(seconds: Mapping[str, float]) -> str:
    """Say how long a call took and where the time went, as in '3.1 s: fit 1.0, run 2.1'."""
    parts = [
        f"{words} {seconds[name]:.1f}"
        for name, words in STAGES.items()
        if seconds.get(name, 0.0) >= 0.05
    ]
    total = f"{sum(seconds.values()):.1f} s"
    return f"{total}: {', '.join(parts)}" if parts else total
