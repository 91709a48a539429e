"""One estimate of log Z as a cross-check sees it, and whether two of them differ."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import OWN

MAX_ERROR = 1.0
"""Error in nats above which an estimate confirms nothing."""

LARGE_DF = 1e6
"""Degrees of freedom of an error of unknown precision."""


@dataclass(frozen=True)
class Entry:
    """One estimate.

    Attributes
    ----------
    method : str
    evidence : Evidence
    draws : {"own", "posterior", "run"}
        Estimates from ``own`` draws are independent of all others; the rest share draws.
    repeats : str
        Method whose sums it is made of, so that it cannot differ by what is wrong with them.
    """

    method: str
    evidence: Evidence
    draws: str = OWN
    repeats: str = ""

    @property
    def known(self) -> bool:
        """Whether it states a value and an error."""
        return bool(np.isfinite(self.evidence.log_z) and np.isfinite(self.evidence.mcse))

    @property
    def bound(self) -> bool:
        """Whether it is a bound: its expectation lies on one side of log Z."""
        return self.evidence.bias_direction != ""

    @property
    def sampling_error(self) -> float:
        """Its error without that of an integration rule (nats)."""
        return float(self.evidence.details.get("sampling_mcse", self.evidence.mcse))

    @property
    def error(self) -> float:
        """Sampling error and stated bias in quadrature, each once (nats)."""
        bias = self.evidence.bias
        return float(np.hypot(self.sampling_error, bias if np.isfinite(bias) else 0.0))

    @property
    def wide(self) -> bool:
        """Whether its error is too large for it to confirm anything."""
        return not self.error <= MAX_ERROR

    @property
    def df(self) -> float:
        """Degrees of freedom of its error."""
        ess = self.evidence.ess
        return max(ess - 1.0, 1.0) if np.isfinite(ess) else LARGE_DF


def joint_error(a: Entry, b: Entry) -> float:
    """Error of a difference (nats): the sum of both where they share draws, as large as can be."""
    independent = OWN in (a.draws, b.draws)
    return float(np.hypot(a.error, b.error)) if independent else a.error + b.error


def pair_pvalue(a: Entry, b: Entry) -> float:
    """Return the p-value of a difference between two estimates, one-sided for bounds."""
    one, other = a.evidence, b.evidence
    error = joint_error(a, b)
    difference = one.log_z - other.log_z
    sides = {one.bias_direction, _opposite(other.bias_direction)} - {""}
    if len(sides) == 2:
        return 1.0  # two bounds from the same side may differ by any amount
    if sides == {"below"}:  # the first should be the lower one
        difference = max(difference, 0.0)
    elif sides == {"above"}:
        difference = min(difference, 0.0)
    if difference == 0.0:
        return 1.0
    if error == 0.0:
        return 0.0
    share = np.array([a.error, b.error]) / error
    df = 1.0 / float(np.sum(share**4 / np.array([a.df, b.df])))
    tail = float(stdtr(df, -abs(difference) / error))
    return tail if sides else 2.0 * tail


def _opposite(side: str) -> str:
    return {"below": "above", "above": "below"}.get(side, "")
