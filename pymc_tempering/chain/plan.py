"""A plan: everything that a chain runs with, frozen before the draws that count."""

from dataclasses import dataclass, replace

import numpy as np

from pymc_tempering.chain.record import Rungs
from pymc_tempering.chain.tuning import Tuning
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.kernels import Compound
from pymc_tempering.references.prior import Reference


@dataclass(frozen=True)
class Plan:
    """Everything that a chain runs with, frozen.

    Attributes
    ----------
    reference : Reference
        The reference, which knows its path.
    kernel : Compound
    ladder : Ladder
    step_sizes : array, shape (K, B)
        Of each kernel.
    scales : array, shape (K, d)
        Standard deviations of the unconstrained variables, for the kernels' metrics.
    ladder_move : {"metropolized_gibbs", "gibbs", "nonreversible"}
    covs : array, shape (K, d, d), optional
        Covariances, if some kernel wants them.
    lengths : array, shape (K, B), optional
        Trajectory lengths that the warm-up chose; the usual ones otherwise.
    """

    reference: Reference
    kernel: Compound
    ladder: Ladder
    step_sizes: np.ndarray
    scales: np.ndarray
    ladder_move: str
    covs: np.ndarray | None = None
    lengths: np.ndarray | None = None

    @property
    def tuning(self) -> Tuning:
        """Step sizes, metrics and lengths of the rungs."""
        usual = np.tile(self.kernel.options[0], (self.ladder.n_rungs, 1))
        lengths = usual if self.lengths is None else self.lengths
        return Tuning(self.ladder.betas, self.step_sizes, self.scales, self.covs, lengths)

    @property
    def rungs(self) -> Rungs:
        """The ladder in the form that compiled code reads."""
        return Rungs(self.ladder.betas, self.ladder.offsets, self.tuning.pack(self.kernel))

    def with_ladder(self, ladder: Ladder) -> "Plan":
        """Plan with other normalizing constants on the same rungs."""
        return replace(self, ladder=ladder)
