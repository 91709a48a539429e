"""Findings: what the package noticed about a run, as a code, a severity and what it is about.

A sentence is made of them where they are shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

GIVE_A_KERNEL = "give it a kernel, with which it is not summed out: kernel={{'{about}': 'slice'}}"

SENTENCES = {
    "not_summed": "{about} is not summed out but sampled: {detail}",
    "count_not_summed": "{about} is a count that is not summed out but sampled ({detail}), and "
    "nothing has searched for other values that are likely, far from those of the draws",
    "field_not_followed": "{about} is sampled without following its latent field: {detail}",
    "sum_too_short": "'{about}' is summed to {detail}, and larger values have weight in the "
    "posterior: " + GIVE_A_KERNEL,
    "sum_without_end": "'{about}' is summed to {detail}, and how much the likelihood may have "
    "beyond is not known: " + GIVE_A_KERNEL,
    "not_searched": "nothing but {about} looked for modes; one to which few draws of the prior "
    "lead may be missing",
    "not_climbed": "looks from the prior looked for modes, and no climbs did, which find narrower "
    "ones: the kernel {about} does not move all variables by gradients",
    "not_reached": "{about} arrived in regions with {detail} of the posterior alone, and climbs "
    "found the others; one that no climb leads to may be missing",
    "not_compared": "the density of {about} was not compared with that of the model as it was "
    "written: {detail}",
    "not_as_written": "the density of {about} that was sampled is {detail} nats off that of the "
    "model as it was written. This is a fault of pymc_tempering: please report it, with the model",
}
"""By code. A note changes neither the verdict nor the error."""

SPOILING = ("sum_too_short", "sum_without_end", "not_as_written")
"""Codes that leave the error infinite."""


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed.

    Attributes
    ----------
    code : str
        One of `SENTENCES`.
    about : str
        The variables that it is about.
    detail : str
        Why.
    severity : {"note", "unchecked", "disagreed"}
        What it makes of the verdict.
    """

    code: str
    about: str
    detail: str = ""
    severity: str = "note"

    def __str__(self) -> str:
        return SENTENCES[self.code].format(about=self.about, detail=self.detail)


def read_findings(plain: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Make findings of their fields, as JSON has them."""
    return tuple(Finding(**each) for each in plain)
