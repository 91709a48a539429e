"""What a round of a run has come to: what is told of it, what is missing, what time cut off."""

from dataclasses import replace
from math import ceil, isfinite, log2, nan

import numpy as np

from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.record import N_STEPS
from pymc_tempering.core.deadline import Cut, Deadline
from pymc_tempering.evidence.alarms import MIN_TOURS
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.evidence.rungs import cumulative_barrier, neighbor_rejection
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.enough_draws import LeastEss, least_ess
from pymc_tempering.sampling.goal import MOST_GROWTH, Goal, Round
from pymc_tempering.sampling.side_runs import cycles_of

MANY = 1e7
"""Draws from which on a number of them is told by its first digit."""


def draws_of(runs: list[ChainRun]) -> int:
    """Draws of the shortest chain."""
    return min(run.state.n_draws for run in runs)


def drawn_in_all(runs: list[ChainRun]) -> int:
    """Draws of all chains."""
    return sum(run.state.n_draws for run in runs)


def pace_of(seconds: float, runs: list[ChainRun], before: int, otherwise: float = nan) -> float:
    """Return the seconds in which each chain makes a draw, given the draws of all before them.

    Where there are no new ones it is another value.
    """
    new = drawn_in_all(runs) - before
    return seconds * len(runs) / new if new else otherwise


def steps_of(runs: list[ChainRun]) -> int:
    """Density evaluations of recorded runs."""
    return sum(int(run.record.scalars[: run.state.n_draws, N_STEPS].sum()) for run in runs)


def least_of(
    goal: Goal, chosen: ChosenPlan, runs: list[ChainRun], tune: int, deadline: Deadline
) -> LeastEss | None:
    """Least effective sample size, where draws have to suffice."""
    if goal.target_ess is None:
        return None
    return least_ess(chosen.plan.reference.path, runs, tune, goal.target_ess, deadline)


def outgrown(chosen: ChosenPlan, runs: list[ChainRun]) -> bool:
    """Whether a run from a checked reference has tours enough and yet states no error.

    Then one tour outweighs all others: it met a region that the reference hardly covers. A fit to
    the draws of this run will cover it. A new run of the same length then replaces this one, so
    that its draws do not depend on this alarm.
    """
    if chosen.last is None or chosen.fitted is None:
        return False
    cycles = cycles_of(chosen.plan, runs)
    evidence = rts(replace(cycles, n_undefined=None))  # no reference helps against those
    return evidence.n_tours >= MIN_TOURS and not np.isfinite(evidence.mcse)


def contradicted(evidence: Evidence) -> bool:
    """Whether looks disagree with an estimate."""
    return evidence.check is not None and evidence.check.verdict == "disagreed"


def line_of(
    chosen: ChosenPlan,
    runs: list[ChainRun],
    evidence: Evidence,
    least: LeastEss | None,
    seconds: float,
) -> Round:
    """Line of the report after a round."""
    check, cycles = evidence.check, cycles_of(chosen.plan, runs)
    return Round(
        draws=drawn_in_all(runs),
        tours=evidence.n_tours,
        barrier=float(cumulative_barrier(neighbor_rejection(cycles))[-1]),
        acceptance=float(cycles.accept_sum[..., 1:].sum() / cycles.visits[..., 1:].sum()),
        log_z=evidence.log_z,
        mcse=evidence.mcse,
        check_log_z=np.nan if check is None else check.log_z,
        check_mcse=np.nan if check is None else check.mcse,
        least_ess=np.nan if least is None else least.ess,
        seconds=seconds,
    )


def cut_of(
    deadline: Deadline,
    goal: Goal,
    first: int,
    drawn: int,
    pace: float,
    *,
    least: LeastEss | None = None,
    mcse: float = 0.0,
) -> Cut | None:
    """Tell where the time limit ended a run, if it did so before the run had what was wanted.

    Parameters
    ----------
    deadline : Deadline
    goal : Goal
    first : int
        Draws of each chain in the first round.
    drawn : int
        Draws of the shortest chain.
    pace : float
        Seconds for a draw of each chain; not a number where there is none.
    least : LeastEss, optional
    mcse : float, optional
        Error of log Z (nats), where there is a target for it and it was missed.
    """
    wanted = _wanted(goal, first, drawn, least, mcse)
    if not deadline.late or wanted <= drawn:
        return None
    if not isfinite(wanted):
        return Cut("the run", f"at {drawn} draws", nan)
    about = "" if wanted == first else "about "
    needed = deadline.enough((wanted - drawn) * pace)
    number = f"{wanted:.0f}" if wanted < MANY else f"{wanted:.0e}"
    return Cut("the run", f"at {drawn} of {about}{number} draws", needed)


def _wanted(goal: Goal, first: int, drawn: int, least: LeastEss | None, mcse: float) -> float:
    """Draws of each chain in the round that would have met the goal, by what is known now."""
    growth = 1.0
    if least is not None and least.short:
        growth = least.target / least.ess if least.ess > 0.0 else np.inf
    if goal.target_mcse is not None:
        growth = max(growth, (mcse / goal.target_mcse) ** 2)
    if growth == 1.0:
        return float(max(drawn, first))
    if goal.by_default and goal.target_mcse is None:
        growth = min(growth, MOST_GROWTH * first / max(drawn, 1))
    if not isfinite(growth):
        return float(np.inf)
    return float(first * 2 ** max(0, ceil(log2(max(drawn, 1) * growth / first) - 1e-9)))
