"""What the rounds of a run have come to, and who is told of it."""

from dataclasses import dataclass
from typing import Protocol

from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.goal import Round
from pymc_tempering.sampling.reference_draws import Beside
from pymc_tempering.sampling.setup import Job


@dataclass(frozen=True, eq=False)
class Standing:
    """All that decides how rounds go on, beside the generator of the call.

    Attributes
    ----------
    chosen : ChosenPlan
    runs : list of ChainRun
        Where the chains are; they may be short of `total`.
    beside : Beside
        The reference draws beside them.
    total : int
        Draws of each chain at the end of the present round.
    rounds : tuple of Round
        Those that are over.
    fits_left, repeats_left : int
        How often the reference may still be fitted again: where looks contradict the estimate, and
        where one tour outweighs all others.
    """

    chosen: ChosenPlan
    runs: list[ChainRun]
    beside: Beside
    total: int
    rounds: tuple[Round, ...] = ()
    fits_left: int = 1
    repeats_left: int = 1


class Recorder(Protocol):
    """Keeps where a run stands, so that another process can go on with it."""

    def due(self) -> bool:
        """Whether the chains are to pause, to be kept."""

    def save(self, job: Job, standing: Standing) -> None:
        """Keep where the run stands; no chain moves meanwhile."""


@dataclass(frozen=True)
class NoRecorder:
    """Keeps nothing."""

    def due(self) -> bool:
        """Never."""
        return False

    def save(self, job: Job, standing: Standing) -> None:
        """Do nothing."""
