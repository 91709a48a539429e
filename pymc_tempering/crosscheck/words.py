"""The result of a cross-check in words: whether the methods agree, which to believe, and why."""

from collections.abc import Mapping, Sequence

from pymc_tempering.crosscheck.draw_check import DrawCheck
from pymc_tempering.crosscheck.judge import (
    AS,
    NO_ERROR,
    TOO_WIDE,
    Entry,
    Judgment,
    best_bounds,
    crossed_bounds,
    joint_error,
)
from pymc_tempering.evidence.estimators import OWN, POSTERIOR
from pymc_tempering.evidence.result import plus_minus

MANY = 5
"""Names of methods above which their number stands for them."""

_SILENT = {
    TOO_WIDE: "An error above a nat confirms nothing: {}.",
    NO_ERROR: "No error could be stated by {}: see their warnings.",
}


def put_in_words(
    entries: Sequence[Entry], found: Judgment, left_out: Mapping[str, str], apart: float
) -> str:
    """Describe the result of a cross-check in a few sentences.

    `apart` is how far apart the estimates are, or what the draws seem to lack (nats).
    """
    by_name = {entry.method: entry for entry in entries}
    if found.verdict == "disagree":
        sentences = _disagree(by_name, found, apart)
    else:
        sentences = _agree(by_name, found) if found.verdict == "agree" else _alone(by_name, found)
    if found.draws is not None:
        sentences.append(_draws(found.draws))
    sentences += _bounds([e for e in entries if not found.agreement[e.method].startswith(AS)])
    for text, said in _SILENT.items():
        names = [name for name, agreement in found.agreement.items() if agreement == text]
        if names:
            sentences.append(said.format(", ".join(names)))
    if left_out:
        sentences.append(f"Left out: {grouped(left_out)}.")
    return " ".join(sentences)


def _agree(by_name: Mapping[str, Entry], found: Judgment) -> list[str]:
    known = [by_name[name] for name, agrees in found.agrees.items() if agrees]
    shared = [entry for entry in known if entry.draws != OWN]
    sentences = [f"The {len(known)} estimates agree within their errors."]
    if found.believe is not None:
        sentences.append(
            f"Believe {found.believe}, {_value(by_name[found.believe])}: it states the smallest "
            "error, and the others confirm it."
        )
    if len(known) - len(shared) + bool(shared) < 2:
        sentences.append(
            "But all of them use the same draws, so they do not show what these draws missed: add "
            "estimators with draws of their own (pass model=)."
        )
    elif all(entry.draws == POSTERIOR for entry in shared):
        sentences.append("A mode that is missed by all of them would not show.")
    return sentences


def _disagree(by_name: Mapping[str, Entry], found: Judgment, apart: float) -> list[str]:
    low: Entry | None = None
    high: Entry | None = None
    if found.worst is not None and found.worst[2] < 1.0:
        pair = [by_name[name] for name in found.worst[:2]]
        low, high = sorted(pair, key=lambda entry: entry.evidence.log_z)
        difference = high.evidence.log_z - low.evidence.log_z
        sentences = [
            f"The estimates disagree: {low.method} says {_value(low)} and {high.method} "
            f"{_value(high)}, {_nats(difference)} nats apart."
        ]
    elif found.draws is not None and found.draws.verdict == "disagree":
        sentences = ["The draws disagree, though the estimates agree within their errors."]
    else:
        sentences = [
            "The estimates disagree: the independent ones scatter more than their errors allow "
            f"(p = {found.pvalue:.1g})."
        ]
    if found.believe is not None:
        sentences.append(
            f"Until that is resolved take {_value(by_name[found.believe])} ({found.believe}) with "
            f"an error of at least {_nats(apart)}: an estimator that misses a part of "
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


def _alone(by_name: Mapping[str, Entry], found: Judgment) -> list[str]:
    if found.believe is None:
        return ["No estimate states an error, so there is nothing to compare."]
    only = by_name[found.believe]
    return [
        f"{only.method} alone states an error, {_value(only)}, and nothing confirms it: add "
        "estimators (pass model=), or do what their warnings say."
    ]


def _draws(draws: DrawCheck) -> str:
    if draws.verdict == "unchecked":
        return (
            f"The looks from the prior by {draws.method} have weights too uneven to compare draws."
        )
    found = (
        f"{draws.share:.2%} ± {draws.mcse:.2%} of {draws.n_looks:,} looks from "
        f"the prior (weighted, by {draws.method}) lie beyond the {draws.level:.1%} quantile of "
        "log_ratio of the run's draws"
    )
    if draws.verdict == "agree":
        return f"The draws are where looks from the prior end: {found}."
    return (
        f"The draws lack a region that looks from the prior have found: {found}. About "
        f"{draws.missing:.1%} of the posterior may be missing, and {_nats(draws.shortfall)} nats "
        "of log Z: sample again with another random seed, more looks (check_looks) or "
        "reference='prior'."
    )


def _bounds(entries: Sequence[Entry]) -> list[str]:
    crossed = crossed_bounds(entries)
    lower, upper = crossed or best_bounds(entries)
    if lower is None or upper is None:
        return []
    gap, noise = upper.evidence.log_z - lower.evidence.log_z, joint_error(lower, upper)
    apart = f"{plus_minus(abs(gap), noise)} nats"
    low, high = (f"{_value(one)} ({one.method})" for one in (lower, upper))
    both = f"{low} and {high}"
    if crossed:
        return [
            f"The bounds cross beyond their errors: the lower one, {_value(lower)} "
            f"({lower.method}), lies {apart} above the upper one, {high}."
        ]
    if gap < 0.0:
        return [f"The bounds {both} cross by {apart}, which their errors allow."]
    if gap < noise:
        return [f"The bounds meet within their errors: {both}, a gap of {apart}."]
    return [f"The bounds bracket log Z between {both}, a gap of {apart}."]


def _value(entry: Entry) -> str:
    return plus_minus(entry.evidence.log_z, entry.evidence.mcse)


def _nats(difference: float) -> str:
    return f"{difference:.2f}" if difference >= 0.1 else f"{difference:.2g}"


def grouped(left_out: Mapping[str, str]) -> str:
    """List the names of methods by reason, each reason once; of many the number."""
    said = []
    for reason in dict.fromkeys(left_out.values()):
        names = [name for name, why in left_out.items() if why == reason]
        many = f"{len(names)} methods, named in .left_out"
        said.append(f"{', '.join(names) if len(names) <= MANY else many} ({reason})")
    return "; ".join(said)
