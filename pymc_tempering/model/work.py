"""The work of a density, counted from its graph: never by a clock, so that seeds give the same."""

from collections.abc import Sequence
from math import prod

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import applys_between
from pytensor.scan.op import Scan

PER_NODE = 16
"""What an operation costs beside its elements, in elements."""

FOREIGN = 1_000_000
"""Elements that an operation counts for which is neither PyTensor's nor PyMC's: a user's own,
which may run in Python."""

ANY_FUNCTION = ("FromFunctionOp", "JAXOp")
"""Operations of PyTensor's that hold a function of the user's."""

OURS = ("pytensor.", "pymc.", "pymc_extras.", "pymc_tempering.")


def graph_work(outputs: Sequence[Variable]) -> int:
    """Count the elements that a graph computes, and some for each of its operations."""
    return sum(_node_work(node) for node in applys_between([], outputs))


def _node_work(node: Apply) -> int:
    """Elements of one operation; a loop is as many times its inside as it has steps."""
    kind = type(getattr(node.op, "core_op", node.op))
    if not kind.__module__.startswith(OURS) or kind.__name__ in ANY_FUNCTION:
        return FOREIGN
    if isinstance(node.op, Scan):
        longest = max(map(_size, [*node.inputs, *node.outputs]), default=1)
        return longest * graph_work(node.op.inner_outputs)
    inner = getattr(node.op, "inner_outputs", None)
    if inner is not None:
        return graph_work(inner)
    known = [_size(out) for out in node.outputs]
    # An unknown length is taken to be that of the largest input.
    unknown = any(None in getattr(out.type, "shape", ()) for out in node.outputs)
    return PER_NODE + sum(known) + (max(map(_size, node.inputs), default=1) if unknown else 0)


def _size(variable: Variable) -> int:
    """Elements of a variable; unknown lengths count 1."""
    shape = getattr(variable.type, "shape", ())
    return prod(1 if length is None else length for length in shape)
