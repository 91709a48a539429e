"""Whether a run from a fitted reference agrees with fresh tours from the prior.

A fitted reference does not cover the modes that its fit missed, and nothing in its own run (the
fitted leg) shows it. So the draws of both legs are compared, not their log Z alone.
"""

from dataclasses import replace

import numpy as np

from pymc_tempering.core.cycles import ColdDraws, FloatArray, FreshTours
from pymc_tempering.evidence.result import Evidence, LegCheck
from pymc_tempering.evidence.tours import tour_labels

MAX_Z = 4.0
"""Largest difference between two legs, in standard errors, of log Z and of a component's share."""

MIN_MARGIN = 3.0
"""Nats by which log_ratio of a fresh draw must exceed those of the fitted leg for an alarm."""

MIN_COUNT = 5.0
"""Fewest draws, and expected tours, with which a component's share is compared."""

STRAY_SHARE, STRAY_COUNT = 0.002, 3
"""Share and number of fresh draws that may be absent: log Z moves by no more than their share."""

UNSEEN_SHARE = 0.01
"""Smallest share of the fresh draws in a component that the fitted leg must visit, too."""


def component_shares(draws: ColdDraws, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the share of each of ``n`` components among cold draws, and its error over tours."""
    _, index = np.unique(tour_labels(draws.tour_start).ravel(), return_inverse=True)
    counts = np.zeros((index.max() + 1, n))
    np.add.at(counts, (index, draws.component.ravel().astype(int)), 1.0)
    total = counts.sum()
    share = counts.sum(axis=0) / total
    influence = (counts - share * counts.sum(axis=1, keepdims=True)) / total
    blocks = len(counts)
    error = np.sqrt(blocks / max(blocks - 1, 1) * np.sum(influence**2, axis=0))
    return share, error


def summarize(evidence: Evidence, draws: ColdDraws, n: int, needed: int) -> FreshTours:
    """Summarize fresh tours from their own evidence and their cold draws."""
    share, error = component_shares(draws, n)
    stray = min(max(STRAY_COUNT, int(STRAY_SHARE * draws.log_ratio.size)), draws.log_ratio.size)
    return FreshTours(
        log_z=evidence.log_z,
        mcse=evidence.mcse,
        n_tours=float(evidence.n_tours),
        needed=float(needed),
        log_ratio_top=float(np.sort(draws.log_ratio, axis=None)[-stray]),
        share=share,
        share_mcse=error,
        count=share * draws.component.size,
    )


def no_fresh_tours(n: int, needed: int) -> FreshTours:
    """Return the summary of a check without any tours, for ``n`` components."""
    none = np.zeros(n)
    return FreshTours(np.nan, np.inf, 0.0, float(needed), -np.inf, none, none, none)


def compare_legs(evidence: Evidence, draws: ColdDraws, fresh: FreshTours) -> LegCheck:
    """Compare the fitted leg with fresh tours from the prior: log Z, draws, and mode shares.

    Parameters
    ----------
    evidence : Evidence
        The fitted leg's own estimate.
    draws : ColdDraws
        Its draws.
    fresh : FreshTours

    Returns
    -------
    LegCheck
        "disagreed" with the reasons, "unchecked" if the fresh tours are too few, or "agreed".
    """
    reasons = []
    difference = fresh.log_z - evidence.log_z
    error = float(np.hypot(evidence.mcse, fresh.mcse))
    if np.isfinite(error) and abs(difference) > MAX_Z * error:
        reasons.append(f"their log Z differ by {difference:+.2f} nats, {error:.2f} expected")
    top, middle = float(draws.log_ratio.max()), float(np.median(draws.log_ratio))
    if fresh.log_ratio_top > top + max(MIN_MARGIN, top - middle):
        reasons.append(
            "fresh draws lie where the fitted reference is too small by "
            f"{fresh.log_ratio_top - top:.1f} nats"
        )
    reasons += _share_reasons(draws, fresh)
    verdict = "agreed"
    if fresh.n_tours < fresh.needed:
        verdict = "unchecked"
    if reasons:
        verdict = "disagreed"
    return LegCheck(
        log_z=fresh.log_z,
        mcse=fresh.mcse,
        n_tours=int(fresh.n_tours),
        needed=int(fresh.needed),
        difference=difference,
        verdict=verdict,
        reasons=tuple(reasons),
    )


def _share_reasons(draws: ColdDraws, fresh: FreshTours) -> list[str]:
    """Say where the shares of the components differ by more than noise."""
    reasons = []
    share, share_error = component_shares(draws, fresh.share.size)
    own_count = share * draws.component.size
    unseen = (
        (own_count == 0) & (fresh.count >= MIN_COUNT) & (fresh.share > UNSEEN_SHARE)
    ).nonzero()[0]
    if unseen.size:
        reasons.append(f"the fitted leg never visits component {unseen[0]}, fresh draws do")
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.abs(share - fresh.share) / np.hypot(share_error, fresh.share_mcse)
    # The error of a component that few tours visit is not reliable.
    known = (fresh.share * fresh.n_tours >= MIN_COUNT) & (own_count >= MIN_COUNT)
    z = np.where(known, z, 0.0)
    if z.size and z.max() > MAX_Z:
        worst = int(z.argmax())
        reasons.append(
            f"they give component {worst} the shares {share[worst]:.3f} and "
            f"{fresh.share[worst]:.3f}"
        )
    return reasons


def with_check(evidence: Evidence, check: LegCheck) -> Evidence:
    """Return the evidence of a fitted leg with the verdict of its check.

    If the fitted leg states no error and the fresh tours do, their estimate is returned.
    """
    if not np.isfinite(evidence.mcse) and np.isfinite(check.mcse):
        message = (
            f"The fitted leg states no error, so the answer is that of {check.n_tours} fresh tours "
            "from the prior: sample with reference='prior' and more draws for a better one."
        )
        return replace(
            evidence,
            log_z=check.log_z,
            mcse=max(check.mcse, abs(check.difference)),
            check=check,
            warnings=(message, *evidence.warnings),
        )
    if check.verdict == "agreed":
        return replace(evidence, check=check)
    if check.verdict == "unchecked":
        message = (
            f"Only {check.n_tours} fresh tours from the prior checked the fitted reference where "
            f"{check.needed} were asked for, so a mode that a tour finds with probability below "
            f"{check.missed:.2g} may be missing: a tighter prior, or more draws, would help."
        )
        verdict = "unchecked"
        mcse = evidence.mcse
    else:
        message = (
            f"The fitted reference and fresh tours from the prior disagree ("
            f"{'; '.join(check.reasons)}), so the mcse is at least their difference: sample with "
            "reference='prior' and more draws, or with another random seed."
        )
        verdict = "disagreed" if evidence.verdict != "unchecked" else "unchecked"
        difference = abs(check.difference) if np.isfinite(check.difference) else np.inf
        mcse = max(evidence.mcse, difference)
    curve = np.maximum(evidence.log_z_curve_mcse, np.where(evidence.betas > 0, mcse, 0.0))
    return replace(
        evidence,
        mcse=mcse,
        log_z_curve_mcse=curve,
        verdict=verdict,
        check=check,
        warnings=(message, *evidence.warnings),
    )
