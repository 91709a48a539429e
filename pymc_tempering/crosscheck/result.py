"""What a cross-check returns: its table, its words, and how it is stored in a DataTree."""

import html
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.arguments import has_group
from pymc_tempering.crosscheck.judge import (
    AGREES,
    AS,
    MAX_ERROR,
    NO,
    NO_ERROR,
    TOO_WIDE,
    YES,
    DrawCheck,
    Entry,
    Judgment,
    best_bounds,
    crossed_bounds,
    joint_error,
    judge,
)
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN
from pymc_tempering.evidence.result import as_html, from_plain, plus_minus, to_plain
from pymc_tempering.exceptions import TemperingError

GROUP = "cross_check"
TEXT = "cross_check_json"
"""Attribute of that group with the whole result."""

COLUMNS = {
    "log_z": float,
    "mcse": float,
    "bias_direction": object,
    "n_evaluations": "Int64",
    "seconds": float,
    "agrees": "boolean",
    "draws": object,
    "verdict": object,
    "agreement": object,
}
"""Columns of the table, in order, with their types."""

ORDER = (OWN, POSTERIOR, RUN)
"""Estimates in the table by their draws: those first that are independent of the run."""
MANY = 5
"""Names of methods above which their number stands for them."""

_SILENT = {
    TOO_WIDE: "An error above a nat confirms nothing: {}.",
    NO_ERROR: "No error could be stated by {}: see their warnings.",
}
WIDTH = 80
"""Letters of a line of text."""


@dataclass(frozen=True, eq=False, repr=False)
class CrossCheck:
    """The same evidence by several estimators, side by side.

    Attributes
    ----------
    table : DataFrame
        One row a method: ``log_z`` and ``mcse`` (nats); ``bias_direction``, "below" or "above"
        for a bound; ``n_evaluations`` of the model's density, 0 for methods that read the run;
        ``seconds``; ``agrees`` with the reference method (missing where no error is stated);
        ``draws``, the draws that it rests on: "run", "posterior", or "own" (independent of all
        other methods); the method's ``verdict``; ``agreement``, which says in words what
        ``agrees`` cannot: "yes", "NO", "too wide" (an error above a nat confirms nothing),
        "no error", or "as rts" (made of its sums, so no check of it). The reference comes first,
        then what is independent of it.
    verdict : {"agree", "disagree", "unchecked"}
        "unchecked": fewer than two estimates have an error of at most a nat.
    words : str
        Whether they agree within their errors, whether the bounds hold log Z between them, which
        method to believe and why.
    believe : str or None
        Method whose number to take.
    reference : str or None
        Method that ``agrees`` refers to.
    left_out : dict of str to str
        Methods that could not be used, and why.
    warnings : tuple of str
        What the estimates warn about, each with the name of its method.
    draws : DrawCheck, optional
        Shares of looks from the prior beyond the quantiles of the run; None where draws were not
        compared.
    """

    table: pd.DataFrame
    verdict: str
    words: str
    believe: str | None
    reference: str | None
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    draws: DrawCheck | None = None

    @property
    def least_error(self) -> float:
        """Error that an estimate has at least (nats): how far apart those are that disagree."""
        return _apart(self.table, self.draws) if self.verdict == "disagree" else 0.0

    def _folded(self) -> tuple[pd.DataFrame, pd.DataFrame, list[str], list[str]]:
        """Rows that are shown and those that are folded, and the warnings of each.

        Shown is what is independent of the run, and what disagrees. Where nothing is independent
        all rows are.
        """
        independent = self.table["draws"] == OWN
        kept = independent | (self.table["agreement"] == NO)
        kept |= self.table.index.isin([self.reference, self.believe])
        kept |= not independent.any()
        shown = self.table[kept]
        own = [text for text in self.warnings if text.partition(":")[0] in shown.index]
        return shown, self.table[~kept], own, [text for text in self.warnings if text not in own]

    def __repr__(self) -> str:
        shown, folded, own, others = self._folded()
        lines = [_folded_line(folded), self.words, *(f"! {sentence}" for sentence in own)]
        if others:
            lines.append(f"! {len(others)} more warnings of methods that are not shown (.warnings)")
        wrapped = [
            textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
            for line in lines
            if line
        ]
        return "\n".join([_as_shown(shown).to_string(), *wrapped])

    def _repr_html_(self) -> str:
        shown, folded, own, others = self._folded()
        page = as_html([_as_shown(shown), self.words], own)
        if not len(folded):
            return page
        line, rest = html.escape(_folded_line(folded)), as_html([_as_shown(folded)], others)
        return f"<div>{page}<details><summary>{line}</summary>{rest}</details></div>"


