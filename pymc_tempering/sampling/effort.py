"""How much of each stage a run does by default, by what a value of the density costs.

What a run owes is an error that is small beside what matters: a hundredth of a nat is far below
what a prior leaves open. Where a value is cheap there is more, since nobody feels it. Where it is
dear the stages have the numbers that they need, and no more. The cost is counted in the graph, and
never told by a clock, so that equal seeds give equal runs.
"""

from dataclasses import dataclass
from math import sqrt

from pymc_tempering.model.path import CHEAP_WORK, Path
from pymc_tempering.references.mixture_fit import FULL_DIM
from pymc_tempering.sampling.call import DEFAULT_MCSE

DRAWN_MCSE, WIDE_DRAWN_MCSE = 0.01, 0.04
"""Error of log Z (nats) that the draws of a reference alone are to have where a value is dear, and
that in many dimensions, where their weights are less even."""

SHORT_MCSE, SHORT_WORK = 0.02, 50_000
"""Error of log Z (nats) that is enough for short chains, and the elements of a value above which it
may be larger, up to `DEFAULT_MCSE`."""

SCOUTED_WORK = 300_000
"""Elements of a value from which on there are fewer scouts: each of them is needed to find what is
narrow, while 32 particles miss no more of it than 256."""

WIDE_DIM, WIDE_PARTICLES, WIDE_MCSE = FULL_DIM, 64, 0.15
"""Dimensions above which a run takes more values the more there are, so that a value counts more;
particles at least, since fits have no full scale matrices there; and the largest error of log Z
(nats) that is enough."""

WIDE_SPREAD = 5.0
"""Least standard deviation of the log Z of annealed passes there (nats). Those of crossed effects
and item responses of 500 to 1,000 dimensions have 3 to 19, and three of them can be near each other
by chance."""

FEW_DIM = 100
"""Dimensions above which a chain has 500 draws at least. In shorter ones the largest R-hat of so
many values is above 1.01 by chance."""


@dataclass(frozen=True)
class Effort:
    """Numbers of the stages of a run.

    Attributes
    ----------
    particles : int
        Of each annealed pass from the prior.
    trial_particles : tuple of int
        Of the pass from a fitted reference: where that is near the posterior, and where not. Then
        they are all, for the tuning of the chains rests on them; fewer in many dimensions.
    proposed : int
        Draws of a reference that are weighted at a time.
    scouting : int
        Evaluations at least that the scouts of a round may take.
    draws : int
        First length of a chain.
    looks : int
        From the prior at first; there are more where too few of them arrive.
    mcse : float
        Error of log Z (nats) that is enough where chains are shorter than by default, and for all
        where it is larger than `DEFAULT_MCSE`.
    """

    particles: int = 256
    trial_particles: tuple[int, int] = (128, 256)
    proposed: int = 1000
    scouting: int = 10_000
    draws: int = 1000
    looks: int = 100
    mcse: float = DEFAULT_MCSE


def is_wide(path: Path, dim: int = WIDE_DIM) -> bool:
    """Whether a model has more dimensions than that beside those that are white."""
    return path.dim - path.n_white > dim


def effort_of(path: Path) -> Effort:
    """Return what a run of a model does."""
    full, dim = Effort(), path.dim - path.n_white
    if not path.dear:
        return full
    wide, cost = is_wide(path), path.work * max(1.0, dim / WIDE_DIM)
    share = CHEAP_WORK / cost
    root, scouts = sqrt(share), SCOUTED_WORK / path.work

    def some(number: int, factor: float, least: int) -> int:
        return max(least, int(number * factor))

    fewest = WIDE_PARTICLES if wide else min(full.particles, max(32, 2 * dim))
    near, far = full.trial_particles
    if wide or path.n_white:
        far = some(far, root, WIDE_PARTICLES)
    return Effort(
        some(full.particles, root, fewest), (some(near, root, 32), far),
        some(full.proposed, root, 250), some(full.scouting, min(1.0, scouts), 2000),
        some(full.draws, share, 250 if path.dim <= FEW_DIM else 500), some(full.looks, root, 50),
        min(WIDE_MCSE if wide else DEFAULT_MCSE, SHORT_MCSE * max(1.0, sqrt(cost / SHORT_WORK))),
    )  # fmt: skip
