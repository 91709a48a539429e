"""Rounds of doubling length, until the evidence is as precise as asked and its parts agree.

Everything is frozen before the first round, and the lengths are fixed before they begin, so that
all draws since then count, and stopping at a small error causes almost no bias. If the check finds
fault with the fitted reference, the reference is fitted again and the rounds start anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from pymc.progress_bar import ProgressBarManager

from pymc_tempering.chain.chains import ChainRun, extend_runs, run_chains, start_runs
from pymc_tempering.chain.record import N_STEPS
from pymc_tempering.core.cycles import CycleStats
from pymc_tempering.evidence.alarms import MIN_TOURS
from pymc_tempering.evidence.reference_check import compare_legs, with_check
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.evidence.rungs import cumulative_barrier, neighbor_rejection
from pymc_tempering.sampling.choose_plan import (
    ChosenPlan,
    cold_draws,
    fit_again,
    fit_and_check,
    summary_of,
)
from pymc_tempering.sampling.setup import Options
from pymc_tempering.sampling.side_runs import SideRun, cycles_of, extend_side_run

MAX_ROUNDS = 12
"""Rounds at most, where no budget is given."""


@dataclass(frozen=True)
class Goal:
    """When to stop.

    Attributes
    ----------
    target_mcse : float, optional
        Error of log Z, in nats.
    max_time : float, optional
        Seconds after which no further round starts.
    max_steps : int, optional
        Density evaluations, likewise.
    """

    target_mcse: float | None = None
    max_time: float | None = None
    max_steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("target_mcse", "max_time", "max_steps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, not {value!r}.")

    @property
    def single(self) -> bool:
        """Whether one round of the asked length is all that is wanted."""
        return self.target_mcse is None and self.max_time is None and self.max_steps is None

    def late(self, seconds: float) -> bool:
        """Whether no further work is to start."""
        return self.max_time is not None and seconds >= self.max_time

    def unmet(self, evidence: Evidence) -> str:
        """Say what is missing; empty if nothing is."""
        if evidence.verdict != "ok":
            return f"the verdict is {evidence.verdict!r}"
        first, second = evidence.halves
        if abs(first - second) > 4 * 2 * evidence.mcse:
            return "the first and the second half disagree"
        if self.target_mcse is not None and evidence.mcse > self.target_mcse:
            return f"the mcse is {evidence.mcse:.2g}, not {self.target_mcse:.2g}"
        return ""


@dataclass(frozen=True)
class Round:
    """One line of the report: what was known after a round.

    `barrier` is Lambda, the sum of the rejection rates of neighbors; `acceptance` is the kernel's,
    over all rungs but the first.
    """

    draws: int
    tours: int
    barrier: float
    acceptance: float
    log_z: float
    mcse: float
    check_log_z: float
    check_mcse: float
    seconds: float

    def __str__(self) -> str:
        check = f", check {self.check_log_z:.2f} ± {self.check_mcse:.2g}"
        return (
            f"{self.draws} draws, {self.tours} tours: log Z {self.log_z:.3f} ± {self.mcse:.2g}"
            f"{check if np.isfinite(self.check_log_z) else ''}, Lambda {self.barrier:.2f}, "
            f"acceptance {self.acceptance:.2f} ({self.seconds:.1f} s)"
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """The runs of the last plan, and how it came to them."""

    chosen: ChosenPlan
    runs: list[ChainRun]
    rounds: tuple[Round, ...]
    interrupted: bool
    unmet: str


def estimate(chosen: ChosenPlan, runs: list[ChainRun]) -> Evidence:
    """Estimate log Z from recorded runs, with the verdict of the check."""
    evidence = rts(cycles_of(chosen.plan, runs))
    if chosen.fitted is None or chosen.fresh is None:
        return evidence
    draws = cold_draws(chosen.fitted, SideRun(chosen.plan, tuple(runs)))
    return with_check(evidence, compare_legs(evidence, draws, chosen.fresh))


def run_rounds(
    chosen: ChosenPlan,
    options: Options,
    goal: Goal,
    rng: np.random.Generator,
    *,
    draws: int,
    chains: int,
    cores: int,
    keep_trace: bool,
    watch: Callable[[ChosenPlan, list[ChainRun], int], ProgressBarManager],
    report: Callable[[str], None],
    started: float,
    keep_hot: bool = False,
) -> Outcome:
    """Run the chains for `draws` draws each, and on in doubling rounds while the goal is unmet.

    Parameters
    ----------
    watch : callable
        `watch(chosen, runs, n_draws)` gives a progress bar for that round.
    report : callable
        Called with a line after each round, where there can be several.
    started : float
        `perf_counter()` at the beginning of the work that `max_time` bounds.
    keep_hot : bool, default False
        Whether to keep states of all rungs beside the trace.
    """
    rounds: list[Round] = []
    discarded = 0
    runs = start_runs(chosen.plan, draws, rng.spawn(chains), keep_trace, keep_hot=keep_hot)
    total, fits_left, repeats_left = draws, 1, 1
    while True:
        with watch(chosen, runs, total) as progress:
            interrupted = run_chains(chosen.plan, runs, total, cores=cores, watch=progress.update)
            progress.update()
        if interrupted:
            return Outcome(chosen, runs, tuple(rounds), True, "")
        if repeats_left and _outgrown(chosen, runs) and not goal.late(perf_counter() - started):
            report("The run met a region that its reference hardly covers: fitting again")
            repeats_left -= 1
            own = _steps(runs)
            drawn = np.concatenate([run.record.x[: run.state.n_draws] for run in runs])
            chosen = fit_again(chosen, drawn, options, rng, cores)
            chosen = replace(chosen, work=chosen.work | {"fit": chosen.work["fit"] + own})
            runs = start_runs(chosen.plan, total, rng.spawn(chains), keep_trace, keep_hot=keep_hot)
            continue
        chosen = _extend_check(chosen, runs, options, cores)
        if goal.single:
            return Outcome(chosen, runs, tuple(rounds), False, "")
        evidence = estimate(chosen, runs)
        seconds = perf_counter() - started
        cycles = cycles_of(chosen.plan, runs)
        rounds.append(_line(evidence, cycles, total * chains, seconds))
        report(str(rounds[-1]))
        unmet = goal.unmet(evidence)
        own = _steps(runs)
        steps = discarded + sum(chosen.work.values()) + own
        over = (
            goal.late(seconds)
            or (goal.max_steps is not None and steps >= goal.max_steps)
            or len(rounds) >= MAX_ROUNDS
        )
        # Without a target the whole budget is used.
        done = not unmet and goal.target_mcse is not None
        if done or over:
            return Outcome(chosen, runs, tuple(rounds), False, unmet)
        check = evidence.check
        if check is not None and check.verdict == "disagreed" and fits_left:
            assert chosen.pilot is not None
            assert chosen.check is not None
            fits_left -= 1
            chosen = fit_and_check(
                chosen, [chosen.pilot, chosen.check], options, rng,
                cores=cores, n_draws=total * chains, report=report,
            )  # fmt: skip
            discarded += own
            runs = start_runs(chosen.plan, total, rng.spawn(chains), keep_trace, keep_hot=keep_hot)
        else:
            total *= 2
            extend_runs(runs, total)


def _steps(runs: list[ChainRun]) -> int:
    """Density evaluations of recorded runs."""
    return sum(int(run.record.scalars[: run.state.n_draws, N_STEPS].sum()) for run in runs)


def _outgrown(chosen: ChosenPlan, runs: list[ChainRun]) -> bool:
    """Whether a run from a checked reference has tours enough and yet states no error.

    Then one tour outweighs all others: it met a region that the reference hardly covers. A fit to
    the draws of this run will cover it. A new run of the same length then replaces this one, so
    that its draws do not depend on this alarm.
    """
    if chosen.check is None or chosen.fitted is None:
        return False
    evidence = rts(cycles_of(chosen.plan, runs))
    return evidence.n_tours >= MIN_TOURS and not np.isfinite(evidence.mcse)


def _extend_check(
    chosen: ChosenPlan, runs: list[ChainRun], options: Options, cores: int
) -> ChosenPlan:
    """Lengthen the fresh tours, so that they stay a third of the work."""
    check, fitted = chosen.check, chosen.fitted
    if check is None or fitted is None:
        return chosen
    factor = 0.5 * _steps(runs) / check.n_steps
    if factor <= 1:
        return chosen
    longer = extend_side_run(check, int(np.ceil(factor * check.cycles.n_draws)), cores)
    work = chosen.work | {"check": chosen.work["check"] + longer.n_steps - check.n_steps}
    fresh = summary_of(fitted, longer, options)
    return replace(chosen, check=longer, fresh=fresh, work=work)


def _line(evidence: Evidence, cycles: CycleStats, draws: int, seconds: float) -> Round:
    """Line of the report after a round."""
    check = evidence.check
    return Round(
        draws=draws,
        tours=evidence.n_tours,
        barrier=float(cumulative_barrier(neighbor_rejection(cycles))[-1]),
        acceptance=float(cycles.accept_sum[..., 1:].sum() / cycles.visits[..., 1:].sum()),
        log_z=evidence.log_z,
        mcse=evidence.mcse,
        check_log_z=np.nan if check is None else check.log_z,
        check_mcse=np.nan if check is None else check.mcse,
        seconds=seconds,
    )
