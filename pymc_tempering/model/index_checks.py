"""Whether the data that a model selects by are indices of the arrays that it selects from.

PyTensor's compiled selections by arrays of indices read, and write, whatever lies there in memory.
So groups that are numbered from 1 where the first is 0 would give numbers, which mean nothing.
"""

from collections.abc import Iterator

import numpy as np
import pymc as pm
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import apply_ancestors
from pytensor.tensor.shape import shape_tuple
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)

from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.density_graphs import is_random, known_values

SELECTIONS = AdvancedSubtensor, AdvancedIncSubtensor
"""Operations that select by arrays of indices; those by single numbers have checks."""


def check_indices(model: pm.Model) -> None:
    """Raise an error where data select what is not there.

    Looked at are indices that are data, or computed from data alone, in all that the variables,
    potentials and deterministics of the model depend on.

    Raises
    ------
    ModelError
        An index is outside of its array.
    """
    variables = model.basic_RVs + model.potentials + model.deterministics
    found = [
        axis
        for node in apply_ancestors(variables)
        if isinstance(node.op, SELECTIONS)
        for axis in _axes(node)
    ]
    indices = known_values([index for _, _, index in found])
    lengths = known_values([shape_tuple(array)[axis] for array, axis, _ in found])
    for selected, known, length in zip(found, indices, lengths, strict=True):
        if known is not None and length is not None:
            _check_axis(*selected, known, int(length))


def _axes(node: Apply) -> Iterator[tuple[Variable, int, Variable]]:
    """Array that a node selects from, an axis of it, and the indices there, for each axis."""
    array = node.inputs[0]
    given = node.inputs[2 if isinstance(node.op, AdvancedIncSubtensor) else 1 :]
    for axis, index in enumerate(indices_from_subtensor(given, node.op.idx_list)):
        if isinstance(index, Variable) and index.type.dtype != "bool" and not is_random(index):
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
            f"length {length}: indices go from 0 to {length - 1}. Number the groups from 0."
        )
