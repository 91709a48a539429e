"""The end of a run: warnings of what went wrong, the verdict, and a line that sums it up."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from math import nan

import pymc as pm
import xarray as xr
from numpy import nan_to_num
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    run_convergence_checks,
)

from pymc_tempering.core.deadline import Cut, in_words, tell_cuts
from pymc_tempering.evidence.diagnostics import Diagnosis, diagnose
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.exceptions import StuckChainError, TemperingWarning, TimeLimitError
from pymc_tempering.model.ordered_priors import said_of_orders
from pymc_tempering.sampling.enough_draws import LeastEss
from pymc_tempering.sampling.goal import Outcome
from pymc_tempering.sampling.setup import PLAN_SHARE

logger = logging.getLogger("pymc.tempering")  # shares PyMC's handler and level

BEFORE_SEARCH = ("prior_constant", "annealed_pass", "fit")
"""Stages of a call that come before the search."""

PYMC_ESS = "effective sample size per chain"
"""Words of PyMC's warning of few effective draws."""


def cuts_of(outcome: Outcome, *, searched: bool) -> list[Cut]:
    """List what the time limit has ended, in the order of the stages.

    Parameters
    ----------
    outcome : Outcome
    searched : bool
        Whether a fitted reference was to be checked by a search.
    """
    chosen, passes = outcome.chosen, outcome.chosen.passes
    of_passes = [one.cut for one in passes.each if one.cut is not None] if passes else []
    longest = max(of_passes, key=lambda cut: nan_to_num(cut.needed), default=None)
    found = [longest, _search_cut(outcome) if searched else None]
    found += [chosen.warmup.annealed.cut, chosen.warmup.cut, outcome.cut]
    return [cut for cut in found if cut is not None]


def _search_cut(outcome: Outcome) -> Cut | None:
    """Tell of a search that has not come to its end; its rounds take as long as those so far."""
    chosen = outcome.chosen
    if chosen.fitted is None or chosen.last is not None or chosen.interrupted:
        return None
    if chosen.passes is None or not chosen.passes.complete:
        return Cut("the search for unknown modes", "before it began", nan)
    before = sum(chosen.seconds.get(name, 0.0) for name in BEFORE_SEARCH)
    took = chosen.seconds.get("search", 0.0)
    needed = (before + took * (1.0 + 1.0 / max(chosen.fits, 1))) / PLAN_SHARE
    return Cut("the search for unknown modes", f"after round {chosen.fits}", needed)


def warn_of_run(
    outcome: Outcome, tune: int, n_draws: int, *, searched: bool, max_time: float | None = None
) -> None:
    """Warn of chains that got stuck, a goal that was missed, and what was cut short.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C came before the first draw.
    StuckChainError
        No chain has a draw, and one hangs.
    TimeLimitError
        No chain has a draw, and the time is over.
    """
    runs = outcome.runs
    faults = {fault for run in runs for fault in run.faults}
    for message in faults:
        warnings.warn(message, TemperingWarning, stacklevel=4)
    if outcome.unmet:
        warnings.warn(
            f"The budget ended before the goal was met: {outcome.unmet}.",
            TemperingWarning,
            stacklevel=4,
        )
    if outcome.least is not None and outcome.least.short:
        warnings.warn(_of_few_draws(outcome.least), TemperingWarning, stacklevel=4)
    if outcome.interrupted and max(run.state.n_draws for run in runs) <= tune:
        if any(run.hangs for run in runs):
            raise StuckChainError(f"No chain has a draw. {' '.join(sorted(faults))}")
        raise KeyboardInterrupt("Interrupted before the first draw.")
    cuts = [] if outcome.interrupted else cuts_of(outcome, searched=searched)
    if cuts and max(run.state.n_draws for run in runs) <= tune:
        raise TimeLimitError(
            f"max_time={max_time:g} was over before the first draw. {tell_cuts(cuts)}"
        )
    if cuts:
        warnings.warn(tell_cuts(cuts), TemperingWarning, stacklevel=4)
    least = min(run.state.n_draws for run in runs)
    if outcome.interrupted:
        cause = "Interrupted"
        if any(run.hangs for run in runs):
            cause = "A chain hangs"
        if outcome.chosen.interrupted:
            cause = "Interrupted before the search for unknown modes was over"
        warnings.warn(
            f"{cause}: the chains had drawn at least {least} of {n_draws} draws; estimates "
            "use these alone.",
            TemperingWarning,
            stacklevel=4,
        )


def _of_few_draws(least: LeastEss) -> str:
    """Sentence about draws that do not suffice."""
    return (
        f"The draws tell too little of {least.name!r}: its effective sample size is "
        f"{least.ess:.0f}, and {least.target:.0f} were wanted. Sample longer, with draws= or "
        "max_time=, or look at pmt.diagnose for what slows the chains."
    )


def close(
    idata: xr.DataTree,
    model: pm.Model,
    seconds: Mapping[str, float],
    *,
    quiet: bool,
    convergence_checks: bool,
    least: LeastEss | None = None,
) -> None:
    """Warn of a verdict other than "ok", and log PyMC's checks and lines that sum the run up.

    The warning comes also where `quiet` keeps everything else away. Where draws had to suffice,
    `least` has been judged, in place of PyMC's check of effective sample sizes.
    """
    found = diagnose(idata)
    verdict = found.evidence.verdict
    if verdict != "ok":
        warnings.warn(
            f"The verdict of this run is {verdict!r}: {_cause(found)}",
            TemperingWarning,
            stacklevel=4,
        )
    if quiet:
        return
    if convergence_checks:
        log_warnings(_not_judged(run_convergence_checks(idata, model), verdict, least))
    if verdict == "ok" and not found.verdict.startswith("ok:"):
        logger.info(found.verdict)
    for sentence in said_of_orders(model):
        logger.info(sentence)
    logger.info(summary(idata, found, seconds, least))


def _not_judged(
    found: Sequence[SamplerWarning], verdict: str, least: LeastEss | None
) -> list[SamplerWarning]:
    """Leave out what PyMC warns of where the run's own verdict has judged the same.

    After a divergence PyMC advises to change the model, since chains may not get to where it was.
    Here they start again from the reference in each tour. What divergences have cost shows in the
    error and in the looks; their number is in :func:`pymc_tempering.diagnose`.
    """
    told = {WarningType.DIVERGENCES} if verdict == "ok" else set[WarningType]()
    judged = least is not None
    return [w for w in found if w.kind not in told and not (judged and PYMC_ESS in w.message)]


def _cause(found: Diagnosis) -> str:
    """Sentences that say why the verdict is not "ok"."""
    if found.verdict.startswith(("few tours: ", "alarm: ")):
        return found.verdict.partition(": ")[2]
    if found.verdict.startswith(("bad kernel", "bad ladder")):
        return found.verdict
    return " ".join(found.evidence.warnings) or found.verdict


def summary(
    idata: xr.DataTree,
    found: Diagnosis,
    seconds: Mapping[str, float],
    least: LeastEss | None = None,
) -> str:
    """Return one line: draws, log Z and its error, the verdict, and where the time went.

    Where draws had to suffice and do not, it says so too.
    """
    sizes = idata["sample_stats"].sizes
    evidence = found.evidence
    few = f", {least}" if least is not None and least.short else ""
    return (
        f"{sizes['chain']} x {sizes['draw']} draws, log Z = "
        f"{plus_minus(evidence.log_z, evidence.mcse)} nats ({evidence.verdict}, "
        f"{evidence.n_tours} tours){few}, {in_words(seconds)}"
    )
