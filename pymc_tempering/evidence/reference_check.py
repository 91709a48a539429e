"""Whether a run from a fitted reference agrees with looks from the prior.

A fitted reference does not cover the modes that its fit missed, and nothing in its own run (the
fitted leg) shows it. So states that looks from the prior have found are compared with its draws,
not log Z alone.
"""

from dataclasses import replace

import numpy as np

from pymc_tempering.core.cycles import FloatArray, FreshLooks
from pymc_tempering.core.weighting import MIN_ESS, effective_number, log_mean, log_mean_error
from pymc_tempering.evidence.result import Evidence, LookCheck

MAX_Z = 4.0
"""Largest difference between the two log Z, in standard errors."""

LOW, SPREADS, MARGIN = 0.1, 4.0, 5.0
"""A state is a suspect from so many nats above the median of log_ratio of posterior draws, or so
many times the distance from this quantile to the median, whichever is more. What lies above the
median tells nothing: such draws may themselves be of a mode that the reference has lost."""


def suspect_above(log_ratio: FloatArray) -> float:
    """Value of log_ratio above which a state is a suspect, from those of posterior draws."""
    finite = log_ratio[log_ratio > -np.inf]
    low, middle = np.quantile(finite, [LOW, 0.5]) if finite.size else (0.0, 0.0)
    return float(middle + max(MARGIN, SPREADS * (middle - low)))


def summarize_looks(log_w: FloatArray, n_strange: int, needed: int) -> FreshLooks:
    """Summarize looks from their weights.

    Parameters
    ----------
    log_w : ndarray, shape (n,)
        In nats.
    n_strange : int
        Looks that ended where the fitted reference hardly goes.
    needed : int
        Looks that were asked for.
    """
    rough = effective_number(log_w) < MIN_ESS
    return FreshLooks(
        log_z=np.nan if rough else log_mean(log_w),
        mcse=np.inf if rough else log_mean_error(log_w),
        n_looks=float(log_w.size),
        needed=float(needed),
        n_strange=float(n_strange),
    )


def no_looks(needed: int) -> FreshLooks:
    """Return the summary where there was no look."""
    return FreshLooks(np.nan, np.inf, 0.0, float(needed), 0.0)


def compare_looks(evidence: Evidence, fresh: FreshLooks) -> LookCheck:
    """Compare the fitted leg with looks from the prior: log Z, and where the looks ended.

    Parameters
    ----------
    evidence : Evidence
        The fitted leg's own estimate.
    fresh : FreshLooks

    Returns
    -------
    LookCheck
        "disagreed" with the reasons, "unchecked" if the looks are too few, or "agreed".
    """
    reasons = []
    difference = fresh.log_z - evidence.log_z
    error = float(np.hypot(evidence.mcse, fresh.mcse))
    # Looks that miss a mode state too little, so only more than the run has found counts.
    if np.isfinite(error) and difference > MAX_Z * error:
        reasons.append(f"their log Z is higher by {difference:.2f} nats, {error:.2f} expected")
    if fresh.n_strange:
        reasons.append(
            f"{fresh.n_strange:.0f} of {fresh.n_looks:.0f} looks ended where the reference hardly "
            "goes"
        )
    verdict = "unchecked" if fresh.n_looks < fresh.needed else "agreed"
    if reasons:
        verdict = "disagreed"
    return LookCheck(
        log_z=fresh.log_z,
        mcse=fresh.mcse,
        n_looks=int(fresh.n_looks),
        needed=int(fresh.needed),
        n_strange=int(fresh.n_strange),
        difference=difference,
        verdict=verdict,
        reasons=tuple(reasons),
    )


def with_check(evidence: Evidence, check: LookCheck) -> Evidence:
    """Return the evidence of a fitted leg with the verdict of its check."""
    if check.verdict == "agreed":
        return replace(evidence, check=check)
    if check.verdict == "unchecked":
        message = (
            f"{check.n_looks or 'No'} looks from the prior checked the fitted reference, where "
            f"{check.needed} were asked for, so modes may be missing: sample with "
            "reference='auto', and let the search end."
        )
        verdict = "unchecked"
        mcse = evidence.mcse
    else:
        # Strange looks tell of something whose mass is not known.
        known = np.isfinite(check.difference) and not check.n_strange
        size = "at least their difference" if known else "infinite"
        message = (
            f"The fitted reference and looks from the prior disagree ("
            f"{'; '.join(check.reasons)}), so the mcse is {size}: sample with reference='prior' "
            "and more draws, or with another random seed."
        )
        verdict = "disagreed" if evidence.verdict != "unchecked" else "unchecked"
        mcse = max(evidence.mcse, check.difference if known else np.inf)
    curve = np.maximum(evidence.log_z_curve_mcse, np.where(evidence.betas > 0, mcse, 0.0))
    return replace(
        evidence,
        mcse=mcse,
        log_z_curve_mcse=curve,
        verdict=verdict,
        check=check,
        warnings=(message, *evidence.warnings),
    )
