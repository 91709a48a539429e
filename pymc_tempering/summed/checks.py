"""Terms made fit to be taken at all values of the variables that are summed over.

PyMC gives a term the value minus infinity where any of its parameters is invalid. Where parameters
depend on variables that are summed over, that has to hold for each value of these. And where a
value makes a term impossible, its gradient has to be zero, and not a number.
"""

from collections.abc import Collection, Sequence

import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, applys_between
from pytensor.scalar.basic import Mul
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All
from pytensor.tensor.type import float_dtypes

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


def guard_zeros(
    terms: Sequence[Variable], unknowns: Collection[Variable], among: Collection[Variable]
) -> list[Variable]:
    """Let nothing flow back through a product with an unknown that is zero.

    The log of `z * p` is minus infinity at z = 0, and its derivative infinite there. Times zero it
    would be no number, which no weight of zero can mend.

    Parameters
    ----------
    terms : sequence of Variable
    unknowns : collection of Variable
        What is summed over.
    among : collection of Variable
        All random variables.
    """
    guarded = {}
    for node in applys_between(unknowns, terms):
        if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul)):
            continue
        if node.outputs[0].dtype not in float_dtypes:  # it has no gradient
            continue
        seen = [set(ancestors([v], blockers=among)) & set(among) for v in node.inputs]
        own = [v for v, rvs in zip(node.inputs, seen, strict=True) if rvs and rvs <= set(unknowns)]
        if own and any(rvs - set(unknowns) for rvs in seen):
            product = node.op(*node.inputs)
            guarded[node.outputs[0]] = pt.switch(pt.eq(pt.mul(*own), 0), 0.0, product)
    return list(graph_replace(list(terms), guarded, strict=False))


def _conditions(check: Variable) -> list[Variable]:
    """Elementwise conditions that a check asks all of."""
    node = check.owner
    if node is None or not isinstance(node.op, THROUGH):
        return [check]
    inputs = node.inputs[1:] if isinstance(node.op, Join) else node.inputs
    return [part for v in inputs for part in _conditions(v)]
