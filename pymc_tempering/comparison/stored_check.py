"""Evidence from a cross-check: the estimate that it says to believe, and what it says of others."""

from dataclasses import replace

import numpy as np

from pymc_tempering.crosscheck.entry import MAX_ERROR
from pymc_tempering.crosscheck.store import CrossCheck
from pymc_tempering.evidence import Evidence
from pymc_tempering.exceptions import TemperingError

VERDICTS = {"agree": "ok", "disagree": "disagreed", "unchecked": "unchecked"}
"""Verdict of an evidence for that of a cross-check."""


def believed_evidence(check: CrossCheck) -> Evidence:
    """Return the estimate to believe, with the verdict of the cross-check.

    If the estimates disagree, its error is at least the distance between the lowest and the
    highest of them, as the words of the cross-check say.

    Raises
    ------
    TemperingError
        If the cross-check believes none.
    """
    if check.believe is None:
        raise TemperingError(
            "the cross-check believes none of its estimates, since none states an error: sample "
            "with pymc_tempering.sample, and run cross_check again"
        )
    row = check.table.loc[check.believe]
    verdict = VERDICTS[check.verdict]
    if verdict == "ok" and row["verdict"] != "ok":
        verdict = str(row["verdict"])
    count = row["n_evaluations"]
    evidence = Evidence(
        log_z=float(row["log_z"]),
        mcse=float(row["mcse"]),
        method=f"cross_check ({check.believe})",
        verdict=verdict,
        bias_direction=str(row["bias_direction"]),
        n_evaluations=int(count) if isinstance(count, int | np.integer) and count else None,
        seconds=float(row["seconds"]),
    )
    return _with_words(evidence, check)


def agreed_evidence(evidence: Evidence, check: CrossCheck) -> Evidence:
    """Return an estimate from a run, "disagreed" if a cross-check of that run disagrees."""
    if check.verdict != "disagree":
        return evidence
    verdict = "unchecked" if evidence.verdict == "unchecked" else "disagreed"
    return _with_words(replace(evidence, verdict=verdict), check)


def _with_words(evidence: Evidence, check: CrossCheck) -> Evidence:
    """Add what a cross-check that does not agree says, and the scatter to the error."""
    if check.verdict == "agree":
        return evidence
    mcse = evidence.mcse
    if check.verdict == "disagree":
        table = check.table
        known = np.isfinite(table["mcse"]) & (table["bias_direction"] == "")
        narrow = known & (table["mcse"] <= MAX_ERROR)
        values = table["log_z"][narrow if narrow.any() else known]
        if len(values):
            mcse = max(mcse, float(values.max() - values.min()))
        if check.draws is not None and check.draws.verdict == "disagree":
            mcse = max(mcse, check.draws.shortfall)
    warning = f"The cross-check says: {check.words}"
    return replace(evidence, mcse=mcse, warnings=(*evidence.warnings, warning))
