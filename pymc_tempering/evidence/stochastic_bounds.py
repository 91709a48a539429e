"""A lower and an upper stochastic bound of log Z, and what they say together."""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.core.notebook import text_as_html
from pymc_tempering.evidence.result import Evidence, plus_minus

RESTS_ON = (
    "The lower bound needs nothing. The upper one rests on true posterior draws: where these miss "
    "a mode it can lie below log Z, by up to -log(share of the posterior that they see), and "
    "where the particles from the prior miss the same mode both agree on a wrong value."
)

MAX_Z = 3.0
"""Standard errors by which the lower bound may lie above the upper one before it is said."""

MAX_GAP = 0.1
"""Gap in nats, beyond noise, above which a wider schedule is recommended."""


@dataclass(frozen=True, repr=False)
class Sandwich:
    """Lower and upper stochastic bounds of log Z, and the gap between them.

    Attributes
    ----------
    lower, upper : Evidence
        From annealing up and from annealing down; in expectation below and above log Z (nats).
    gap : float
        ``upper.log_z - lower.log_z`` (nats).
    gap_mcse : float
        Its standard error (nats).
    verdict : {"ok", "wide", "crossed", "unchecked"}
        "wide": the gap is more than 0.1 nats beyond noise; "crossed": the lower one lies above the
        upper one beyond noise; "unchecked": one of them has no error.
    words : str
        What they say together, and on what the upper one rests.
    """

    lower: Evidence
    upper: Evidence
    gap: float
    gap_mcse: float
    verdict: str
    words: str

    def __repr__(self) -> str:
        rows = [
            ("lower bound", plus_minus(self.lower.log_z, self.lower.mcse)),
            ("upper bound", plus_minus(self.upper.log_z, self.upper.mcse)),
            ("gap", plus_minus(self.gap, self.gap_mcse)),
            ("verdict", self.verdict),
        ]
        lines = [f"  {label:<12} {text}" for label, text in rows]
        return "\n".join(["Sandwich (nats)", *lines, f"  {self.words}"])

    def _repr_html_(self) -> str:
        return text_as_html(self)


def join_bounds(lower: Evidence, upper: Evidence) -> Sandwich:
    """Put two bounds together and say what they mean."""
    gap = upper.log_z - lower.log_z
    error = float(np.hypot(lower.mcse, upper.mcse))
    said = f"log Z lies between {lower.log_z:.3f} and {upper.log_z:.3f}, each within its error."
    if gap <= 0.0:
        middle = 0.5 * (lower.log_z + upper.log_z)
        said = f"The bounds agree within their errors: log Z is near {middle:.3f}."
    verdict = "ok"
    if not np.isfinite(error):
        verdict = "unchecked"
        said = "The weights of one direction collapsed, so that these bounds say nothing."
    elif gap < -MAX_Z * error:
        verdict = "crossed"
        said = (
            f"The lower bound lies above the upper one by {-gap:.3g} nats, {-gap / error:.1f} "
            "standard errors: the draws are not from this posterior, or they miss a mode that "
            "particles from the prior find. Sample again, with pmt.sample for instance."
        )
    elif gap > MAX_GAP + MAX_Z * error:
        verdict = "wide"
        said = (
            f"The bounds are {gap:.3g} nats apart, more than noise explains: use more rungs "
            "(betas), or look for modes that one direction misses."
        )
    return Sandwich(lower, upper, gap, error, verdict, f"{said} {RESTS_ON}")
