"""Whether several estimates of one log Z agree within their errors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from pymc_tempering.crosscheck.best_bounds import ALPHA_BOUNDS
from pymc_tempering.crosscheck.draw_check import ALPHA_DRAWS, DrawCheck
from pymc_tempering.crosscheck.entry import Entry, pair_pvalue
from pymc_tempering.evidence import homogeneity_pvalue
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN

ALPHA_PAIRS, ALPHA_HOMOGENEITY = 0.004, 0.003
"""Levels of the tests of all pairs, and of the independent estimates together."""

ALPHA = ALPHA_PAIRS + ALPHA_HOMOGENEITY + ALPHA_BOUNDS + ALPHA_DRAWS
"""Largest chance that a cross-check finds a disagreement though all stated errors are right."""

YES, NO, TOO_WIDE, NO_ERROR, AS = "yes", "NO", "too wide", "no error", "as "
"""What a row of the table says of its agreement with the reference; a name follows the last."""


@dataclass(frozen=True, eq=False)
class Judgment:
    """What a comparison of all pairs found.

    Attributes
    ----------
    verdict : {"agree", "disagree", "unchecked"}
        "unchecked": fewer than two estimates have an error of at most a nat.
    reference : str or None
        Method with which the others are compared.
    agrees : dict of str to (bool or None)
        Whether each agrees with the reference; None where nothing can be said.
    agreement : dict of str to str
        The same in words: "yes", "NO", "too wide", "no error", "as rts".
    worst : tuple or None
        The pair of methods with the smallest p-value, and this p-value divided by the level of
        the test.
    believe : str or None
        Method whose estimate to use.
    pvalue : float
        Of the test of homogeneity of the independent estimates that are no bounds.
    draws : DrawCheck or None
        The comparison of draws.
    """

    verdict: str
    reference: str | None
    agrees: dict[str, bool | None]
    worst: tuple[str, str, float] | None
    believe: str | None
    pvalue: float
    agreement: dict[str, str] = field(default_factory=dict)
    draws: DrawCheck | None = None


def judge(entries: Sequence[Entry], draws: DrawCheck | None = None) -> Judgment:
    """Compare estimates of one log Z, with a chance of a false alarm of at most ``ALPHA``.

    One test compares the difference of every pair with its error, by Bonferroni over all pairs;
    pairs of a lower and an upper bound have a level of their own beside that. Another is the
    chi-square test for homogeneity of the independent estimates. Estimates that share draws have
    errors with an unknown correlation. So the error of their difference is taken as the *sum* of
    the two errors, which is the largest possible, and only one of them enters the test of
    homogeneity. Bounds are tested on the side that they bound. A stated bias counts once, in
    quadrature with the sampling error. An estimate that repeats another one's sums is not tested.
    """
    known = [entry for entry in entries if entry.known]
    names = {entry.method for entry in known}
    tested = [entry for entry in known if entry.repeats not in names]
    reference = _reference(tested)
    ratios = _pair_ratios(tested)
    pvalue = _homogeneity(tested, reference)
    agreement = {entry.method: _agreement(entry, names, reference, ratios) for entry in entries}
    if reference is not None and not reference.wide:
        agreement[reference.method] = _of_reference(reference.method, agreement)
    worst = None
    if ratios:
        (a, b), smallest = min(ratios.items(), key=lambda item: item[1])
        worst = (a, b, smallest)
    verdict = "agree"
    if sum(not entry.wide for entry in tested) < 2:
        verdict = "unchecked"
    beyond = draws is not None and draws.verdict == "disagree"
    if (worst is not None and worst[2] < 1.0) or pvalue < ALPHA_HOMOGENEITY or beyond:
        verdict = "disagree"
    return Judgment(
        verdict=verdict,
        reference=None if reference is None else reference.method,
        agrees={name: {YES: True, NO: False}.get(text) for name, text in agreement.items()},
        worst=worst,
        believe=_believe(tested, reference, verdict),
        pvalue=pvalue,
        agreement=agreement,
        draws=draws,
    )


def _pair_ratios(tested: Sequence[Entry]) -> dict[tuple[str, str], float]:
    """P-value of each pair over the level that it is tested at."""
    pairs = list(combinations(tested, 2))
    opposite = [{a.evidence.bias_direction, b.evidence.bias_direction} == {"below", "above"}
                for a, b in pairs]  # fmt: skip
    level = ALPHA_PAIRS / max(len(pairs), 1)
    of_bounds = max(level, ALPHA_BOUNDS / max(sum(opposite), 1))
    return {
        (a.method, b.method): pair_pvalue(a, b) / (of_bounds if both else level)
        for (a, b), both in zip(pairs, opposite, strict=True)
    }


def _agreement(
    entry: Entry,
    names: set[str],
    reference: Entry | None,
    ratios: dict[tuple[str, str], float],
) -> str:
    """Say of an estimate whether it agrees with the reference; nothing where it stands alone."""
    if not entry.known:
        return NO_ERROR
    if entry.repeats in names:
        return AS + entry.repeats
    if reference is None or entry is reference:
        return TOO_WIDE if entry.wide else ""
    pair = (entry.method, reference.method)
    ratio = ratios[pair] if pair in ratios else ratios[pair[::-1]]
    if ratio < 1.0:
        return NO
    return TOO_WIDE if entry.wide or reference.wide else YES


def _of_reference(name: str, agreement: dict[str, str]) -> str:
    """Say of the reference whether any other agrees with it."""
    others = [text for method, text in agreement.items() if method != name]
    return YES if YES in others else NO if NO in others else ""


def _homogeneity(tested: Sequence[Entry], reference: Entry | None) -> float:
    """Test the independent estimates that are no bounds, and one of those that share draws."""
    shared = [e for e in tested if e.draws != OWN and not e.bound]
    one = shared[:1]
    if reference is not None and reference.draws != OWN and not reference.bound:
        one = [reference]
    independent = [*one, *(e for e in tested if e.draws == OWN and not e.bound)]
    if len(independent) < 2:
        return 1.0
    return homogeneity_pvalue(
        np.array([e.evidence.log_z for e in independent]),
        np.array([e.error for e in independent]),
        np.array([e.df for e in independent]),
    )


def _rank(entry: Entry) -> tuple[bool, bool, bool, int, int]:
    """Order of preference: a small error, no alarm, no bound, draws of a run, the default."""
    order = {RUN: 0, OWN: 1, POSTERIOR: 2}
    default = {"pooled": 0, "rts": 1}.get(entry.method, 2)
    sound = entry.evidence.verdict == "ok"
    return (entry.wide, not sound, entry.bound, order[entry.draws], default)


def _reference(tested: Sequence[Entry]) -> Entry | None:
    return min(tested, key=_rank, default=None)


def _believe(tested: Sequence[Entry], reference: Entry | None, verdict: str) -> str | None:
    """Return the method to believe: the most precise one if all agree, otherwise the highest.

    If they do not agree, the smallest error is often that of a method that missed a mode. Then a
    lower bound from draws of its own counts too: log Z is at least that, up to its error.
    """
    plain = [e for e in tested if not e.bound and e.evidence.verdict == "ok"]
    plain = plain or [e for e in tested if not e.bound]
    if not plain:
        return None if reference is None else reference.method
    plain = [e for e in plain if not e.wide] or plain
    if verdict != "disagree":
        return min(plain, key=lambda entry: entry.error).method
    own = [e for e in tested if e.draws == OWN and e.evidence.bias_direction == "below"
           and e.evidence.verdict == "ok" and not e.wide]  # fmt: skip
    return max([*plain, *own], key=lambda entry: entry.evidence.log_z).method
