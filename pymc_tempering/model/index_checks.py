"""Whether what a model selects by are indices of the arrays that it selects from.

PyTensor's compiled selections by arrays of indices read, and write, whatever lies there in memory.
So groups that are numbered from 1 where the first is 0 would give numbers, which mean nothing.
"""

from collections.abc import Iterator

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.shape import shape_tuple
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)

from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.density_graphs import is_random, known_values
from pymc_tempering.model.layout import is_discrete
from pymc_tempering.model.ranges import known_range

SELECTIONS = AdvancedSubtensor, AdvancedIncSubtensor
"""Operations that select by arrays of indices; those by single numbers have checks."""


def check_indices(model: pm.Model) -> None:
    """Raise an error where a model selects what is not there.

    Looked at are indices that are computed from data, and from discrete unknowns of known ranges,
    such as labels, in all that the variables, potentials and deterministics of the model depend on.

    Raises
    ------
    ModelError
        An index is outside of its array.
    """
    variables = model.basic_RVs + model.potentials + model.deterministics
    found = [
        (array, axis, index, known)
        for node in apply_ancestors(variables)
        if isinstance(node.op, SELECTIONS)
        for array, axis, index in _axes(node)
        for known in _known_graphs(model, index)
    ]
    indices = known_values([known for *_, known in found])
    lengths = known_values([shape_tuple(array)[axis] for array, axis, *_ in found])
    for (array, axis, index, _), known, length in zip(found, indices, lengths, strict=True):
        if known is not None and length is not None:
            _check_axis(array, axis, index, known, int(length))


def _known_graphs(model: pm.Model, index: Variable) -> list[Variable]:
    """Graphs of an index that depend on no draw: where labels have their least and largest values.

    None, if it depends on other unknowns.
    """
    if not is_random(index):
        return [index]
    unknowns = set(ancestors([index], blockers=model.basic_RVs)) & set(model.basic_RVs)
    lows, highs = {}, {}
    for rv in unknowns:
        ends = known_range(rv) if is_discrete(rv) and rv in model.free_RVs else None
        [shape] = known_values([rv.shape])
        if ends is None or shape is None:
            return []
        lows[rv], highs[rv] = (
            pt.constant(np.broadcast_to(end, shape).astype(rv.dtype)) for end in ends
        )
    return [graph_replace([index], ends, strict=False)[0] for ends in (lows, highs)]


def _axes(node: Apply) -> Iterator[tuple[Variable, int, Variable]]:
    """Array that a node selects from, an axis of it, and the indices there, for each axis."""
    array = node.inputs[0]
    given = node.inputs[2 if isinstance(node.op, AdvancedIncSubtensor) else 1 :]
    for axis, index in enumerate(indices_from_subtensor(given, node.op.idx_list)):
        if isinstance(index, Variable) and index.type.dtype != "bool":
            yield array, axis, index


def _check_axis(
    array: Variable, axis: int, index: Variable, known: np.ndarray, length: int
) -> None:
    """Raise an error if an index is outside of an axis."""
    wrong = known[(known < -length) | (known >= length)]
    if wrong.size:
        name = f" of {array.name!r}" if array.name else ""
        source = f" in {index.name!r}" if index.name else ""
        raise ModelError(
            f"Index {wrong.flat[0]}{source} is outside of axis {axis}{name}, which has "
            f"length {length}: indices go from 0 to {length - 1}. Number the groups from 0, "
            "with no more labels than there are groups."
        )
