"""Side runs: chains of a frozen plan beside the main run, for a fit or for a check."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_tempering.chain.chains import ChainRun, run_chains, start_runs
from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.record import (
    LOWEST,
    N_DIVERGENCES,
    N_STEPS,
    N_UNDEFINED,
    STEPS,
    TOUR_START,
)
from pymc_tempering.core.cycles import RUNG_STATS, CycleStats
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.weighting import kish
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.exceptions import StuckChainError, TimeLimitError


@dataclass(frozen=True, eq=False)
class SideRun:
    """Chains of equal length, and what they found.

    Attributes
    ----------
    plan : Plan
    runs : tuple of ChainRun
    """

    plan: Plan
    runs: tuple[ChainRun, ...]

    @cached_property
    def cycles(self) -> CycleStats:
        """Statistics of the recorded cycles."""
        return cycles_of(self.plan, self.runs)

    @cached_property
    def evidence(self) -> Evidence:
        """RTS estimate from this side run alone."""
        return rts(self.cycles)

    @property
    def n_draws(self) -> int:
        """Draws of the shortest chain."""
        return min(run.state.n_draws for run in self.runs)

    @property
    def n_steps(self) -> int:
        """Evaluations of the density."""
        return int(sum(run.record.scalars[: run.state.n_draws, N_STEPS].sum() for run in self.runs))

    def posterior_sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Resample states of all rungs by q(beta_K | x) to `n` draws at most, shape (m, d).

        There are no more draws than the effective sample size of the weights (Kish). They stay in
        the order of the chains.
        """
        log_ratio = np.concatenate([part[0] for run in self.runs for part in run.trace])
        states = np.concatenate([part[2] for run in self.runs for part in run.trace])
        weights = self.plan.ladder.probabilities(log_ratio)[-1]
        ess = float(kish(weights))
        index = rng.choice(len(weights), int(min(n, max(ess, 1))), p=weights / weights.sum())
        return states[np.sort(index)]


def cycles_of(plan: Plan, runs: Sequence[ChainRun]) -> CycleStats:
    """Statistics of recorded cycles in the form that estimators read."""
    n = min(run.state.n_draws for run in runs)
    per_rung = np.array([run.record.per_rung[:n] for run in runs])
    scalars = np.array([run.record.scalars[:n] for run in runs])
    ladder = plan.ladder
    return CycleStats(
        beta=ladder.betas,
        log_z_ladder=ladder.log_z,
        log_weight=ladder.log_weights,
        **{name: per_rung[:, :, i] for i, name in enumerate(RUNG_STATS)},
        tempering_steps=scalars[:, :, STEPS],
        beta_min=ladder.betas[scalars[:, :, LOWEST].astype(int)],
        n_divergences=scalars[:, :, N_DIVERGENCES],
        tour_start=scalars[:, :, TOUR_START] != 0,
        n_undefined=scalars[:, :, N_UNDEFINED],
    )


def run_beside(
    plan: Plan,
    rng: np.random.Generator,
    *,
    n_chains: int,
    n_draws: int,
    cores: int,
    keep_states: bool = False,
    deadline: Deadline = NEVER,
) -> SideRun:
    """Make a side run of `n_draws` draws a chain, before the main run has begun.

    Parameters
    ----------
    plan : Plan
    rng : numpy.random.Generator
    n_chains, n_draws, cores : int
    keep_states : bool, default False
        Whether to keep the states of all iterations, for a fit.
    deadline : Deadline, optional
        When it stops, once each chain has a few draws; at the end of the overtime without them.

    Returns
    -------
    SideRun
        Of the chains that have a draw.

    Raises
    ------
    KeyboardInterrupt
    StuckChainError
        A chain does not come back.
    TimeLimitError
        No chain had a draw when the overtime was over.
    """
    runs = start_runs(plan, n_draws, rng.spawn(n_chains), keep_states, keep_states=keep_states)
    final = deadline.last.rest(1.0)
    if run_chains(
        plan, runs, n_draws, cores=cores, deadline=deadline, pause=lambda: final.late
    ):  # fmt: skip
        for run in runs:
            if run.hangs:
                raise StuckChainError(run.hangs)
        raise KeyboardInterrupt("Interrupted before sampling began.")
    drawn = [run for run in runs if run.state.n_draws > 0]
    if not drawn:
        raise TimeLimitError(
            f"max_time was over before one of {n_chains} chains of a trial run had come from "
            f"beta = 0 to 1, on {plan.ladder.n_rungs} rungs: give it several times as long, or "
            "leave it out."
        )
    return SideRun(plan, tuple(drawn))
