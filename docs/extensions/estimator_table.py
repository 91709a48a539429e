"""Sphinx extension that writes the registry of estimators into the API page."""

import inspect
from functools import partial
from typing import Any

import pymc_tempering.evidence
from pymc_tempering.crosscheck.registry import ALL_ESTIMATORS

TABLE = ".. estimator-table"
FUNCTIONS = ".. estimator-functions"


def table() -> str:
    """Return the table of all estimators as reStructuredText."""
    rows = [("name", "what it is", "reads", "draws", "cross-check")]
    rows += [
        (f'``"{name}"``', row.summary, row.reads, row.draws, "yes" if row.by_default else "by name")
        for name, row in ALL_ESTIMATORS.items()
    ]
    lines = [".. list-table::", "   :header-rows: 1", "   :class: names", ""]
    for first, *rest in rows:
        lines += [f"   * - {first}", *(f"     - {cell}" for cell in rest)]
    return "\n".join(lines) + "\n"


def functions() -> str:
    """Return a directive for each function that estimates from a run."""
    lines = []
    for row in pymc_tempering.evidence.ESTIMATORS.values():
        function: Any = row.estimate
        function = function.func if isinstance(function, partial) else function
        public = getattr(pymc_tempering.evidence, function.__name__, None) is function
        module = "pymc_tempering.evidence" if public else inspect.getmodule(function).__name__
        lines.append(f".. autofunction:: {module}.{function.__name__}\n")
    return "\n".join(dict.fromkeys(lines))


def fill(app: Any, docname: str, source: list[str]) -> None:
    """Put both in place of their markers."""
    source[0] = source[0].replace(TABLE, table()).replace(FUNCTIONS, functions())


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True}