def assemble(
    entries: Sequence[Entry],
    left_out: Mapping[str, str] | None = None,
    draws: DrawCheck | None = None,
) -> CrossCheck:
    """Judge estimates and put everything into a ``CrossCheck``.

    The reference comes first, then what is independent of it.
    """
    found = judge(entries, draws)
    entries = sorted(entries, key=lambda e: (e.method != found.reference, ORDER.index(e.draws)))
    columns = {
        name: [getattr(entry.evidence, name) for entry in entries]
        for name in ("log_z", "mcse", "bias_direction", "seconds", "verdict")
    }
    # Reading a run needs no new evaluations.
    columns["n_evaluations"] = [
        0
        if entry.evidence.n_evaluations is None and entry.draws == RUN
        else entry.evidence.n_evaluations
        for entry in entries
    ]
    columns["draws"] = [entry.draws for entry in entries]
    columns["agreement"] = [found.agreement[entry.method] for entry in entries]
    columns["agrees"] = [AGREES.get(text) for text in columns["agreement"]]
    table = pd.DataFrame(columns, pd.Index([entry.method for entry in entries], name="method"))
    table = table[list(COLUMNS)].astype(COLUMNS)
    return CrossCheck(
        table=table,
        verdict=found.verdict,
        words=_in_words(entries, found, left_out or {}, _apart(table, draws)),
        believe=found.believe,
        reference=found.reference,
        left_out=dict(left_out or {}),
        warnings=tuple(f"{e.method}: {text}" for e in entries for text in e.evidence.warnings),
        draws=draws,
    )


def _apart(table: pd.DataFrame, draws: DrawCheck | None) -> float:
    """How far apart the estimates are that are no bounds, or what draws seem to lack (nats)."""
    known = (
        np.isfinite(table["log_z"]) & np.isfinite(table["mcse"]) & (table["bias_direction"] == "")
    )
    narrow = known & (table["mcse"] <= MAX_ERROR)
    values = table["log_z"][narrow if narrow.any() else known]
    apart = float(values.max() - values.min()) if len(values) else 0.0
    lacking = draws is not None and draws.verdict == "disagree"
    return max(apart, draws.shortfall) if draws is not None and lacking else apart


def _as_shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with its numbers as text, to the digits that their errors allow."""
    pairs = zip(table["log_z"], table["mcse"], strict=True)
    return pd.DataFrame(
        {
            "log_z": [plus_minus(z, error).split(" ")[0] for z, error in pairs],
            "mcse": [f"{value:.2g}" for value in table["mcse"]],
            "bound": table["bias_direction"].map({"below": "lower", "above": "upper"}).fillna(""),
            "agrees": [text or "-" for text in table["agreement"]],
            "draws": table["draws"],
            "seconds": [f"{value:.2g}" for value in table["seconds"]],
        },
        index=pd.Index(table.index, name=None),
    )


def _folded_line(table: pd.DataFrame) -> str:
    """One sentence on the rows that are not shown, best errors first; empty if there are none."""
    if not len(table):
        return ""
    shared = table.sort_values("mcse")
    parts = []
    for text in dict.fromkeys([YES, *shared["agreement"]]):
        names = list(shared.index[shared["agreement"] == text])
        if names:
            said = "agree" if text == YES else text or "not compared"
            parts.append(f"{said}: {', '.join(names)}")
    whose = "draws of the posterior" if (table["draws"] == POSTERIOR).all() else "draws of the run"
    return f"{len(table)} more from the same {whose} (all rows: .table). {'; '.join(parts)}."


def _in_words(
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
    causes = []
    if found.worst is not None and found.worst[2] < 1.0:
        pair = [by_name[name] for name in found.worst[:2]]
        low, high = sorted(pair, key=lambda entry: entry.evidence.log_z)
        difference = high.evidence.log_z - low.evidence.log_z
        sentences = [
            f"The estimates disagree: {low.method} says {_value(low)} and {high.method} "
            f"{_value(high)}, {_nats(difference)} nats apart."
        ]
        causes = [_cause(low, high)]
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
    return sentences + causes


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
    if crossed:
        start = "The bounds cross beyond their errors: the lower one"
        return [f"{start}, {low}, lies {apart} above the upper one, {high}."]
    if gap < 0.0:
        return [f"The bounds {low} and {high} cross by {apart}, which their errors allow."]
    said = "meet within their errors:" if gap < noise else "bracket log Z between"
    return [f"The bounds {said} {low} and {high}, a gap of {apart}."]


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


def to_dataset(check: CrossCheck) -> xr.Dataset:
    """Return a cross-check as a Dataset: numbers by ``method_index``, and all of it as JSON.

    JSON is what every file format keeps.
    """
    table = check.table
    numbers = table[["log_z", "mcse", "n_evaluations", "seconds"]].astype(float)
    numbers["agrees"] = table["agrees"].astype("Int64").fillna(-1).astype(int)
    whole = vars(check) | {
        "table": table.astype(object).where(table.notna(), None).to_dict("split"),
        "draws": None if check.draws is None else asdict(check.draws),
    }
    data = numbers.reset_index(drop=True).rename_axis("method_index").to_xarray()
    attrs = {"verdict": check.verdict, "words": check.words, TEXT: json.dumps(to_plain(whole))}
    for name in ("log_z", "mcse"):
        data[name].attrs["units"] = "nats"
    return data.assign_attrs(attrs)


def read_cross_check(idata: xr.DataTree) -> CrossCheck:
    """Read the cross-check that :func:`pymc_tempering.cross_check` stored in a DataTree.

    Raises
    ------
    TemperingError
        If there is none.
    """
    if not has_group(idata, GROUP):
        raise TemperingError(
            "this DataTree holds no cross-check: run pymc_tempering.cross_check(idata, model) first"
        )
    found = from_plain(json.loads(idata[GROUP].attrs[TEXT]))
    found["table"] = pd.DataFrame(**found["table"]).rename_axis("method").astype(COLUMNS)
    found["warnings"] = tuple(found["warnings"])
    found["draws"] = None if found["draws"] is None else DrawCheck(**found["draws"])
    return CrossCheck(**found)
