"""Which model and data something was made with, as text that is the same in every process.

`content_hash` is one hash of a whole model; `identity_of` has one of each variable, datum and term,
so that what differs can be named. What an operation holds beside its name and simple properties (a
function of the user, say) is not seen; who needs more compares densities at some states too.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.transforms import Transform
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_tempering.arguments import listed
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.memory import GraphWalk, digest, walk_model

ADDRESS = re.compile(r"0x[0-9a-f]+")
DIGITS = 16


def content_hash(model: pm.Model, data: Mapping[str, Any] | None = None) -> str:
    """Return a hash of a model, and of the data that it is to get in place of its own.

    Two models that a function builds of the same numbers have the same hash, in this process and
    in another; models that differ in a prior, a transform, a constant or a datum have different
    ones. Of functions that no graph shows (a custom step of Python code) only the name counts.

    Parameters
    ----------
    model : pymc.Model
    data : mapping of str to array_like, optional
        See :func:`~pymc_tempering.model.new_data.copy_with_data`.
    """
    walk = LastingWalk([], [])
    walk_model(model, walk)
    given = {name: digest(np.asarray(values)) for name, values in sorted((data or {}).items())}
    return _hash_of_entries((walk.entries, given))


def _hash_of_entries(entries: Any) -> str:
    """Hash of what a lasting walk has met, without the addresses in its texts."""
    return sha256(ADDRESS.sub("0x", repr(entries)).encode()).hexdigest()


class LastingWalk(GraphWalk):
    """A walk whose entries mean the same in another process."""

    def identity(self, thing: Any) -> int:
        """Place among the objects in the order in which they were first met."""
        for place, met in enumerate(self.alive):
            if met is thing:
                return place
        self.alive.append(thing)
        return len(self.alive) - 1

    def operation(self, op: Any) -> tuple[Any, ...]:
        """Name and properties of an operation."""
        _, *inside = super().operation(op)
        return type(op).__qualname__, str(op), inside[-1]


def identity_of(model: pm.Model) -> dict[str, dict[str, str]]:
    """Return what tells a model from others: its variables, data, and the graph of each term.

    Returns
    -------
    dict
        `variables`, `data` and `terms`, each a dict from names to texts.
    """
    layout = model_layout(model)
    variables = {
        name: f"{dtype} of shape {shape}"
        for name, shape, dtype in zip(layout.names, layout.shapes, layout.dtypes, strict=True)
    }
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    held = {variable.name: variable for variable in model.data_vars}
    data = {name: _hash_of(value) for name, value in (observed | held).items()}
    transforms = model.rvs_to_transforms
    terms = {rv.name: _hash_of(rv, transforms.get(rv)) for rv in model.basic_RVs}
    terms |= {term.name: _hash_of(term) for term in model.potentials}
    return {"variables": variables, "data": data, "terms": terms}


def potential_data(model: pm.Model) -> dict[str, str]:
    """Return hashes of the data that the potentials of a model hold, by names that tell them apart.

    A `pm.Data` has its own name. Other arrays have that of their potential, with a hash of its
    operations and a number, so that only potentials that are alike have any name in common. Single
    numbers are none of these: they may be those of a prior.
    """
    found: dict[str, str] = {}
    free = set(model.basic_RVs)
    for term in model.potentials:
        met = list(ancestors([term], free))
        operations = [str(v.owner.op) for v in met if v.owner is not None and v not in free]
        arrays = 0
        for variable in met:
            is_shared = isinstance(variable, SharedVariable)
            if not (is_shared or isinstance(variable, Constant)):
                continue
            values = variable.get_value(borrow=True) if is_shared else variable.data
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
                continue
            if is_shared and variable.name:
                found[variable.name] = hash_of_data(values)
            elif values.size > 1:
                arrays += 1
                name = f"{term.name}, array {arrays} of {_hash_of_entries(operations)[:DIGITS]}"
                found[name] = hash_of_data(values)
    return found


def hash_of_data(values: np.ndarray) -> str:
    """Hash of numbers as data, see `rounded`."""
    return sha256(rounded(values)).hexdigest()[:DIGITS]


def rounded(values: np.ndarray) -> bytes:
    """Return numbers as bytes, in one row, and rounded relative to their scale.

    Data that are standardized twice agree up to rounding.
    """
    flat = np.ravel(values).astype(float)
    scale = np.max(np.abs(flat[np.isfinite(flat)]), initial=0.0) or 1.0
    return (np.round(flat / scale, 9) + 0.0).tobytes()


def differences(stored: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> str:
    """Say in which variables, data or terms two models differ; empty if in none."""
    for kind, what in (("variables", "free variables"), ("data", "data"), ("terms", "terms")):
        old, new = stored[kind], now[kind]
        if set(old) != set(new):
            before, here = (listed(names) or "none" for names in (old, new))
            return f"its {what} were {before}, and those here are {here}"
        changed = [name for name in old if old[name] != new[name]]
        if changed and kind == "variables":
            name = changed[0]
            return f"{name!r} was {old[name]}, and is {new[name]} here"
        if changed:
            return f"the {what} {listed(changed)} are others here"
    return ""


def _hash_of(variable: Variable, transform: Transform | None = None) -> str:
    """Hash of the graph of a variable, with its transform."""
    walk = LastingWalk([], [])
    walk.entries.append(walk.content(transform))
    walk.graphs([variable])
    return _hash_of_entries(walk.entries)[:DIGITS]
