"""When the rounds of a run are over, and what is told of each."""

from dataclasses import dataclass, field

import numpy as np

from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.core.deadline import Cut
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.enough_draws import LeastEss

DRAWS, TARGET_ESS, DEFAULT_MCSE, MOST_GROWTH = 1000, 400.0, 0.05, 8
"""Where the number of draws is left open: the first length of a chain, the least effective sample
size and the error of log Z (nats) that rounds go on for, and how many times the first length a
chain has at most for these."""

MAX_ROUNDS = 12
"""Rounds at most, whatever the limits."""

NO_DRAWS = np.empty(0)
"""Of the reference, beside the chains."""


@dataclass(frozen=True)
class Goal:
    """What rounds go on for, and what they may take at most.

    Attributes
    ----------
    target_mcse : float, optional
        Error of log Z, in nats.
    max_time : float, optional
        Seconds, compiling apart, after which the chains stop, whatever the targets.
    max_steps : int, optional
        Density evaluations after which no further round starts.
    target_ess : float, optional
        Least bulk effective sample size of all free scalars.
    by_default : bool, default False
        Whether nobody asked for this `target_ess`, so that it is given up at `MOST_GROWTH`, as is
        an error of log Z of `DEFAULT_MCSE`.
    """

    target_mcse: float | None = None
    max_time: float | None = None
    max_steps: int | None = None
    target_ess: float | None = None
    by_default: bool = False

    def __post_init__(self) -> None:
        for name in ("target_mcse", "max_time", "max_steps", "target_ess"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float | np.number) and value > 0):
                raise ValueError(f"{name} must be a positive number, not {value!r}.")

    def spent(self, steps: int) -> bool:
        """Whether so many density evaluations are enough."""
        return self.max_steps is not None and steps >= self.max_steps

    @property
    def single(self) -> bool:
        """Whether one round of the asked length is all that is wanted."""
        return self.target_mcse is None and self.target_ess is None

    @property
    def ess_alone(self) -> bool:
        """Whether no error of log Z was asked for."""
        return self.target_ess is not None and self.target_mcse is None

    def goes_on_for(self, least: LeastEss | None, growth: float) -> bool:
        """Whether the draws are too few, with chains that are `growth` times the first length."""
        return least is not None and least.short and not (self.by_default and growth >= MOST_GROWTH)

    def wanted(self) -> str:
        """Words for the end of a line that tells of a round: what was asked for."""
        asked = {
            "mcse": self.target_mcse and f"{self.target_mcse:.2g}",
            "ESS": self.target_ess and f"{self.target_ess:.0f}",
            "within": self.max_time and f"{self.max_time:.0f} s",
            "evaluations": self.max_steps and f"{self.max_steps:,}",
        }
        words = [f"{name} {value}" for name, value in asked.items() if value]
        return f"; wanted: {', '.join(words)}" if words else ""

    def unmet(self, evidence: Evidence) -> str:
        """Say what is missing of log Z; empty if nothing is."""
        if evidence.verdict != "ok":
            return f"the verdict is {evidence.verdict!r}"
        first, second = evidence.halves
        if abs(first - second) > 4 * 2 * evidence.mcse:
            return "the first and the second half disagree"
        if self.target_mcse is not None and evidence.mcse > self.target_mcse:
            return f"the mcse is {evidence.mcse:.2g}, not {self.target_mcse:.2g}"
        return ""


def goal_of(
    draws: int | None,
    target_ess: float | None = None,
    target_mcse: float | None = None,
    max_time: float | None = None,
    max_steps: int | None = None,
) -> tuple[int, Goal]:
    """Return the first length of a chain and the goal, of the arguments of a call.

    Who asks for a number of draws gets it; where it is left open, draws have to suffice.
    """
    by_default = draws is None and target_ess is None
    goal = Goal(
        target_mcse, max_time, max_steps, TARGET_ESS if by_default else target_ess, by_default
    )
    return DRAWS if draws is None else draws, goal


@dataclass(frozen=True)
class Round:
    """One line of the report: what was known after a round.

    `barrier` is Lambda, the sum of the rejection rates of neighbors; `acceptance` is the kernel's,
    over all rungs but the first; `least_ess` is not a number where it was not asked for.
    """

    draws: int
    tours: int
    barrier: float
    acceptance: float
    log_z: float
    mcse: float
    check_log_z: float
    check_mcse: float
    least_ess: float
    seconds: float

    def __str__(self) -> str:
        check = f", check {self.check_log_z:.2f} ± {self.check_mcse:.2g}"
        ess = f", least ESS {self.least_ess:.0f}"
        return (
            f"{self.draws} draws, {self.tours} tours: log Z {self.log_z:.3f} ± {self.mcse:.2g}"
            f"{check if np.isfinite(self.check_log_z) else ''}"
            f"{ess if np.isfinite(self.least_ess) else ''}, Lambda {self.barrier:.2f}, "
            f"acceptance {self.acceptance:.2f} ({self.seconds:.1f} s)"
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """The runs of the last plan, and how it came to them.

    Attributes
    ----------
    chosen : ChosenPlan
    runs : list of ChainRun
    rounds : tuple of Round
        Empty for a single one.
    interrupted : bool
        Whether Ctrl-C ended it.
    unmet : str
        What is missing of log Z; empty if nothing is, or nothing was asked for.
    cut : Cut, optional
        Where the time limit ended the run, short of its draws or its targets.
    least : LeastEss, optional
        Where draws had to suffice.
    reference : array, shape (n,)
        log_ratio (nats) at further draws of the reference.
    n_undefined : int
        How many of these have no density.
    """

    chosen: ChosenPlan
    runs: list[ChainRun]
    rounds: tuple[Round, ...]
    interrupted: bool
    unmet: str = ""
    cut: Cut | None = None
    least: LeastEss | None = None
    reference: np.ndarray = field(default_factory=lambda: NO_DRAWS)
    n_undefined: int = 0
