"""Where a point null lies in the unconstrained space of a model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.transforms import Ordered
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs

from pymc_tempering.exceptions import NullError
from pymc_tempering.model.exactly import compile_alone
from pymc_tempering.model.layout import Layout, is_discrete, transform_parts
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.unconstrain import unconstrained_graphs


@dataclass(frozen=True)
class NullPoint:
    """Coordinates that a null holds fixed, and their values.

    Attributes
    ----------
    index : ndarray of int, shape (k,)
        Places in the raveled vector.
    value : ndarray, shape (k,)
        Unconstrained values.
    labels : tuple of str
        Names of the coordinates, for messages.
    elements : dict of str to ndarray of int or None
        Raveled elements of each nulled variable; None where all of it is fixed.
    given : dict of str to ndarray
        What the user gave.
    """

    index: np.ndarray
    value: np.ndarray
    labels: tuple[str, ...]
    elements: dict[str, np.ndarray | None]
    given: dict[str, np.ndarray]

    def hold(self, x: np.ndarray) -> np.ndarray:
        """States, shape (n, d), with the coordinates at the null."""
        held = x.copy()
        held[:, self.index] = self.value
        return held


def find_null(model: pm.Model, layout: Layout, null: Mapping[str, Any]) -> NullPoint:
    """Find the coordinates of a null, and check that it is one.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
        Of this model.
    null : mapping of str to array_like
        Values on the constrained space, by the name of a free variable, or of an element of one:
        ``"b[2]"``, ``"b[0, 2]"``, or by the labels of its coordinates, ``"b[age]"``.

    Raises
    ------
    NullError
        A name is unknown or no free variable, a value has another shape or lies outside of the
        support or on its edge, or the variable has no single coordinate for it.
    """
    if not isinstance(null, Mapping) or not null:
        raise NullError(
            'null must be a mapping from names of variables to values, as in {"delta": 0.0}, '
            f"not {null!r}."
        )
    index: dict[int, float] = {}
    elements: dict[str, np.ndarray | None] = {}
    given = {}
    for key, value in null.items():
        rv, where = _find_variable(model, key)
        _check_transform(model, rv, where is not None, key)
        shape = _shape(model, rv)
        at = None if where is None else _element(model, rv, shape, where, key)
        numbers = _numbers(key, value, () if at is not None else shape)
        unconstrained = _unconstrain(model, rv, np.broadcast_to(numbers, shape))
        part = layout.slices[layout.names.index(model.rvs_to_values[rv].name)]
        places = np.arange(part.start, part.stop)
        chosen = slice(None) if at is None else slice(at, at + 1)
        for place, u in zip(places[chosen], unconstrained[chosen], strict=True):
            if not np.isfinite(u):
                raise NullError(
                    f"null[{key!r}] = {value!r} lies outside of the support of the variable or on "
                    "its edge, where it has no density in the unconstrained space: compare the two "
                    "models by their evidences, with bayes_factor."
                )
            if int(place) in index:
                raise NullError(f"null names {layout.label(int(place))} twice.")
            index[int(place)] = float(u)
        before = elements.get(rv.name, np.empty(0, dtype=int))
        elements[rv.name] = None if at is None or before is None else np.append(before, at)
        given[key] = numbers
    labels = tuple(layout.label(place) for place in index)
    return NullPoint(np.array(list(index)), np.array(list(index.values())), labels, elements, given)


def _find_variable(model: pm.Model, key: str) -> tuple[Variable, str | None]:
    """Free variable that a key names, and what stands in brackets."""
    free = {rv.name: rv for rv in model.free_RVs}
    match = re.fullmatch(r"(.+)\[([^\[\]]+)\]", key) if isinstance(key, str) else None
    name, where = (key, None) if key in free or match is None else (match[1], match[2])
    if name not in free:
        known = ", ".join(map(repr, free))
        why = "is no free variable of the model"
        if name in [d.name for d in model.deterministics]:
            why = "is a Deterministic, which has no prior density of its own"
        raise NullError(
            f"null names {name!r}, which {why}; free variables: {known}. Write the model with the "
            "tested quantity as a free variable."
        )
    if is_discrete(free[name]):
        raise NullError(
            f"{name!r} is discrete: a point null has a probability there, not a density. Count the "
            "draws at the null, or compare evidences with bayes_factor."
        )
    return free[name], where


def _check_transform(model: pm.Model, rv: Variable, element: bool, key: str) -> None:
    """Raise an error where a value has no single unconstrained one."""
    transform = model.rvs_to_transforms[rv]
    stand_in, [graph] = unconstrained_graphs(model, [rv])
    others = [v.name for v in graph_inputs([graph]) if v in set(stand_in.values())]
    others = [name for name in others if name != rv.name]
    if transform is not None and others:
        raise NullError(
            f"The support of {rv.name!r} depends on {', '.join(map(repr, others))}, so the null "
            "is at another place for each draw: give it a fixed support, or compare evidences "
            "with bayes_factor."
        )
    joint = rv.owner.op.ndim_supp > 0 if hasattr(rv.owner.op, "ndim_supp") else True
    if element and (joint or any(isinstance(p, Ordered) for p in transform_parts(transform))):
        raise NullError(
            f"null[{key!r}]: the elements of {rv.name!r} have one joint prior, so one of them has "
            "no prior of its own to leave out: write it as two variables, or give all its elements."
        )


def _shape(model: pm.Model, rv: Variable) -> tuple[int, ...]:
    """Shape on the constrained space."""
    static = rv.type.shape
    if any(size is None for size in static):
        static = model.eval_rv_shapes()[rv.name]
    return tuple(int(size) for size in static)


def _element(model: pm.Model, rv: Variable, shape: tuple[int, ...], where: str, key: str) -> int:
    """Raveled position of an element, by whole numbers or labels of coordinates."""
    parts = [part.strip().strip("'\"") for part in where.split(",")]
    dims = model.named_vars_to_dims.get(rv.name, (None,) * len(shape))
    if len(parts) != len(shape):
        raise NullError(f"null[{key!r}]: {rv.name!r} has the shape {shape}.")
    position = []
    for part, size, dim in zip(parts, shape, dims, strict=True):
        labels = [str(v) for v in (model.coords.get(dim) or ())]
        if re.fullmatch(r"-?\d+", part) and -size <= int(part) < size:
            position.append(int(part) % size)
        elif part in labels:
            position.append(labels.index(part))
        else:
            known = f", or one of {labels}" if labels else ""
            raise NullError(
                f"null[{key!r}]: {part!r} is no element of {rv.name!r} along a dimension of size "
                f"{size}: give a whole number from 0 to {size - 1}{known}."
            )
    return int(np.ravel_multi_index(position, shape))


def _numbers(key: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        numbers = np.asarray(value, dtype=float)
        np.broadcast_to(numbers, shape)
    except (TypeError, ValueError):
        raise NullError(
            f"null[{key!r}] must be numbers of the shape {shape}, or one number, not {value!r}."
        ) from None
    if not np.isfinite(numbers).all():
        raise NullError(f"null[{key!r}] must be finite, not {value!r}.")
    return numbers


def _unconstrain(model: pm.Model, rv: Variable, value: np.ndarray) -> np.ndarray:
    """Unconstrained values, raveled; not finite outside of the support."""
    stand_in, graphs = unconstrained_graphs(model, [rv])
    function = compile_alone([stand_in[rv]], graphs, mode=python_mode(), on_unused_input="ignore")
    with np.errstate(all="ignore"):
        [found] = function(value.astype(rv.dtype))
    return np.ravel(found).astype(float)
