"""Rounds of doubling length, until draws suffice and the evidence is as precise as asked.

Everything is frozen before the first round, and the lengths are fixed before they begin, so that
all draws since then count, and stopping at a small error causes almost no bias. By default draws
suffice by their effective sample size and the error of log Z, whatever its value. If the check
finds fault with the fitted reference, the reference is fitted again and the rounds start anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, isfinite, log2, nan
from time import perf_counter
from typing import Literal

import numpy as np

from pymc_tempering.chain.chains import (
    ChainRun,
    extend_runs,
    have_least_draws,
    run_chains,
    start_runs,
)
from pymc_tempering.chain.pieces import send_chains
from pymc_tempering.core.deadline import NEVER, Cut, Deadline
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.alarms import MIN_TOURS, neighbor_rejection
from pymc_tempering.evidence.diagnostics import cumulative_barrier
from pymc_tempering.evidence.reference_check import compare_looks, with_bridge, with_check
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import pooled, rts
from pymc_tempering.sampling.bridged import bridged, can_bridge
from pymc_tempering.sampling.call import DEFAULT_MCSE, MOST_GROWTH, PLAN_SHARE, Call, Goal, Job
from pymc_tempering.sampling.choose_plan import ChosenPlan, more_looks, search_again
from pymc_tempering.sampling.effort import effort_of
from pymc_tempering.sampling.recorded import (
    LeastEss,
    cycles_of,
    drawn_in_all,
    draws_of,
    least_ess,
    pace_of,
    steps_of,
    too_large,
    traced_run,
)
from pymc_tempering.sampling.reference_draws import NO_DRAWS, Beside, begin_beside, draw_beside

FIRST_PART, PART_GROWTH = 50, 1.25
"""Draws of the first part of a round before a deadline where chains wait for cores, and how many
times as many there are after each further part."""

LAST_SHARE, LAST_SECONDS = 1.1, 1.0
"""How many times the time of a call is over when its chains stop in any case, and the seconds that
they have at least: those without a few draws get so much longer."""

MAX_ROUNDS = 12
"""Rounds at most, whatever the limits."""

MANY = 1e7
"""Draws from which on a number of them is told by its first digit."""

type Watch = Callable[[list[ChainRun], Ladder, int], object]


@dataclass(frozen=True)
class Round:
    """One line of the report: what was known after a round.

    `barrier` is the sum of the rejection rates of neighbors; `acceptance` is the kernel's, over all
    rungs but the first; `least_ess` is not a number where it was not asked for.
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
        check = f", by looks {self.check_log_z:.2f} ± {self.check_mcse:.2g}"
        ess = f", least ESS {self.least_ess:.0f}"
        return (
            f"{self.draws} draws, {self.tours} tours: log Z {self.log_z:.3f} ± {self.mcse:.2g}"
            f"{check if np.isfinite(self.check_log_z) else ''}"
            f"{ess if np.isfinite(self.least_ess) else ''}, barrier {self.barrier:.2f}, "
            f"acceptance {self.acceptance:.2f} ({self.seconds:.1f} s)"
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where the rounds of a run stand: all that decides how they go on, and how they ended.

    Attributes
    ----------
    chosen : ChosenPlan
    runs : list of ChainRun
        Where the chains are; they may be short of `total`.
    beside : Beside, optional
        The reference draws beside them.
    total : int
        Draws of each chain at the end of the present round.
    rounds : tuple of Round
        Those that are over; none where a single one is wanted.
    fits_left, repeats_left : int
        How often the reference may still be fitted again: where looks contradict the estimate, and
        where one tour outweighs all others.
    interrupted : bool
        Whether Ctrl-C ended the run.
    unmet : str
        What is missing of log Z; empty if nothing is, or nothing was asked for.
    cut : Cut, optional
        Where the time limit ended the run, short of its draws or its targets.
    least : LeastEss, optional
        Where draws had to suffice.
    bridge : tuple of float, optional
        Log Z by a bridge to the draws, and its error (nats).
    """

    chosen: ChosenPlan
    runs: list[ChainRun]
    beside: Beside | None = None
    total: int = 0
    rounds: tuple[Round, ...] = ()
    fits_left: int = 1
    repeats_left: int = 1
    interrupted: bool = False
    unmet: str = ""
    cut: Cut | None = None
    least: LeastEss | None = None
    bridge: tuple[float, float] | None = None

    @property
    def reference(self) -> np.ndarray:
        """log_ratio (nats) at further draws of the reference, shape (n,)."""
        return NO_DRAWS if self.beside is None else self.beside.log_ratio

    @property
    def n_undefined(self) -> int:
        """How many of these have no density."""
        return 0 if self.beside is None else self.beside.n_undefined

    @property
    def work(self) -> dict[str, int]:
        """Density evaluations of each stage before the chains, and of the reference draws."""
        n = self.reference.size
        return self.chosen.work | ({"reference_draws": n} if n else {})

    @property
    def evidence(self) -> Evidence:
        """Estimate of log Z from all draws, with the verdict of the check."""
        found = estimate(self.chosen, self.runs, self.reference, self.n_undefined)
        return with_bridge(found, self.bridge)


class Recorder:
    """Keeps where a run stands, so that another process can go on; this one keeps nothing."""

    def due(self) -> bool:
        """Whether the chains are to pause, to be kept."""
        return False

    def save(self, job: Job, at: Outcome) -> None:
        """Keep where the run stands; no chain moves meanwhile."""


def estimate(
    chosen: ChosenPlan,
    runs: list[ChainRun],
    reference: np.ndarray = NO_DRAWS,
    n_undefined: int = 0,
) -> Evidence:
    """Estimate log Z from recorded runs and reference draws, with the verdict of the check."""
    leg = evidence = rts(cycles_of(chosen.plan, runs))
    if reference.size:
        evidence = pooled(traced_run(chosen.plan, runs, reference, n_undefined))
    fresh = chosen.fresh
    return evidence if fresh is None else with_check(evidence, compare_looks(leg, fresh))


def run_rounds(
    job: Job,
    call: Call,
    chosen: ChosenPlan,
    watch: Watch,
    recorder: Recorder = Recorder(),  # noqa: B008 (without content)
    at: Outcome | None = None,
) -> Outcome:
    """Run the chains for the draws of a call, and on in doubling rounds while its goal is unmet.

    Parameters
    ----------
    job : Job
        Its `report` is called with a line after each round, where there can be several. At its
        deadline the chains stop, once each has a few draws.
    call : Call
    chosen : ChosenPlan
    watch : callable
        `watch(runs, ladder, n_draws)` gives what tells how far a round is.
    recorder : Recorder, optional
        Told where the run stands: before the first draw, whenever it asks for it, and when chains
        have stopped.
    at : Outcome, optional
        Where an earlier process left the run, which then goes on from there.
    """
    at, pace = at or _start(job, call, chosen, _first_length(job, call)), np.nan
    while True:
        began, before = perf_counter(), drawn_in_all(at.runs)
        at = _draw(job, at, watch, recorder)
        if at.interrupted:
            return at
        pace = pace_of(perf_counter() - began, at.runs, before, pace)
        try:
            at, then = _judge(job, call, at, began, pace)
            if then == "end":
                return at
            if then == "refit":
                at = _refit(job, call, at)
            else:
                at = replace(at, total=2 * at.total, bridge=None)
                extend_runs(at.runs, at.total)
        except KeyboardInterrupt:
            return replace(at, interrupted=True)


def _first_length(job: Job, call: Call) -> int:
    """Draws of each chain in the first round; few where it was left open and values are dear."""
    first = effort_of(job.prior.path).draws if call.goal.by_default else call.draws
    return min(first, call.draws) + call.tune


def _start(job: Job, call: Call, chosen: ChosenPlan, n_draws: int) -> Outcome:
    """Put chains at the start of a plan, with the reference draws beside them to come."""
    job.probed  # noqa: B018 (here, since a likelihood may hang later)
    traced, hot = call.keep is not None, call.keep == "states"
    runs = start_runs(chosen.plan, n_draws, job.rng.spawn(call.chains), traced, keep_hot=hot)
    asked = call.reference_draws if traced else 0
    beside = begin_beside(chosen.plan, asked, chosen.spent, job.rng, job.deadline, job.value_cores)
    return Outcome(chosen, runs, beside, n_draws)


def _draw(job: Job, at: Outcome, watch: Watch, recorder: Recorder) -> Outcome:
    """Make the draws of a round: those of the reference first, then those of the chains.

    It is kept where the first of these begin. Ctrl-C leaves what there is.
    """
    assert at.beside is not None
    draws = at.total * len(at.runs)
    try:
        if at.beside.number(draws) > at.beside.log_ratio.size:
            recorder.save(job, at)
    except KeyboardInterrupt:
        return replace(at, interrupted=True)
    job.report("Draws of the reference")
    beside, interrupted = draw_beside(job, at.beside, draws)
    at = replace(at, beside=beside)
    ended = interrupted or run_to(job, at, watch, recorder)
    return replace(at, interrupted=ended or at.chosen.interrupted)


def _judge(
    job: Job, call: Call, at: Outcome, began: float, pace: float
) -> tuple[Outcome, Literal["end", "refit", "longer"]]:
    """Decide after a round that began at a time what is next.

    The chains end, are made longer, or start anew with a reference that is fitted again. `pace` is
    in seconds for a draw of each chain.
    """
    goal, drawn = call.goal, draws_of(at.runs)
    job.report("Looking at the draws")
    told = partial(cut_of, job.deadline, goal, _first_length(job, call), drawn, pace)
    if drawn < at.total and not have_least_draws(at.runs):
        return replace(at, cut=told()), "end"
    has_time = job.deadline.left > perf_counter() - began
    if at.repeats_left and has_time and _outgrown(at):
        job.tell("The run met a region that its reference hardly covers: fitting again")
        return replace(at, repeats_left=at.repeats_left - 1), "refit"
    if goal.single:
        return replace(_with_bridge(job, at, began), cut=told()), "end"
    least, growth = None, at.total / call.n_draws
    if goal.target_ess is not None:
        path = at.chosen.plan.reference.path
        least = least_ess(path, at.runs, call.tune, goal.target_ess, job.deadline)
    more = goal.goes_on_for(least, growth)
    at = at if more else _with_bridge(job, at, began)
    more = more or _imprecise(job, goal, at, growth)
    if goal.ess_alone and not (more or at.rounds):
        return replace(at, least=least, cut=told(least=least)), "end"
    if not (goal.ess_alone or job.deadline.late):
        at = replace(at, chosen=more_looks(job, at.chosen, steps_of(at.runs) // 2))
    evidence = at.evidence
    line = _line_of(at, evidence, least, perf_counter() - job.deadline.began)
    at = replace(at, rounds=(*at.rounds, line))
    job.tell(f"{line}{goal.wanted()}")
    unmet = "" if goal.ess_alone else goal.unmet(evidence)
    if not (more or unmet) or _is_over(job, goal, at):
        cut = told(least=least, mcse=evidence.mcse)
        return replace(at, unmet=unmet, least=least, cut=cut), "end"
    disagreed = evidence.check is not None and evidence.check.verdict == "disagreed"
    if at.fits_left and disagreed and not goal.ess_alone:
        return replace(at, fits_left=at.fits_left - 1), "refit"
    return at, "longer"


def _with_bridge(job: Job, at: Outcome, began: float) -> Outcome:
    """Bridge to the draws that there are, where that is of use and there is time.

    It takes about as long as a round of a thousand draws; the last one `began` at a time.
    """
    reference, n = at.chosen.plan.reference, draws_of(at.runs)
    if not can_bridge(reference) or job.deadline.left < 2.0 * (perf_counter() - began):
        return at
    states = np.stack([run.record.x[:n] for run in at.runs])
    return replace(at, bridge=bridged(reference, states, job.cores, steps_of(at.runs)))


def _outgrown(at: Outcome) -> bool:
    """Whether a run from a checked reference has tours enough and yet states no error.

    Then one tour outweighs all others: it met a region that the reference hardly covers. A fit to
    the draws of this run will cover it. A new run of the same length then replaces this one, so
    that its draws do not depend on this alarm.
    """
    if at.chosen.last is None or at.chosen.fitted is None:
        return False
    cycles = cycles_of(at.chosen.plan, at.runs)
    evidence = rts(replace(cycles, n_undefined=None))  # no reference helps against those
    return evidence.n_tours >= MIN_TOURS and not np.isfinite(evidence.mcse)


def _imprecise(job: Job, goal: Goal, at: Outcome, growth: float) -> bool:
    """Whether log Z has a finite error above what is enough, and chains may still grow for it.

    That is `DEFAULT_MCSE`, less in rounds that are short since values are dear, and more where
    these have many dimensions.
    Who asks for another error, or for effective draws, gets these alone.
    """
    if not (goal.by_default and goal.ess_alone) or growth >= MOST_GROWTH:
        return False
    enough = effort_of(job.prior.path).mcse
    enough = enough if growth < 1.0 else max(enough, DEFAULT_MCSE)
    if rts(cycles_of(at.chosen.plan, at.runs)).mcse <= enough:
        return False
    return enough < at.evidence.mcse < np.inf


def _is_over(job: Job, goal: Goal, at: Outcome) -> bool:
    """Whether a limit allows no further round."""
    steps = at.chosen.spent + at.reference.size + steps_of(at.runs)
    spent = goal.spent(steps) or len(at.rounds) >= MAX_ROUNDS
    return job.deadline.late or spent or too_large(at.runs, at.total)


def _line_of(at: Outcome, evidence: Evidence, least: LeastEss | None, seconds: float) -> Round:
    """Line of the report after a round."""
    check, cycles = evidence.check, cycles_of(at.chosen.plan, at.runs)
    return Round(
        draws=drawn_in_all(at.runs),
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


def _refit(job: Job, call: Call, at: Outcome) -> Outcome:
    """Fit the reference to the draws too, whose work counts to the fit, and start anew."""
    job.tally.work["fit"] += steps_of(at.runs) + at.reference.size
    drawn = np.concatenate([run.record.x[: run.state.n_draws] for run in at.runs])
    chosen = search_again(replace(job, deadline=job.deadline.rest(PLAN_SHARE)), at.chosen, drawn)
    new = _start(job, call, chosen, at.total)
    return replace(at, chosen=chosen, runs=new.runs, beside=new.beside)


def run_to(job: Job, at: Outcome, watch: Watch, recorder: Recorder) -> bool:
    """Run the chains to their draws; before a deadline in parts, so that none is far behind.

    They stop at the deadline, or a little later where some has few draws. They pause when the
    recorder asks for it; it saves before they start, then, and when they have stopped.

    Returns
    -------
    bool
        Whether Ctrl-C cut the run short.
    """
    deadline, runs, total = job.deadline, at.runs, at.total
    final = deadline.part(LAST_SHARE).after(LAST_SECONDS)
    # Without a limit the workers do pieces of all chains in turn, so that none is far behind.
    enough = job.cores >= len(runs) if job.crew is None else not deadline.limited
    goal = total if deadline == NEVER or enough else FIRST_PART
    crew = job.crew
    move = partial(run_chains, cores=job.cores) if crew is None else partial(send_chains, crew)
    paused = False

    def pause() -> bool:
        nonlocal paused
        paused = paused or recorder.due() or final.late
        return paused

    job.report(watch(runs, at.chosen.plan.ladder, total))
    try:
        recorder.save(job, at)
        while not (deadline.late and have_least_draws(runs)):
            goal, paused = min(goal, total), False
            interrupted = move(at.chosen.plan, runs, goal, deadline=deadline, pause=pause)
            over = goal == total or deadline.late
            if interrupted or paused or over:
                recorder.save(job, at)
            if interrupted:
                return True
            if paused and draws_of(runs) < goal and not final.late:
                continue
            if over:
                return False
            goal = int(PART_GROWTH * goal) + 1
    except KeyboardInterrupt:  # while it was saved
        return True
    return False


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
