"""How much of each stage a run does by default, by what a value of the density costs.

What a run owes is an error that is small beside what matters: a hundredth of a nat is far below
what a prior leaves open. Where a value is cheap there is more, since nobody feels it. Where it is
dear the stages have the numbers that they need, and no more. The cost is counted in the graph, and
never told by a clock, so that equal seeds give equal runs.
"""

from dataclasses import dataclass
from math import sqrt

from pymc_tempering.model.path import Path

CHEAP_WORK = 20_000
"""Elements of a value up to which it is cheap: some ten thousandths of a second."""

ENOUGH_MCSE = 0.01
"""Error of log Z (nats) that is enough where a value is dear."""


@dataclass(frozen=True)
class Effort:
    """Numbers of the stages of a run.

    Attributes
    ----------
    dear : bool
        Whether a value is dear.
    particles : int
        Of each annealed pass from the prior.
    trial_particles : tuple of int
        Of the pass from a fitted reference: where that is near the posterior, and where not.
    proposed : int
        Draws of a reference that are weighted at a time.
    scouting : int
        Evaluations at least that the scouts of a round may take.
    draws : int
        First length of a chain.
    """

    dear: bool = False
    particles: int = 256
    trial_particles: tuple[int, int] = (128, 256)
    proposed: int = 1000
    scouting: int = 10_000
    draws: int = 1000


def effort_of(path: Path) -> Effort:
    """Return what a run of a model does."""
    share, full = CHEAP_WORK / path.work, Effort()
    if share >= 1.0:
        return full
    root = sqrt(share)

    def some(number: int, factor: float, least: int) -> int:
        return max(least, int(number * factor))

    near, far = full.trial_particles
    return Effort(
        True, some(full.particles, root, 64), (some(near, root, 32), some(far, root, 64)),
        some(full.proposed, root, 250), some(full.scouting, share, 2000),
        some(full.draws, share, 250),
    )  # fmt: skip
