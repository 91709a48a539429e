"""Values of the package as JSON and in a DataTree, and back without a loss."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.exceptions import TemperingError

GROUP = "evidence"
"""Group of a DataTree that holds an ``Evidence``."""

TEXT = "evidence_json"
"""Attribute of that group with the whole value."""

NOT_FINITE = ("nan", "inf", "-inf")
"""How JSON, which knows finite numbers alone, holds the others here."""


def as_json(value: Any) -> str:
    """Write a frozen dataclass of numbers, texts, arrays and such dataclasses as JSON."""
    return json.dumps(_plain(value), allow_nan=False)


def read_json(text: str) -> dict[str, Any]:
    """Read what :func:`as_json` wrote, as a dict with lists in place of tuples and arrays.

    Raises
    ------
    TemperingError
        If the text is no JSON object.
    """
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise TemperingError(f"this is not the JSON text of a result: {error}") from error
    if not isinstance(found, dict):
        raise TemperingError("this is not the JSON text of a result: it holds no object")
    return {name: _numbers(value) for name, value in found.items()}


def check_names(cls: type, found: Mapping[str, Any]) -> None:
    """Raise an error unless a dict has the fields of a class that have no default, and no others.

    Raises
    ------
    TemperingError
    """
    known = {field.name for field in fields(cls)}
    odd = sorted(set(found) - known)
    lacking = [name for name in ("log_z", "mcse", "method", "verdict") if name not in found]
    if odd or lacking:
        raise TemperingError(
            f"this is not the JSON text of an {cls.__name__}"
            + (f": it lacks {lacking}" if lacking else f": {odd} are none of its fields")
        )


def as_datatree(value: Any) -> xr.DataTree:
    """Put an ``Evidence`` into the group ``evidence`` of a new DataTree."""
    nats = {"units": "nats"}
    data: dict[str, Any] = {name: ((), getattr(value, name), nats) for name in ("log_z", "mcse")}
    for dim, names in {
        "rung": ("betas", "log_z_curve", "log_z_curve_mcse"),
        "chain": ("per_chain", "per_chain_mcse"),
    }.items():
        for name in names:
            if (values := getattr(value, name)).size:
                data[name] = (dim, values, {} if name == "betas" else nats)
    attrs = {"method": value.method, "verdict": value.verdict, TEXT: as_json(value)}
    return xr.DataTree.from_dict({GROUP: xr.Dataset(data, attrs=attrs)})


def stored_text(tree: xr.DataTree) -> str:
    """Return the JSON text of the group ``evidence`` of a DataTree.

    Raises
    ------
    TemperingError
        If there is no such group, or it was not written by this package.
    """
    if not isinstance(tree, xr.DataTree) or GROUP not in tree.children:
        raise TemperingError(
            f"this {type(tree).__name__} has no group {GROUP!r}: Evidence.to_datatree() makes one"
        )
    text = tree[GROUP].attrs.get(TEXT)
    if not isinstance(text, str):
        raise TemperingError(
            f"the group {GROUP!r} has no attribute {TEXT!r}: it was not written by "
            "Evidence.to_datatree()"
        )
    return text


def _plain(value: Any) -> Any:
    """Numbers, texts, lists and dicts in place of what JSON does not know."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _numbers(value: Any) -> Any:
    """Numbers in place of the words for those that are not finite."""
    if isinstance(value, dict):
        return {name: _numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return float(value) if isinstance(value, str) and value in NOT_FINITE else value
