"""Terms made fit to be taken at all values of the variables that are summed over.

PyMC gives a term the value minus infinity where any of its parameters is invalid. Where parameters
depend on variables that are summed over, that has to hold for each value of these. And where a
value makes a term impossible, its gradient has to be zero, and not a number.
"""

from collections.abc import Callable, Collection, Sequence

import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import Mul
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import All
from pytensor.tensor.type import float_dtypes

THROUGH = (All, MakeVector, Join, ScalarFromTensor, TensorFromScalar)


def open_checks(terms: Sequence[Variable], unknowns: Collection[Variable]) -> list[Variable]:
    """Replace checks that depend on unknowns by values of minus infinity, element by element.

    Conditions on other things, as the weights of a mixture, need not have the shape of the value.
    """

    def opened(node: Apply) -> Variable | None:
        if not isinstance(node.op, CheckParameterValue):
            return None
        value = node.inputs[0]
        for condition in _conditions(node.inputs[1]):
            extra = tuple(range(min(0, value.type.ndim - condition.type.ndim), 0))
            if not set(unknowns) & set(ancestors([condition], blockers=unknowns)):
                valid = condition.all()
            else:
                valid = condition.all(axis=extra) if extra else condition
            value = pt.switch(valid, value, -float("inf"))
        return value

    return rewritten(terms, unknowns, opened)


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
        Plain variables of all unknowns of the model.
    """

    def guarded(node: Apply) -> Variable | None:
        if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Mul)):
            return None
        if node.outputs[0].dtype not in float_dtypes:  # it has no gradient
            return None
        seen = [set(ancestors([v], blockers=among)) & set(among) for v in node.inputs]
        own = [v for v, vs in zip(node.inputs, seen, strict=True) if vs and vs <= set(unknowns)]
        if not own or not any(vs - set(unknowns) for vs in seen):
            return None
        return pt.switch(pt.eq(pt.mul(*own), 0), 0.0, node.outputs[0])

    return rewritten(terms, unknowns, guarded)


def rewritten(
    terms: Sequence[Variable],
    unknowns: Collection[Variable],
    change: Callable[[Apply], Variable | None],
) -> list[Variable]:
    """Rewrite what lies between unknowns and terms, from the unknowns on.

    Parameters
    ----------
    terms : sequence of Variable
    unknowns : collection of Variable
    change : callable
        Of a node with rewritten inputs and one output, what takes the place of that; None if it
        stays.
    """
    new: dict[Variable, Variable] = {}
    for node in io_toposort(unknowns, terms):
        inputs = [new.get(v, v) for v in node.inputs]
        fresh = node if inputs == node.inputs else node.clone_with_new_inputs(inputs, strict=False)
        found = change(fresh) if len(fresh.outputs) == 1 else None
        new |= zip(node.outputs, fresh.outputs if found is None else [found], strict=True)
    return [new.get(term, term) for term in terms]


def _conditions(check: Variable) -> list[Variable]:
    """Elementwise conditions that a check asks all of."""
    node = check.owner
    if node is None or not isinstance(node.op, THROUGH):
        return [check]
    return [part for v in node.inputs for part in _conditions(v)]
