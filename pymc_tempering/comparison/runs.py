"""What is compared, by name: from a dict, a list, or a table with a row for each model."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.arguments import listed
from pymc_tempering.evidence.result import DATA, FAILED, Evidence
from pymc_tempering.exceptions import ArgumentError, DataMismatchError

RESULT = ("log_z", "mcse", "verdict")
"""Columns of a table whose rows are results: one of sample_many or of compare."""

MOST_NAMED = 5
"""Models that a message names."""


def runs_by_name(door: str, runs: Any, *, check_data: bool = True) -> dict[str, Any]:
    """Bring what a function is given to compare into a dict by name.

    Rows of a table come as such, see `row_evidence`.

    Raises
    ------
    ValueError
        It is none of these, or empty; a table lacks a column, has a name twice, or failed runs.
    DataMismatchError
        Runs of a table had different observed data.
    """
    found: dict[str, Any]
    if isinstance(runs, pd.DataFrame):
        found = _rows(door, runs, check_data)
    elif isinstance(runs, Mapping) and not isinstance(runs, xr.DataTree):
        found = dict(runs)
    elif isinstance(runs, list | tuple):
        found = {str(place): run for place, run in enumerate(runs)}
    else:
        raise ValueError(
            f"{door} takes runs by name, a list of them, or the table of sample_many, not "
            f"{type(runs).__name__}: {door}({{'a': idata_a, 'b': idata_b}})"
        )
    if not found:
        raise ValueError(f"{door} needs at least one model")
    return found


def _rows(door: str, table: pd.DataFrame, check_data: bool) -> dict[str, pd.Series]:
    """Rows of a table by name."""
    if missing := [name for name in RESULT if name not in table]:
        raise ValueError(
            f"{door} takes the table of sample_many or of compare; this DataFrame lacks {missing}"
        )
    names = [str(name) for name in table.index]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the table has the names {twice} twice: name each model once")
    if failed := [n for n, v in zip(names, table["verdict"], strict=True) if v == FAILED]:
        raise ValueError(
            f"{len(failed)} of {len(names)} runs failed, {listed(failed, MOST_NAMED)}: sample them "
            f"again, or leave them out, {door}(table[table.verdict != {FAILED!r}])"
        )
    data = {name: table.attrs.get(DATA, {}).get(name, "") for name in names}
    other = [name for name in names if data[name] and data[name] != data[names[0]]]
    if check_data and data[names[0]] and other:
        raise DataMismatchError(
            f"model {names[0]!r} and {len(other)} others, {listed(other, MOST_NAMED)}, had "
            "different observed data, so their evidence cannot be compared; check_data=False "
            "overrides this for data that are the same in another shape"
        )
    return {name: row for name, (_, row) in zip(names, table.iterrows(), strict=True)}


def prior_in(runs: Any, prior: Mapping[str, float] | None) -> Mapping[str, float] | None:
    """Return the prior probabilities that were given, or else those of a table of compare."""
    if prior is None and isinstance(runs, pd.DataFrame) and "prior" in runs:
        return {str(name): share for name, share in runs["prior"].items()}
    return prior


def is_row(thing: Any) -> bool:
    """Whether something is a row of such a table."""
    return isinstance(thing, pd.Series) and set(RESULT) <= set(thing.index)


def row_evidence(row: pd.Series) -> Evidence:
    """Return what a row says; its warnings were given when the table was made."""
    method, bias = str(row.get("method", "sample_many")), str(row.get("bias_direction", ""))
    verdict = "unchecked" if row["verdict"] == FAILED else str(row["verdict"])
    log_z, mcse = float(row["log_z"]), float(np.nan_to_num(row["mcse"], nan=np.inf))
    return Evidence(log_z, mcse, method, verdict, bias_direction=bias)


def row_draws(name: str, row: pd.Series, groups: tuple[str, ...]) -> xr.DataTree:
    """Read the groups of the run of a row from its file.

    Raises
    ------
    ArgumentError
        The draws were not written.
    """
    file = row.get("file")
    if not isinstance(file, str) or not Path(file).exists():
        raise ArgumentError(
            f"model {name!r} has no file with draws ({file}): give sample_many a path=, and leave "
            "save_draws as it is."
        )
    found = {}
    for group in groups:  # open_datatree would open all of them, which takes ten times as long
        with (
            suppress(OSError),
            xr.open_dataset(file, group=group, engine="h5netcdf") as dataset,
        ):
            found[group] = dataset.load()
    return xr.DataTree.from_dict(found)
