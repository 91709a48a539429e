"""What the stages of a call work with: options, checked; and the warm-up from the prior."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_tempering.arguments import check_choice
from pymc_tempering.chain.loop import LADDER_MOVES
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.ladder import Ladder, RungWeights, check_betas
from pymc_tempering.exceptions import (
    LadderError,
    TemperingWarning,
)
from pymc_tempering.executors.crew import Crew
from pymc_tempering.kernels import Compound
from pymc_tempering.references.prior import Prior
from pymc_tempering.warmup.log_z_rounds import WEIGHT_ADAPTATIONS
from pymc_tempering.warmup.warm_up import Warmup, warm_up

LATE_CESS = 0.1
"""Conditional effective sample size of the steps of an annealed pass that is late; usually 0.5.
The pass then takes about half as many evaluations, and its ladder still serves."""

PLAN_SHARE, CHECK_SHARE = 0.6, 0.1
"""Share of the time of a call after which its plan is frozen as it is, and what the check of the
model may take at most, as such a share, while it is compiled."""

REFERENCES = ("auto", "prior", "fitted")


@dataclass(frozen=True)
class Options:
    """Options of the sampler, checked before any work."""

    ladder_move: str = "metropolized_gibbs"
    reference: str = "auto"
    betas: Sequence[float] | None = None
    rungs_per_barrier: float = 1.5
    check_looks: int = 100
    weight_adaptation: str = "rts"
    rung_weights: RungWeights | None = None

    def __post_init__(self) -> None:
        check_choice("ladder_move", self.ladder_move, LADDER_MOVES)
        check_choice("weight_adaptation", self.weight_adaptation, WEIGHT_ADAPTATIONS)
        check_choice("reference", self.reference, REFERENCES)
        if self.betas is not None:
            check_betas(self.betas)
        _check_rung_weights(self.rung_weights, self.betas)
        if not self.rungs_per_barrier > 0:
            raise LadderError("rungs_per_barrier must be positive.")
        if self.check_looks < 20:
            raise ValueError("check_looks must be at least 20: fewer say next to nothing.")
        if self.betas is not None and self.reference != "prior":
            raise ValueError(
                "betas are those of the path from the prior; give reference='prior' with them."
            )


def _check_rung_weights(rung_weights: RungWeights | None, betas: Sequence[float] | None) -> None:
    """Raise a LadderError unless each rung gets a weight; a function is tried on some ladder."""
    if rung_weights is None:
        return
    if betas is None and not callable(rung_weights):
        raise LadderError(
            "rung_weights must be a function of beta where betas are not given, since the warm-up "
            "finds the number of rungs."
        )
    tried = np.array([0.0, 0.5, 1.0]) if betas is None else check_betas(betas)
    Ladder(tried, np.zeros(tried.size), np.zeros(tried.size)).with_weights(rung_weights)


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage of a call works with.

    Attributes
    ----------
    prior : Prior
        The compiled model.
    kernel : Compound
    options : Options
    rng : numpy.random.Generator
    cores : int
    report : callable
        Called with a line of progress.
    deadline : Deadline
        After which no further stage starts, and those that are under way come to an end.
    crew : Crew, optional
        Workers of an executor, for looks and chains in place of threads.
    """

    prior: Prior
    kernel: Compound
    options: Options
    rng: np.random.Generator
    cores: int = 1
    report: Callable[[str], None] = lambda line: None
    deadline: Deadline = NEVER
    crew: Crew | None = None


def warm_up_prior(job: Job) -> Warmup:
    """Run the warm-up from the prior; warn if it did not settle.

    Chains on a ladder whose annealed pass went the rest of its way in one step seldom come back to
    beta = 1. So at the deadline it hurries first, and the one step comes at the end of the
    overtime.
    """
    options = job.options
    warmup = warm_up(
        job.prior,
        job.kernel,
        job.rng,
        ladder_move=options.ladder_move,
        weight_adaptation=options.weight_adaptation,
        betas=None if options.betas is None else check_betas(options.betas),
        rungs_per_barrier=options.rungs_per_barrier,
        cores=job.cores,
        deadline=job.deadline,
        late_cess=LATE_CESS,
        report=job.report,
    )
    if not (warmup.converged or warmup.cut):
        rounds = "initial iterations" if options.weight_adaptation == "rts" else "weights"
        warnings.warn(
            f"The {rounds} did not settle in {len(warmup.rounds)} rounds: the last one "
            f"visited a rung {np.exp(warmup.rounds[-1].max_log_off):.0f} times too often or too "
            "rarely. Run more draws, and look at pmt.diagnose.",
            TemperingWarning,
            stacklevel=4,
        )
    return warmup
