"""Findings: what the package noticed about a run, as a code, a severity and what it is about.

A sentence is made of them where they are shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SENTENCES = {
    "not_summed": "{about} is not summed out but sampled: {detail}",
    "field_not_followed": "{about} is sampled without following its latent field: {detail}",
}
"""By code. A note changes neither the verdict nor the error."""


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
    severity : {"note"}
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
