"""A plan: everything that a chain runs with, frozen before the draws that count."""

from dataclasses import dataclass, replace

import numpy as np

from pymc_tempering.chain.loop import LADDER_MOVES, Rungs
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.contract import Covariances
from pymc_tempering.references.prior import Reference


@dataclass(frozen=True)
class Tuning:
    """Tuning of a compound of B kernels along the path, a row for each inverse temperature.

    Attributes
    ----------
    betas : array, shape (S,)
    step_sizes : array, shape (S, B)
    scales : array, shape (S, d)
        Standard deviations of the unconstrained variables.
    covs : tuple
        For each kernel the covariances of its block, shape (S, b, b), or None where it wants none.
    lengths : array, shape (S, B)
        Trajectory lengths; NaN for a kernel without a choice.
    """

    betas: np.ndarray
    step_sizes: np.ndarray
    scales: np.ndarray
    covs: Covariances
    lengths: np.ndarray

    def at(self, betas: np.ndarray) -> "Tuning":
        """Tuning at other inverse temperatures, interpolated."""
        stages = np.interp(betas, self.betas, np.arange(self.betas.size))
        low = np.minimum(stages.astype(int), self.betas.size - 2)
        share = stages - low

        def between(values: np.ndarray) -> np.ndarray:
            at = share.reshape(-1, *[1] * (values.ndim - 1))
            return (1 - at) * values[low] + at * values[low + 1]

        return Tuning(
            betas,
            np.exp(between(np.log(self.step_sizes))),
            np.exp(between(np.log(self.scales))),
            tuple(None if cov is None else between(cov) for cov in self.covs),
            np.exp(between(np.log(self.lengths))),
        )

    def reversed(self) -> "Tuning":
        """Tuning of the reversed compound, whose kernels stand in reverse order."""
        steps, lengths = self.step_sizes[:, ::-1], self.lengths[:, ::-1]
        return replace(self, step_sizes=steps, covs=self.covs[::-1], lengths=lengths)

    def pack(self, kernel: Compound) -> np.ndarray:
        """Tuning numbers of a compound at each inverse temperature, shape (S, P)."""
        rows = zip(self.step_sizes, self.scales, self.lengths, strict=True)
        covs = [tuple(c if c is None else c[s] for c in self.covs) for s in range(self.betas.size)]
        return np.array(
            [
                kernel.pack(step, scale, cov, lengths)
                for (step, scale, lengths), cov in zip(rows, covs, strict=True)
            ]
        )


@dataclass(frozen=True)
class Plan:
    """Everything that a chain runs with, frozen.

    Attributes
    ----------
    reference : Reference
        The reference, which knows its path.
    kernel : Compound
    ladder : Ladder
    tuning : Tuning
        Of the kernels at each rung.
    ladder_move : {"metropolized_gibbs", "gibbs", "nonreversible"}
    """

    reference: Reference
    kernel: Compound
    ladder: Ladder
    tuning: Tuning
    ladder_move: str

    @property
    def rungs(self) -> Rungs:
        """The plan in the form that compiled code reads."""
        ladder, params = self.ladder, self.tuning.pack(self.kernel)
        move, circular = LADDER_MOVES[self.ladder_move], self.reference.path.circular
        return Rungs(ladder.betas, ladder.offsets, params, circular, move)

    def with_ladder(self, ladder: Ladder) -> "Plan":
        """Plan with other normalizing constants on the same rungs."""
        return replace(self, ladder=ladder)
