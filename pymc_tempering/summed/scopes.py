"""Which elements of discrete variables each element of a term depends on, read off its graph.

A graph is walked from the variables to the term with arrays of truth values: of each element of
each intermediate variable, whether an element of the variables reaches it. Operations that compute
element by element, that move elements or add them up are followed. All others count as if each
output depended on all inputs, so that a scope may be too large and never too small.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pytensor
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogAddExp, LogSumExp
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)
from pytensor.tensor.type import TensorType

from pymc_tempering.model.python_mode import python_mode

MOVES = (DimShuffle, Reshape, SpecifyShape, Subtensor, AdvancedSubtensor, Alloc, Join, MakeVector)
"""Operations whose output has the elements of an input at other places."""

EACH = (Elemwise, LogAddExp)
"""Operations that compute element by element."""

REDUCES = (CAReduce, LogSumExp)
"""Operations that join the elements along some axes of their one input."""

SETS = (IncSubtensor, AdvancedIncSubtensor)
"""Operations that put elements of one input into another, if they do not add them."""

SHAPES = (Shape, Shape_i)
"""Operations whose output does not depend on values."""

LARGEST = 20_000_000
"""Truth values of one intermediate variable at most."""

type Dep = np.ndarray
"""Of a variable of shape (...), shape (..., n): whether its elements depend on those n."""


class TooManyScopesError(Exception):
    """The truth values take too much memory."""


def element_scopes(
    terms: Sequence[Variable], unknowns: Sequence[Variable], point: Mapping[Variable, np.ndarray]
) -> list[Dep]:
    """Tell on which elements of unknowns those of some terms depend.

    Parameters
    ----------
    terms : sequence of Variable
    unknowns : sequence of Variable
        Where the graphs end.
    point : mapping of Variable to array
        Values of the unknowns and of all random variables in the graphs, for their shapes.

    Returns
    -------
    list of array of bool
        For each term, shape (..., n) with n elements of all unknowns, raveled, one after the other.

    Raises
    ------
    TooManyScopesError
    """
    nodes = io_toposort(unknowns, terms)
    seen = {v for node in nodes for v in (*node.inputs, *node.outputs)} | {*terms, *unknowns}
    values = _evaluate([v for v in seen if isinstance(v.type, TensorType)], point)
    sizes = [values[v].size for v in unknowns]
    n, starts = sum(sizes), np.cumsum([0, *sizes])
    deps: dict[Variable, Dep] = {}
    for v, start, size in zip(unknowns, starts, sizes, strict=False):
        deps[v] = np.eye(n, dtype=bool)[start : start + size].reshape(*values[v].shape, n)
    for node in nodes:
        if isinstance(node.op, SHAPES) or not any(v in deps for v in node.inputs):
            continue
        for out in node.outputs:
            if values.get(out, np.empty(0)).size * n > LARGEST:
                raise TooManyScopesError
            deps[out] = _through(node, out, deps, values, set(point), n)
    none = {v: np.zeros((*values[v].shape, n), dtype=bool) for v in terms if v not in deps}
    return [none[v] if v in none else deps[v] for v in terms]


def _evaluate(
    variables: Sequence[Variable], point: Mapping[Variable, np.ndarray]
) -> dict[Variable, np.ndarray]:
    """Values of variables at a point."""
    given = {v: pytensor.tensor.constant(x, dtype=v.type.dtype) for v, x in point.items()}
    wanted = [v for v in variables if v not in point]
    graphs = pytensor.graph.replace.clone_replace(wanted, given)
    found = pytensor.function([], graphs, mode=python_mode())()
    values = dict(zip(wanted, map(np.asarray, found), strict=True))
    return values | {v: np.asarray(x) for v, x in point.items()}


def _through(
    node: Apply,
    out: Variable,
    deps: Mapping[Variable, Dep],
    values: Mapping[Variable, np.ndarray],
    random: set[Variable],
    n: int,
) -> Dep:
    """Dependence of an output of a node, given that of its inputs."""
    op, shape = node.op, values[out].shape if out in values else ()
    of_inputs = [deps.get(v) for v in node.inputs]
    if isinstance(op, EACH):
        return _joined([d for d in of_inputs if d is not None], shape, n)
    if isinstance(op, CheckParameterValue):  # each element passes if all conditions hold
        value, *checks = of_inputs
        any_of = [d.reshape(-1, n).any(axis=0) for d in checks if d is not None]
        return _joined(any_of if value is None else [value, *any_of], shape, n)
    if isinstance(op, REDUCES):
        axes = range(node.inputs[0].type.ndim) if op.axis is None else op.axis
        [dep] = of_inputs
        assert dep is not None
        return dep.any(axis=tuple(axes))
    sets = isinstance(op, SETS) and op.set_instead_of_inc
    if isinstance(op, MOVES) or sets:
        moved = range(len(node.inputs)) if isinstance(op, MakeVector) else range(2 if sets else 1)
        moved = range(len(node.inputs)) if isinstance(op, Join) else moved
        places = [v for i, v in enumerate(node.inputs) if i not in moved]
        if not any(_by_value(v, random) for v in places):
            return _moved(node, moved, of_inputs, values, n)
        if isinstance(op, AdvancedSubtensor) and of_inputs[0] is None:
            picked = _picked(node, of_inputs, shape, n)
            if picked is not None:
                return picked
    every = np.zeros(n, dtype=bool)
    for dep in of_inputs:
        if dep is not None:
            every |= dep.reshape(-1, n).any(axis=0)
    return np.broadcast_to(every, (*shape, n))


def _by_value(variable: Variable, random: set[Variable]) -> bool:
    """Whether a variable depends on values of random variables, and not on their shapes alone."""
    waiting, seen = [variable], set[Variable]()
    while waiting:
        v = waiting.pop()
        if v in random:
            return True
        if v not in seen and v.owner is not None and not isinstance(v.owner.op, SHAPES):
            waiting += v.owner.inputs
        seen.add(v)
    return False


def _joined(deps: Sequence[Dep], shape: tuple[int, ...], n: int) -> Dep:
    """Union of dependences that are broadcast against each other."""
    total = np.zeros((*shape, n), dtype=bool)
    for dep in deps:
        total |= dep
    return total


def _moved(
    node: Apply,
    moved: Sequence[int],
    deps: Sequence[Dep | None],
    values: Mapping[Variable, np.ndarray],
    n: int,
) -> Dep:
    """Dependence of moved elements: numbers take their way, and tell where each came from."""
    rows, given, first = [], [], 0
    for i, v in enumerate(node.inputs):
        if i not in moved:
            given.append(_held(v, values))
            continue
        shape, dep = values[v].shape, deps[i]
        size = int(np.prod(shape))
        rows.append(np.zeros((size, n), bool) if dep is None else dep.reshape(size, n))
        given.append(pytensor.tensor.constant(np.arange(first, first + size).reshape(shape)))
        first += size
    numbers = node.op.make_node(*given).outputs[0].eval(mode=python_mode())
    return np.concatenate(rows)[np.asarray(numbers).astype(np.int64)]  # a vector may be of floats


def _held(variable: Variable, values: Mapping[Variable, np.ndarray]) -> Variable:
    """Return a variable with its value, where that is known; ends of slices are scalars."""
    node = variable.owner
    if node is not None and isinstance(node.op, ScalarFromTensor):
        return node.op(_held(node.inputs[0], values))
    if variable in values and isinstance(variable.type, TensorType):
        return pytensor.tensor.constant(values[variable], dtype=variable.dtype)
    return variable


def _picked(node: Apply, deps: Sequence[Dep | None], shape: tuple[int, ...], n: int) -> Dep | None:
    """Dependence of elements that are picked by the unknowns alone; None if it cannot be told.

    Where all leading dimensions are picked by arrays, the output begins with their dimensions.
    """
    places = getattr(node.op, "idx_list", ())
    if any(isinstance(place, slice) for place in places):
        return None
    indices = [d for d in deps[1:] if d is not None]
    lead = max(v.type.ndim for v in node.inputs[1:])
    total = _joined(indices, shape[:lead], n)
    rest = len(shape) - lead
    return np.broadcast_to(total.reshape(*shape[:lead], *[1] * rest, n), (*shape, n))


def split_sums(term: Variable) -> list[Variable]:
    """Terms whose elements sum to those of a term: what outer sums add up."""
    node = term.owner
    if node is not None and term.type.ndim == 0:
        if isinstance(node.op, CAReduce) and str(node.op.scalar_op) == "add":
            return split_sums(node.inputs[0])
        if isinstance(node.op, Elemwise) and str(node.op.scalar_op) == "add":
            return [part for v in node.inputs for part in split_sums(v)]
    return [term]
