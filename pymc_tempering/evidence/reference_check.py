"""Whether a run from a fitted reference agrees with looks from the prior.

A fitted reference does not cover the modes that its fit missed, and nothing in its own run (the
fitted leg) shows it. So states that looks from the prior have found are compared with its draws,
not log Z alone.
"""

from dataclasses import replace

import numpy as np

from pymc_tempering.core.cycles import FloatArray, FreshLooks
from pymc_tempering.core.weighting import MIN_ESS, effective_number, log_mean, log_mean_error
from pymc_tempering.evidence.result import Evidence, LookCheck, doubted

MAX_Z = 4.0
"""Largest difference between the two log Z, in standard errors."""

MIN_PASS_DIFFERENCE = 0.5
"""Nats by which the log Z of annealed passes has to be above that of a run to contradict it."""

MIN_ARRIVALS, ARRIVAL_QUANTILE = 20, 0.01
"""Looks that have to arrive before a check can agree; and the quantile of posterior draws that
their log-likelihood and log density have to reach."""

COUNTED = ("n_looks", "needed", "n_strange", "n_arrived", "n_passes", "n_home_passes", "n_islands")
"""Fields of a check that are whole numbers."""

ISLAND = 0.01
"""Share of a pass's particles that contradict a run if they do not come home."""

LOW, SPREADS, MARGIN = 0.1, 4.0, 5.0
"""A state is a suspect from so many nats above the median of log_ratio of posterior draws, or so
many times the distance from this quantile to the median, whichever is more. What lies above the
median tells nothing: such draws may themselves be of a mode that the reference has lost."""


def suspect_above(log_ratio: FloatArray, log_likelihood: FloatArray | None = None) -> float:
    """Value of log_ratio above which a state is a suspect, from those of posterior draws.

    Where only the prior's part of a fitted reference goes, log_ratio is the log-likelihood at
    least. With that of the draws the bar is not above it, except for the margin: beside a poor fit,
    of which log_ratio varies by a lot, no state of a mode that it lacks would be a suspect.
    """
    fine = log_ratio > -np.inf
    low, middle = np.quantile(log_ratio[fine], [LOW, 0.5]) if fine.any() else (0.0, 0.0)
    bar = max(MARGIN, SPREADS * (middle - low))
    if log_likelihood is not None and fine.any():
        bar = min(bar, max(MARGIN, np.quantile(log_likelihood[fine], LOW) - middle))
    return float(middle + bar)


def summarize_looks(
    log_w: FloatArray,
    n_strange: int,
    needed: int,
    n_arrived: int,
    passes: FloatArray,
    n_home_passes: int = 0,
    n_islands: int = 0,
    *,
    settled: bool = True,
    let_go: float = 0.0,
    reached: float = np.nan,
    least_spread: float = 0.0,
) -> FreshLooks:
    """Summarize looks and annealed passes.

    Parameters
    ----------
    log_w : ndarray, shape (n,)
        Weights of looks, in nats.
    n_strange : int
        Looks that ended where the fitted reference hardly goes.
    needed : int
        Looks that were asked for.
    n_arrived : int
        Looks that came to where the posterior is.
    passes : ndarray, shape (P,)
        log Z of the annealed passes, in nats.
    n_home_passes : int
        Passes of which particles came to where the posterior is.
    n_islands : int
        Passes with an island that did not come home.
    settled : bool
        Whether the last round of the search found nothing new.
    let_go : float, default 0
        Share of the evidence in regions that were let go.
    reached : float
        Share of the posterior draws in regions where looks have arrived.
    least_spread : float, default 0
        Least standard deviation of the log Z of passes (nats), which three of them hardly tell.
    """
    spread = max(least_spread, passes.std(ddof=1)) if passes.size > 2 else np.inf
    rough = log_w.size == 0 or effective_number(log_w) < MIN_ESS
    return FreshLooks(
        log_z=np.nan if rough else log_mean(log_w),
        mcse=np.inf if rough else log_mean_error(log_w),
        n_looks=float(log_w.size),
        needed=float(needed),
        n_strange=float(n_strange),
        n_arrived=float(n_arrived),
        n_passes=float(passes.size),
        n_home_passes=float(n_home_passes),
        pass_log_z=float(passes.mean()),
        pass_mcse=float(spread / np.sqrt(max(1, passes.size))),
        n_islands=float(n_islands),
        settled=float(settled),
        let_go=let_go,
        reached=reached,
    )


def no_looks(needed: int) -> FreshLooks:
    """Return the summary where there was no look."""
    return FreshLooks(np.nan, np.inf, 0.0, float(needed), 0.0, 0.0)


