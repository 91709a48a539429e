"""Whether several estimates of one log Z agree within their errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence import Evidence, homogeneity_pvalue
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN

ALPHA = 0.01
"""Largest chance that a cross-check finds a disagreement though all stated errors are right."""

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
    """

    method: str
    evidence: Evidence
    draws: str = OWN

    @property
    def known(self) -> bool:
        """Whether it states a value and an error."""
        return bool(np.isfinite(self.evidence.log_z) and np.isfinite(self.evidence.mcse))

    @property
    def bound(self) -> bool:
        """Whether it is a bound: its expectation lies on one side of log Z."""
        return self.evidence.bias_direction != ""

    @property
    def df(self) -> float:
        """Degrees of freedom of its error."""
        ess = self.evidence.ess
        return max(ess - 1.0, 1.0) if np.isfinite(ess) else LARGE_DF


@dataclass(frozen=True, eq=False)
class Judgment:
    """What a comparison of all pairs found.

    Attributes
    ----------
    verdict : {"agree", "disagree", "unchecked"}
        "unchecked": fewer than two estimates state an error.
    reference : str or None
        Method with which the others are compared.
    agrees : dict of str to (bool or None)
        Whether each agrees with the reference; None where one of the two states no error.
    worst : tuple or None
        The pair of methods with the smallest p-value, and this p-value divided by the level of
        the test.
    believe : str or None
        Method whose estimate to use.
    pvalue : float
        Of the test of homogeneity of the independent estimates that are no bounds.
    """

    verdict: str
    reference: str | None
    agrees: dict[str, bool | None]
    worst: tuple[str, str, float] | None
    believe: str | None
    pvalue: float


def judge(entries: Sequence[Entry]) -> Judgment:
    """Compare estimates of one log Z, with a chance of a false alarm of at most ``ALPHA``.

    There are two tests, each at half of this level. One compares the difference of every pair with
    its error, by Bonferroni over all pairs. The other is the chi-square test for homogeneity of the
    independent estimates. Estimates that share draws have errors with an unknown correlation. So
    the error of their difference is taken as the *sum* of the two errors, which is the largest
    possible, and only one of them enters the test of homogeneity. Bounds are tested on the side
    that they bound. A stated bias is subtracted from the difference.
    """
    known = [entry for entry in entries if entry.known]
    reference = _reference(known)
    pairs = list(combinations(known, 2))
    level = ALPHA / 2.0 / max(len(pairs), 1)
    pvalues = {(a.method, b.method): pair_pvalue(a, b) for a, b in pairs}
    pvalue = _homogeneity(known, reference)
    agrees: dict[str, bool | None] = {entry.method: None for entry in entries}
    if reference is not None and len(known) > 1:
        for (a, b), p in pvalues.items():
            if reference.method in (a, b):
                agrees[b if a == reference.method else a] = p >= level
        agrees[reference.method] = any(v for v in agrees.values())
    worst = None
    if pvalues:
        (a, b), smallest = min(pvalues.items(), key=lambda item: item[1])
        worst = (a, b, smallest / level)
    verdict = "agree"
    if len(known) < 2:
        verdict = "unchecked"
    elif (worst is not None and worst[2] < 1.0) or pvalue < ALPHA / 2.0:
        verdict = "disagree"
    return Judgment(
        verdict=verdict,
        reference=None if reference is None else reference.method,
        agrees=agrees,
        worst=worst,
        believe=_believe(known, reference, verdict),
        pvalue=pvalue,
    )


def pair_pvalue(a: Entry, b: Entry) -> float:
    """Return the p-value of a difference between two estimates, one-sided for bounds."""
    from scipy import stats as sps  # slow to import

    one, other = a.evidence, b.evidence
    independent = OWN in (a.draws, b.draws)
    error = np.hypot(one.mcse, other.mcse) if independent else one.mcse + other.mcse
    difference = one.log_z - other.log_z
    sides = {one.bias_direction, _opposite(other.bias_direction)} - {""}
    if len(sides) == 2:
        return 1.0  # two bounds from the same side may differ by any amount
    if sides == {"below"}:  # the first should be the lower one
        difference = max(difference, 0.0)
    elif sides == {"above"}:
        difference = min(difference, 0.0)
    allowed = sum(abs(e.bias) for e in (one, other) if np.isfinite(e.bias))
    excess = max(abs(difference) - allowed, 0.0)
    if excess == 0.0:
        return 1.0
    if error == 0.0:
        return 0.0
    share = np.array([one.mcse, other.mcse]) / error
    df = 1.0 / float(np.sum(share**4 / np.array([a.df, b.df])))
    tail = float(sps.t.sf(excess / error, df))
    return tail if sides else 2.0 * tail


def bounds(entries: Sequence[Entry]) -> tuple[Entry | None, Entry | None]:
    """Return the best lower and the best upper bound.

    They are ranked by the value two errors below a lower and above an upper bound. By the value
    itself, the noisiest bound would often be the best.
    """
    known = [entry for entry in entries if entry.known]
    lower = [entry for entry in known if entry.evidence.bias_direction == "below"]
    upper = [entry for entry in known if entry.evidence.bias_direction == "above"]
    return (
        max(lower, key=lambda e: e.evidence.log_z - 2.0 * e.evidence.mcse, default=None),
        min(upper, key=lambda e: e.evidence.log_z + 2.0 * e.evidence.mcse, default=None),
    )


def _opposite(side: str) -> str:
    return {"below": "above", "above": "below"}.get(side, "")


def _homogeneity(known: Sequence[Entry], reference: Entry | None) -> float:
    """Test the independent estimates that are no bounds, and one of those that share draws.

    A stated bias is added to the error.
    """
    shared = [e for e in known if e.draws != OWN and not e.bound]
    one = shared[:1]
    if reference is not None and reference.draws != OWN and not reference.bound:
        one = [reference]
    independent = [*one, *(e for e in known if e.draws == OWN and not e.bound)]
    if len(independent) < 2:
        return 1.0
    bias = np.nan_to_num([e.evidence.bias for e in independent])
    return homogeneity_pvalue(
        np.array([e.evidence.log_z for e in independent]),
        np.hypot([e.evidence.mcse for e in independent], bias),
        np.array([e.df for e in independent]),
    )


def _rank(entry: Entry) -> tuple[bool, bool, int, bool]:
    """Order of preference: no alarm, no bound, draws of a run from the prior, RTS."""
    order = {RUN: 0, OWN: 1, POSTERIOR: 2}
    sound = entry.evidence.verdict == "ok"
    return (not sound, entry.bound, order[entry.draws], entry.method != "rts")


def _reference(known: Sequence[Entry]) -> Entry | None:
    return min(known, key=_rank, default=None)


def _believe(known: Sequence[Entry], reference: Entry | None, verdict: str) -> str | None:
    """Return the method to believe: the most precise one if all agree, otherwise the highest.

    If they do not agree, the smallest error is often that of a method that missed a mode.
    """
    plain = [e for e in known if not e.bound and e.evidence.verdict == "ok"]
    plain = plain or [e for e in known if not e.bound]
    if not plain:
        return None if reference is None else reference.method
    if verdict == "disagree":
        return max(plain, key=lambda entry: entry.evidence.log_z).method
    return min(plain, key=lambda entry: entry.evidence.mcse).method


def spread(entries: Sequence[Entry]) -> FloatArray:
    """Return the lowest and the highest value of estimates with an error that are no bounds."""
    values = [e.evidence.log_z for e in entries if e.known and not e.bound]
    return np.array([min(values), max(values)]) if values else np.full(2, np.nan)
