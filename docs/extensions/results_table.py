"""Sphinx extension that makes the tables of the benchmark pages from the files of results.

A ``results`` directive names a file of ``benchmarks/results``, and holds a few lines of Python that
begin with the frame ``t`` of that file and end with the frame to show. Below the table stands where
it is from, with machine and versions. What the lines may use is in ``TOOLS``.
"""

import re
from pathlib import Path
from typing import Any

import pandas as pd
from docutils import nodes
from docutils.parsers.rst import Directive

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
NOTE = re.compile(r"^(?:#|-) ([^:\n]+): (.+)$", re.MULTILINE)
NUMBER = re.compile(
    r"(?:[-+<]?[\d,.]+(?:e[-+]?\d+)?%?(?: (?:x|of|to|±) .*| x, .*| \(.*)?|infinite|-|nan|inf|)"
)


def read(name: str, table: int = 1) -> pd.DataFrame:
    """Return the frame of a file of results; of a Markdown file a table by its place, from 1 on."""
    path = RESULTS / name
    if path.suffix == ".csv":
        return pd.read_csv(path, comment="#")
    tables = re.findall(r"(?:^\|.*\n)+", path.read_text("utf-8"), re.MULTILINE)
    head, _, *rows = (line.strip("| ").split("|") for line in tables[table - 1].splitlines())
    return pd.DataFrame(
        [[cell.strip() for cell in row] for row in rows], columns=[cell.strip() for cell in head]
    )


def notes(name: str) -> dict[str, str]:
    """Return what a file says beside its table: machine, versions, seeds."""
    path = RESULTS / name
    texts = [f.read_text("utf-8") for f in (path, path.with_suffix(".md")) if f.exists()]
    return dict(NOTE.findall("\n".join(texts)))


def fixed(values: pd.Series, digits: int) -> pd.Series:
    """Return numbers with so many decimals."""
    return values.map(lambda x: "" if pd.isna(x) else f"{x:.{digits}f}")


def short(values: pd.Series, digits: int = 2) -> pd.Series:
    """Return numbers with so many significant digits, and commas from 1,000 on."""
    return values.map(lambda x: "" if pd.isna(x) else _short(x, digits))


def _short(x: float, digits: int) -> str:
    rounded = float(f"{x:.{digits}g}")
    whole = abs(rounded) >= 10 ** (digits - 1)
    return f"{rounded:,.0f}" if whole else f"{x:#.{digits}g}".rstrip(".")


def percent(values: pd.Series, digits: int = 1) -> pd.Series:
    """Return shares in percent."""
    return values.map(lambda x: f"{x:.{digits}%}")


def code(values: pd.Series) -> pd.Series:
    """Return names as they are typed."""
    return values.map(lambda name: f"`{name}`")


def named(frame: pd.DataFrame, column: str, names: dict[str, str]) -> pd.DataFrame:
    """Return the rows of these names, in this order, called as a reader calls them."""
    assert set(names) <= set(frame[column]), set(names) - set(frame[column])
    rows = frame[frame[column].isin(names)].copy()
    order = list(names)
    rows = rows.sort_values(column, key=lambda c: c.map(order.index), kind="stable")
    rows[column] = rows[column].map(names)
    return rows


def once(values: pd.Series) -> pd.Series:
    """Return names without those that stand in the row above too."""
    return values.where(values != values.shift(), "")


TOOLS = {f.__name__: f for f in (read, notes, fixed, short, percent, code, named, once)}
"""And ``pd``, and the frame ``t``."""


def evaluate(lines: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Run the lines of a directive and return the frame that the last one gives."""
    *before, last = re.split(r"\n(?![\s)\]}])", lines.strip())
    scope: dict[str, Any] = {**TOOLS, "pd": pd, "t": frame}
    exec("\n".join(before), scope)
    shown = eval(last.strip(), scope)
    assert isinstance(shown, pd.DataFrame), "the last line of a table is a frame"
    assert len(shown), "a table has rows"
    return shown


def markdown(frame: pd.DataFrame) -> list[str]:
    """Return a frame as the lines of a Markdown table, numbers to the right."""
    cells = frame.astype(str).replace(r"\|", r"\\|", regex=True)
    right = [cells[name].map(lambda c: bool(NUMBER.fullmatch(c))).all() for name in cells]
    rows = [list(cells.columns), ["--:" if r else "---" for r in right], *cells.to_numpy().tolist()]
    return ["| " + " | ".join(row) + " |" for row in rows]


def source(name: str) -> str:
    """Return the line below a table."""
    found = notes(name)
    parts = [found[key] for key in ("machine", "versions") if key in found]
    return "; ".join([f"`benchmarks/results/{name}`", *parts])


class Results(Directive):
    """``results``: its argument is the name of a file in ``benchmarks/results``."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table and where it is from."""
        name = self.arguments[0]
        self.state.document.settings.env.note_dependency(str(RESULTS / name))
        frame = evaluate("\n".join(self.content), read(name))
        box = nodes.container(classes=["results"])
        self.state.nested_parse([*markdown(frame), "", source(name)], self.content_offset, box)
        return [box]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