def compare_looks(evidence: Evidence, fresh: FreshLooks) -> LookCheck:
    """Compare the fitted leg with looks and annealed passes from the prior.

    Parameters
    ----------
    evidence : Evidence
        The fitted leg's own estimate.
    fresh : FreshLooks

    Returns
    -------
    LookCheck
        "disagreed" with the reasons; "unchecked" if the looks are too few, if too few of them
        arrived, or if the search went on finding something; else "agreed".
    """
    reasons = _contradictions(evidence, fresh)
    few = fresh.n_looks < fresh.needed or fresh.n_arrived < MIN_ARRIVALS
    verdict = "unchecked" if few or not fresh.settled else "agreed"
    stored = vars(fresh)  # as numbers of one kind
    counts = {name: int(value) for name, value in stored.items() if name in COUNTED}
    return LookCheck(
        **stored | counts | {"settled": bool(fresh.settled)},
        difference=fresh.log_z - evidence.log_z,
        pass_difference=fresh.pass_log_z - evidence.log_z,
        verdict="disagreed" if reasons else verdict,
        reasons=tuple(reasons),
    )


def _contradictions(evidence: Evidence, fresh: FreshLooks) -> list[str]:
    """Say what speaks against a run. Who misses a mode states too little, so only more counts."""
    reasons = []
    difference = fresh.log_z - evidence.log_z
    error = float(np.hypot(evidence.mcse, fresh.mcse))
    if np.isfinite(error) and difference > MAX_Z * error:
        reasons.append(f"their log Z is higher by {difference:.2f} nats, {error:.2f} expected")
    if fresh.n_strange:
        reasons.append(
            f"{fresh.n_strange:.0f} of {fresh.n_looks:.0f} looks ended where the reference hardly "
            "goes"
        )
    difference = fresh.pass_log_z - evidence.log_z
    error = float(np.hypot(evidence.mcse, fresh.pass_mcse))
    if np.isfinite(error) and difference > max(MAX_Z * error, MIN_PASS_DIFFERENCE):
        reasons.append(
            f"the log Z of {fresh.n_passes:.0f} annealed passes is higher by {difference:.2f} "
            f"nats, {error:.2f} expected"
        )
    if fresh.n_islands:
        reasons.append(
            f"{fresh.n_islands:.0f} of {fresh.n_passes:.0f} annealed passes have particles that "
            "stay where the reference hardly goes"
        )
    return reasons


def with_check(evidence: Evidence, check: LookCheck) -> Evidence:
    """Return the evidence of a fitted leg with the verdict of its check.

    What regions that were let go may add to log Z is part of its error.
    """
    mcse = float(np.hypot(evidence.mcse, np.log1p(check.let_go)))
    checked = replace(evidence, check=check, mcse=mcse)
    if check.verdict == "agreed":
        return checked
    if check.verdict == "unchecked":
        return doubted(checked, "unchecked", evidence.mcse, _why_unchecked(check))
    # What has not come home may have any mass.
    differences = np.array([check.difference, check.pass_difference])
    known = np.isfinite(differences).any() and not (check.n_strange or check.n_islands)
    size = "at least their difference" if known else "infinite"
    message = (
        f"The fitted reference and looks from the prior disagree ({'; '.join(check.reasons)}), so "
        f"the mcse is {size}: sample with reference='prior' and more draws, or with another random "
        "seed."
    )
    verdict = "disagreed" if evidence.verdict != "unchecked" else "unchecked"
    return doubted(checked, verdict, float(np.nanmax(differences)) if known else np.inf, message)


MAX_APART = 4.0
"""Combined errors by which a bridge to the draws and the estimate of the chains may differ."""


def with_bridge(evidence: Evidence, bridge: tuple[float, float] | None) -> Evidence:
    """Return the evidence of chains from the prior with the value of a bridge to their draws.

    The bridge knows only what the draws know, so it gives value and error where the chains are
    "ok"; where both are apart, one of them is wrong.
    """
    if bridge is None or evidence.verdict != "ok" or not bridge[1] < evidence.mcse:
        return evidence
    log_z, mcse = bridge
    own = {"unbridged_log_z": evidence.log_z, "unbridged_mcse": evidence.mcse}
    off = abs(log_z - evidence.log_z)
    if off > MAX_APART * np.hypot(mcse, evidence.mcse):
        message = (
            f"The chains and a bridge to their draws differ by {off:.2g} nats in log Z (the bridge "
            f"has {log_z:.3f} +- {mcse:.2g}), so the mcse is at least that: sample more draws."
        )
        return doubted(evidence, "disagreed", off, message)
    return replace(evidence, log_z=log_z, mcse=mcse, details=evidence.details | own)


def _why_unchecked(check: LookCheck) -> str:
    """Say what a check lacks, and what helps."""
    if check.n_looks < check.needed:
        return (
            f"{check.n_looks or 'No'} looks from the prior checked the fitted reference, where "
            f"{check.needed} were asked for, so modes may be missing: sample with "
            "reference='auto', and with more max_time if that was over."
        )
    if not check.settled:
        return (
            "The search for modes still found something new when it ended, so there may be more: "
            "compare runs with other random seeds."
        )
    return (
        f"Only {check.n_arrived} of {check.n_looks} looks from the prior came to where the "
        f"posterior is, and {MIN_ARRIVALS} are needed, so modes may be missing "
        f"({check.n_home_passes} of {check.n_passes} annealed passes came there): compare runs "
        f"with other random seeds, or take more looks, as check_looks={10 * check.needed}."
    )
