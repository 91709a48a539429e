"""The DataTree of a run and that of the draws after it, as one."""

import json
import warnings
from collections.abc import Iterable

import numpy as np
import xarray as xr

from pymc_tempering.exceptions import TemperingWarning

DRAWN = ("posterior", "sample_stats")
"""Groups that have a row for each draw."""

OF_ALL_DRAWS = ("evidence", "cross_check")
"""Groups that say something of all draws, and so nothing of more."""

PADDING = {"log_ratio": np.nan, "keep_probability": np.nan, "rung": -1, "iteration": -1}
"""What stands behind the last row of a chain that is shorter than others."""

OF_TARGET = ("target_ess", "least_ess", "least_ess_of")
"""Attributes that say whether the first draws sufficed."""


def join_draws(old: xr.DataTree, new: xr.DataTree) -> xr.DataTree:
    """Put new draws behind the old ones; both trees stay as they are.

    Parameters
    ----------
    old : DataTree
        A run.
    new : DataTree
        What its chains, or the first of them, did afterwards, with `tempering_plan`.

    Returns
    -------
    DataTree

    Warns
    -----
    TemperingWarning
        Groups were left out, since they are of the old draws alone.
    """
    # Chains of the new one are counted from 0; after Ctrl-C some may lack.
    kept = new["posterior"].to_dataset()["chain"].values
    names = old["posterior"].to_dataset()["chain"].values[kept]
    result = old.copy()
    for name, group in old.children.items():
        if "chain" in group.dims:
            result[name].dataset = group.to_dataset().isel(chain=kept)
    ours = [name for name in new.children if name in old.children]
    for name in ours:
        if "draw" in new[name].dims:
            after = new[name].to_dataset().assign_coords(chain=names)
            result[name].dataset = _behind(result[name].to_dataset(), after)
    if "tempering_trace" in ours:
        trace = result["tempering_trace"].to_dataset()
        lengths = (trace["rung"].transpose("chain", ...).values >= 0).sum(axis=1)
        result["tempering_trace"] = xr.DataTree(
            _padded(trace, new["tempering_trace"].to_dataset(), "iteration", "rung")
        )
        if "tempering_states" in ours:
            result["tempering_states"] = xr.DataTree(_states(result, new, lengths))
    result["tempering_plan"] = xr.DataTree(new["tempering_plan"].to_dataset())
    result["tempering"].attrs = _history(old, new)
    _drop(
        result,
        (name for name, group in old.children.items() if _is_stale(group, name in ours, name)),
    )
    return result


def _behind(old: xr.Dataset, new: xr.Dataset) -> xr.Dataset:
    """Put draws behind others of the same chains."""
    begin = int(old["draw"].values[-1]) + 1
    new = new.assign_coords(draw=begin + np.arange(new.sizes["draw"]))
    whole = xr.concat(
        [old, new[list(old.data_vars)]], "draw", data_vars="minimal", coords="minimal",
        compat="override", join="override", combine_attrs="override",
    )  # fmt: skip
    if "sampling_time" in old.attrs:
        whole.attrs["sampling_time"] = old.attrs["sampling_time"] + new.attrs["sampling_time"]
    return whole


def _padded(old: xr.Dataset, new: xr.Dataset, dim: str, marker: str) -> xr.Dataset:
    """Put rows of each chain behind its own; `marker` is negative where a chain has no more."""
    tables = [table.transpose("chain", dim, ...) for table in (old, new)]
    used = [table[marker].values >= 0 for table in tables]
    counts = np.sum([each.sum(axis=1) for each in used], axis=0)
    columns = {}
    for name, variable in tables[0].data_vars.items():
        parts = [table[name].values for table in tables]
        whole = np.empty((len(counts), int(counts.max()), *parts[0].shape[2:]), parts[0].dtype)
        for chain, count in enumerate(counts):
            rows = [part[chain][at[chain]] for part, at in zip(parts, used, strict=True)]
            whole[chain, :count] = np.concatenate(rows)
            # A state that weighs nothing must still be one that can be computed with.
            whole[chain, count:] = PADDING.get(str(name), whole[chain, :1])
        columns[name] = (variable.dims, whole, variable.attrs)
    coords = {name: c for name, c in tables[0].coords.items() if dim not in c.dims}
    place = {dim: np.arange(int(counts.max()))} if dim in old.coords else {}
    return xr.Dataset(columns, coords | place, attrs=old.attrs)


def _states(result: xr.DataTree, new: xr.DataTree, lengths: np.ndarray) -> xr.Dataset:
    """States of all rungs, with their places in the joined trace, whose old part has `lengths`."""
    after = new["tempering_states"].to_dataset().transpose("chain", "state", ...)
    iteration = after["iteration"].values
    moved = np.where(iteration >= 0, iteration + lengths[:, None], -1)
    after = after.assign(iteration=(("chain", "state"), moved))
    return _padded(result["tempering_states"].to_dataset(), after, "state", "iteration")


def _history(old: xr.DataTree, new: xr.DataTree) -> dict[str, object]:
    """Attributes of `tempering`: the times of both, and after how many draws the chains went on."""
    attrs = {k: v for k, v in old["tempering"].attrs.items() if k not in OF_TARGET}
    seconds = json.loads(attrs["seconds"])
    seconds["run"] += json.loads(new["tempering"].attrs["seconds"])["run"]
    before = json.loads(attrs.get("extended_after", "[]"))
    return attrs | {
        "seconds": json.dumps(seconds),
        "sampling_seconds": seconds["run"],
        "extended_after": json.dumps([*before, old["posterior"].sizes["draw"]]),
    }


def _is_stale(group: xr.DataTree, is_new: bool, name: str) -> bool:
    """Whether a group is of the old draws alone."""
    by_draw = "draw" in group.dims and not name.startswith("warmup_")
    return (by_draw and not is_new) or name in OF_ALL_DRAWS


def _drop(tree: xr.DataTree, stale: Iterable[str]) -> None:
    names = list(stale)
    for name in names:
        del tree[name]
    if names:
        warnings.warn(
            f"Left out of the longer run, since they are of its first draws alone: "
            f"{', '.join(names)}. Make them again.",
            TemperingWarning,
            stacklevel=4,
        )
