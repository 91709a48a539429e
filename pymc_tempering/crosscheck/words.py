"""The result of a cross-check in words: whether the methods agree, which to believe, and why."""

from collections.abc import Mapping, Sequence

from pymc_tempering.crosscheck.judge import Entry, Judgment, bounds, spread
from pymc_tempering.evidence.estimators import OWN, POSTERIOR
from pymc_tempering.evidence.result import plus_minus

CROSSED = 3.0
"""Standard errors above the upper bound from which a lower bound is said to cross it."""


def put_in_words(entries: Sequence[Entry], found: Judgment, left_out: Mapping[str, str]) -> str:
    """Describe the result of a cross-check in a few sentences."""
    by_name = {entry.method: entry for entry in entries}
    sentences = {"agree": _agree, "disagree": _disagree, "unchecked": _unchecked}[found.verdict](
        by_name, found
    )
    sentences += _bounds(entries)
    silent = [entry.method for entry in entries if not entry.known]
    if silent:
        sentences.append(f"No error could be stated by {', '.join(silent)}: see their warnings.")
    if left_out:
        sentences.append(f"Left out: {_grouped(left_out)}.")
    return " ".join(sentences)


def _agree(by_name: Mapping[str, Entry], found: Judgment) -> list[str]:
    known = [entry for entry in by_name.values() if entry.known]
    independent = sum(entry.draws == OWN for entry in known)
    shared = sum(entry.draws != OWN for entry in known)
    sentences = [f"The {len(known)} estimates agree within their errors."]
    if found.believe is not None:
        best = by_name[found.believe]
        sentences.append(
            f"Believe {best.method}, {_value(best)}: it states the smallest error, and the others "
            "confirm it."
        )
    if independent + min(shared, 1) < 2:
        sentences.append(
            "But all of them use the same draws, so they do not show what these draws missed: add "
            "estimators with draws of their own (pass model=)."
        )
    elif all(entry.draws == POSTERIOR for entry in known if entry.draws != OWN):
        sentences.append("A mode that is missed by all of them would not show.")
    return sentences


def _disagree(by_name: Mapping[str, Entry], found: Judgment) -> list[str]:
    known = [entry for entry in by_name.values() if entry.known]
    low: Entry | None = None
    high: Entry | None = None
    if found.worst is not None and found.worst[2] < 1.0:
        a, b = (by_name[name] for name in found.worst[:2])
        low, high = sorted((a, b), key=lambda entry: entry.evidence.log_z)
        difference = high.evidence.log_z - low.evidence.log_z
        sentences = [
            f"The estimates disagree: {low.method} says {_value(low)} and {high.method} "
            f"{_value(high)}, {_nats(difference)} nats apart."
        ]
    else:
        sentences = [
            "The estimates disagree: the independent ones scatter more than their errors allow "
            f"(p = {found.pvalue:.1g})."
        ]
    if found.believe is not None:
        lowest, highest = spread(known)
        sentences.append(
            f"Until that is resolved take {_value(by_name[found.believe])} ({found.believe}) with "
            f"an error of at least {_nats(highest - lowest)}: an estimator that misses a part of "
            "the posterior falls short, so the highest is the likeliest."
        )
    if low is not None and high is not None:
        sentences.append(_cause(low, high))
    return sentences


def _cause(low: Entry, high: Entry) -> str:
    if low.draws == POSTERIOR and high.draws != POSTERIOR:
        return (
            f"The draws that {low.method} uses have likely missed a mode that the path from the "
            "prior found: sample with pymc_tempering.sample and more draws."
        )
    if high.draws == POSTERIOR and low.draws != POSTERIOR:
        return (
            f"The path from the prior that {low.method} takes has likely missed what the posterior "
            "draws found: run it longer, with more rungs, or more particles."
        )
    return "Run both longer, with another random seed, and look at their warnings."


def _unchecked(by_name: Mapping[str, Entry], found: Judgment) -> list[str]:
    if found.believe is None:
        return ["No estimate states an error, so there is nothing to compare."]
    only = by_name[found.believe]
    return [
        f"{only.method} alone states an error, {_value(only)}, and nothing confirms it: add "
        "estimators (pass model=), or do what their warnings say."
    ]


def _bounds(entries: Sequence[Entry]) -> list[str]:
    lower, upper = bounds(entries)
    if lower is None or upper is None:
        return []
    gap = upper.evidence.log_z - lower.evidence.log_z
    noise = float((lower.evidence.mcse**2 + upper.evidence.mcse**2) ** 0.5)
    found = (
        f"{_value(lower)} ({lower.method}) and {_value(upper)} ({upper.method}), a gap of "
        f"{plus_minus(gap, noise)} nats"
    )
    if gap < -CROSSED * noise:
        return [f"The bounds are crossed, the lower one lies above the upper one: {found}."]
    if gap < noise:
        return [f"The bounds meet within their errors: {found}."]
    return [f"The bounds bracket log Z between {found}."]


def _value(entry: Entry) -> str:
    return plus_minus(entry.evidence.log_z, entry.evidence.mcse)


def _nats(difference: float) -> str:
    return f"{difference:.2f}" if difference >= 0.1 else f"{difference:.2g}"


def _grouped(left_out: Mapping[str, str]) -> str:
    """List the names of methods by reason, each reason once."""
    reasons = dict.fromkeys(left_out.values())
    return "; ".join(
        f"{', '.join(name for name, why in left_out.items() if why == reason)} ({reason})"
        for reason in reasons
    )
