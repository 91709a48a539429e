"""Checks of parameters that hold for each element alone, and not for a term as a whole.

PyMC gives a term the value minus infinity where any of its parameters is invalid. Where parameters
depend on variables that are summed over, that has to hold for each value of these.
"""

from collections.abc import Collection, Sequence

import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import applys_between
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.math import All

THROUGH = (All, MakeVector, Join, ScalarFromTensor, TensorFromScalar)


def open_checks(terms: Sequence[Variable], unknowns: Collection[Variable]) -> list[Variable]:
    """Replace checks that depend on unknowns by values of minus infinity, element by element."""
    replaced = list(terms)
    while True:
        nodes = applys_between(unknowns, replaced)
        checks = [n for n in nodes if isinstance(n.op, CheckParameterValue)]
        if not checks:
            return replaced
        node = checks[0]
        value = node.inputs[0]
        opened = value
        for condition in _conditions(node.inputs[1]):
            extra = tuple(range(min(0, value.type.ndim - condition.type.ndim), 0))
            opened = pt.switch(
                condition.all(axis=extra) if extra else condition, opened, -float("inf")
            )
        replaced = graph_replace(replaced, {node.outputs[0]: opened}, strict=False)


def _conditions(check: Variable) -> list[Variable]:
    """Elementwise conditions that a check asks all of."""
    node = check.owner
    if node is None or not isinstance(node.op, THROUGH):
        return [check]
    inputs = node.inputs[1:] if isinstance(node.op, Join) else node.inputs
    return [part for v in inputs for part in _conditions(v)]
