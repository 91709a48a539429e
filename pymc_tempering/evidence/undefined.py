"""What an estimate is worth where the density was no number at some draws of its reference."""

from dataclasses import replace

import numpy as np

from pymc_tempering.evidence.result import Evidence

MAX_UNDEFINED_SHARE = 1e-3
"""Largest share of the reference draws without a density that leaves a verdict as it is."""


def with_undefined(
    evidence: Evidence, n_undefined: float, n_draws: float, what: str = "reference draws"
) -> Evidence:
    """Return an evidence with its count of draws without a density, which leave it unchecked.

    Such draws count as zero likelihood. What the likelihood would be there is not known: if it is
    as elsewhere, log Z is off by the log of the share of the others.

    Parameters
    ----------
    evidence : Evidence
    n_undefined, n_draws : float
        Draws where the density was NaN, infinite or raised an error, and all draws.
    what : str, optional
        What these draws are.

    Returns
    -------
    Evidence
        With ``undefined_draws`` in its details if there are any; above ``MAX_UNDEFINED_SHARE``
        "unchecked", with an infinite error and a sentence.
    """
    if not n_undefined:
        return evidence
    details = evidence.details | {"undefined_draws": float(n_undefined)}
    share = n_undefined / n_draws
    if share <= MAX_UNDEFINED_SHARE:
        return replace(evidence, details=details)
    off = f"too low by about {-np.log1p(-share):.2g} nats" if share < 1.0 else "not known"
    sentence = (
        f"The log-likelihood was no number (NaN, +inf, or an error) at {n_undefined:,.0f} of "
        f"{n_draws:,.0f} {what} ({share:.2%}), which count as zero likelihood. If it is there as "
        f"elsewhere, log Z is {off}, and nothing bounds it if it is larger, so the mcse is "
        "infinite: write the likelihood so that it is a number there, or -inf where it is truly "
        "zero, or restrict the prior to where it is defined."
    )
    curve = np.full(evidence.log_z_curve_mcse.shape, np.inf)
    curve[:1] = 0.0
    return replace(
        evidence,
        mcse=np.inf,
        log_z_curve_mcse=curve,
        verdict="unchecked",
        warnings=(sentence, *evidence.warnings),
        details=details,
    )
