"""Thin forms of PyTensor's operations, which compile at once and have the same numbers.

They are for what graphs of models are full of: axes that come and go, checks of shapes, and
selections by vectors of whole numbers. PyTensor's own forms serve every case. Here is the plain one
of each; where a node is no such case, there is no thin form.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type_other import NoneTypeT

from pymc_tempering.borrowed.pytensor_graphs import compile_numba_function_src, numba_njit
from pymc_tempering.model.array_views import NEW, number, shuffled
from pymc_tempering.model.sources import hash_of_sources, hash_text

Made = tuple[Callable, str | None]
"""A function, and its key in the cache."""


def thin_operation(node: Apply) -> Made | None:
    """Return the function of a node and its key, or None where there is no thin form."""
    make = THIN.get(type(node.op))
    return None if make is None else make(node)


def _dim_shuffle(node: Apply) -> Made | None:
    """Axes in another order, new ones, and ones that go."""
    op, [x] = node.op, node.inputs
    order = tuple(NEW if axis == "x" else axis for axis in op.new_order)
    left_out = set(range(x.type.ndim)) - set(order)
    if any(x.type.shape[axis] != 1 for axis in left_out):
        return None
    return shuffled(order), _key(f"shuffled {order}")


def _specify_shape(node: Apply) -> Made:
    """Check of a shape; PyTensor has a sentence with all its numbers."""
    _, *lengths = node.inputs
    names = [f"length{i}" for i in range(len(lengths))]
    lines = [f"def specify_shape(x, {', '.join(names)}):"]
    for i, length in enumerate(lengths):
        if not isinstance(length.type, NoneTypeT):
            lines += [
                f"    if x.shape[{i}] != number(length{i}):",
                f"        raise AssertionError('SpecifyShape: dim {i} has another length')",
            ]
    return _compile([*lines, "    return x"], "specify_shape")


def _scalar_from_tensor(node: Apply) -> Made:
    return number, _key("number")


def _select(node: Apply) -> Made | None:
    """Elements, or rows, by vectors of whole numbers."""
    x, *given = node.inputs
    indices = _plain_indices(node.op, x, given)
    if indices is None:
        return None
    names, loop, at = _loop(indices, x)
    rest = range(len(indices), x.type.ndim)
    shape = "".join(f", x.shape[{axis}]" for axis in rest)
    lines = [f"def select(x, {', '.join(names)}):", *_same_lengths(indices)]
    lines += [f"    out = np.empty((n{shape},), dtype=x.dtype)", *loop]
    to = ", ".join(["a", *(f"j{axis}" for axis in rest)])
    return _compile([*lines, f"{_indent(rest)}out[{to}] = x[{at}]", "    return out"], "select")


def _update(node: Apply) -> Made | None:
    """Write or add to elements, or rows, by vectors of whole numbers; one after the other."""
    op = node.op
    x, y, *given = node.inputs
    indices = _plain_indices(op, x, given)
    if indices is None or (op.ignore_duplicates and not op.set_instead_of_inc):
        return None
    rest = range(len(indices), x.type.ndim)
    full = (_length(indices), *(x.type.shape[axis] for axis in rest))
    if y.type.ndim and (y.type.shape != full or None in full):
        return None
    names, loop, at = _loop(indices, x)
    lines = [f"def update(x, y, {', '.join(names)}):", *_same_lengths(indices)]
    lines += [] if op.inplace else ["    x = x.copy()"]
    value = f"y[{', '.join(['a', *(f'j{axis}' for axis in rest)])}]" if y.type.ndim else "number(y)"
    sign = "=" if op.set_instead_of_inc else "+="
    lines += [*loop, f"{_indent(rest)}x[{at}] {sign} {value}", "    return x"]
    return _compile(lines, "update")


THIN: dict[type, Callable[[Apply], Made | None]] = {
    DimShuffle: _dim_shuffle,
    SpecifyShape: _specify_shape,
    ScalarFromTensor: _scalar_from_tensor,
    AdvancedSubtensor: _select,
    AdvancedIncSubtensor: _update,
}


def _plain_indices(op: Any, x: Variable, given: Sequence[Variable]) -> list[Variable] | None:
    """Whole numbers and vectors of them, for the first axes; the vectors have one known length."""
    if tuple(op.idx_list) != tuple(range(len(given))):  # slices among them
        return None
    indices = indices_from_subtensor(given, op.idx_list)
    if any(index.type.ndim > 1 for index in indices):
        return None
    if any(np.dtype(index.type.dtype).kind not in "iu" for index in indices):
        return None
    vectors = [index for index in indices if index.type.ndim == 1]
    lengths = {index.type.shape[0] for index in vectors}
    if not vectors or len(lengths) > 1 or (len(vectors) > 1 and lengths & {None, 1}):
        return None
    return list(indices)


def _length(indices: Sequence[Variable]) -> int | None:
    """Length of the vectors among indices."""
    return next(index.type.shape[0] for index in indices if index.type.ndim == 1)


def _same_lengths(indices: Sequence[Variable]) -> list[str]:
    """Lines that give the length of the vectors, and check that it is one."""
    first, *others = [i for i, index in enumerate(indices) if index.type.ndim == 1]
    lines = [f"    n = i{first}.shape[0]"]
    for i in others:
        lines += [f"    if i{i}.shape[0] != n:"]
        lines += ["        raise IndexError('vectors of indices have different lengths')"]
    return lines


def _loop(indices: Sequence[Variable], x: Variable) -> tuple[list[str], list[str], str]:
    """Names of the indices, the lines of the loops over them and all other axes, and the place."""
    names = [f"i{i}" for i in range(len(indices))]
    lines = ["    for a in range(n):"]
    for i, index in enumerate(indices):
        is_number = isinstance(index.type, ScalarType) or index.type.ndim == 0
        lines.append(f"        s{i} = {f'number(i{i})' if is_number else f'i{i}[a]'}")
    rest = range(len(indices), x.type.ndim)
    for depth, axis in enumerate(rest):
        lines.append(f"{'    ' * (2 + depth)}for j{axis} in range(x.shape[{axis}]):")
    places = [*(f"s{i}" for i in range(len(indices))), *(f"j{axis}" for axis in rest)]
    return names, lines, ", ".join(places)


def _indent(rest: Sequence[int]) -> str:
    """Blanks before a line in the innermost loop."""
    return "    " * (2 + len(rest))


def _compile(lines: Sequence[str], name: str) -> Made:
    source = "\n".join(lines)
    environment = {"np": np, "number": number}
    function = compile_numba_function_src(source, name, global_env=environment)
    return numba_njit(function), _key(source)


def _key(text: str) -> str | None:
    """Key in the cache: another one after each edit of this file or of what it imports."""
    edition = hash_of_sources(Path(__file__))
    return None if edition is None else f"thin_{hash_text(text)}_{edition}"
