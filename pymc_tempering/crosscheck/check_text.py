"""How a cross-check is shown: the rows that check something, and one line for those that do not."""

import html
import textwrap
from collections.abc import Sequence

import pandas as pd

from pymc_tempering.crosscheck.judge import NO, YES
from pymc_tempering.evidence.estimators import OWN, POSTERIOR
from pymc_tempering.evidence.result import plus_minus

WIDTH = 80
"""Letters of a line of text."""


def as_shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with its numbers as text, to the digits that their errors allow."""
    pairs = zip(table["log_z"], table["mcse"], strict=True)
    return pd.DataFrame(
        {
            "log_z": [plus_minus(z, error).split(" ")[0] for z, error in pairs],
            "mcse": [f"{value:.2g}" for value in table["mcse"]],
            "bound": [{"below": "lower", "above": "upper"}.get(s, "") for s in
                      table["bias_direction"]],
            "agrees": [text or "-" for text in table["agreement"]],
            "draws": table["draws"],
            "seconds": [f"{value:.2g}" for value in table["seconds"]],
        },
        index=pd.Index(table.index, name=None),
    )  # fmt: skip


def unfolded(table: pd.DataFrame, keep: Sequence[str | None]) -> pd.Series:
    """Whether each row is shown: independent of the run, one to `keep`, or in disagreement.

    Where nothing is independent all rows are shown.
    """
    independent = table["draws"] == OWN
    if not independent.any():
        return independent | True
    return independent | (table["agreement"] == NO) | table.index.isin(list(keep))


def folded_line(table: pd.DataFrame) -> str:
    """One sentence on the rows that are not shown, best errors first; empty if there are none."""
    if not len(table):
        return ""
    shared = table.sort_values("mcse")
    groups = dict.fromkeys([YES, *shared["agreement"]])
    parts = []
    for text in groups:
        names = list(shared.index[shared["agreement"] == text])
        if names:
            said = "agree" if text == YES else text or "not compared"
            parts.append(f"{said}: {', '.join(names)}")
    whose = "draws of the posterior" if (table["draws"] == POSTERIOR).all() else "draws of the run"
    return f"{len(table)} more from the same {whose} (all rows: .table). {'; '.join(parts)}."


def told(warnings: Sequence[str], names: Sequence[str]) -> tuple[list[str], int]:
    """Return the warnings of the methods of these names, and how many others there are."""
    own = [text for text in warnings if text.partition(":")[0] in names]
    return own, len(warnings) - len(own)


def text_of(
    table: pd.DataFrame, keep: Sequence[str | None], words: str, warnings: Sequence[str]
) -> str:
    """Lay out a cross-check as text."""
    shown = unfolded(table, keep)
    own, others = told(warnings, list(table.index[shown]))
    lines = [
        as_shown(table[shown]).to_string(),
        _wrapped(folded_line(table[~shown])),
        _wrapped(words),
    ]
    lines += [_wrapped(f"! {sentence}") for sentence in own]
    if others:
        lines.append(f"! {others} more warnings of methods that are not shown (.warnings)")
    return "\n".join(line for line in lines if line)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def html_of(
    table: pd.DataFrame, keep: Sequence[str | None], words: str, warnings: Sequence[str]
) -> str:
    """Lay out a cross-check for notebooks; what is not shown opens on a click."""
    shown = unfolded(table, keep)
    own, _ = told(warnings, list(table.index[shown]))
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in own)
    notes = f"<ul>{items}</ul>" if items else ""
    rest = ""
    if not shown.all():
        hidden = [text for text in warnings if text not in own]
        more = "".join(f"<li>{html.escape(text)}</li>" for text in hidden)
        line = html.escape(folded_line(table[~shown]))
        rest = (
            f"<details><summary>{line}</summary>{as_shown(table[~shown]).to_html()}"
            f"{f'<ul>{more}</ul>' if more else ''}</details>"
        )
    head = as_shown(table[shown]).to_html()
    return f"<div>{head}<p>{html.escape(words)}</p>{notes}{rest}</div>"
