"""Logarithms of products and powers of exponentials, written without the exponentials."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as ps_math
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.tensor.basic import Alloc, get_underlying_scalar_constant_value
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

PICKING = DimShuffle | Subtensor | AdvancedSubtensor
"""Operations that pick or repeat elements, and compute nothing."""


def log_of_positive(variable: Variable) -> Variable:
    """Graph of the log of a variable that is known to be positive.

    The log of exp(x) is x, however far x is out, also inside products, quotients, powers and
    selections. Whatever else these hold enters with its own log.
    """
    found = log_without_exp(variable)
    if found is not None:
        return found
    parts = _log_of_parts(variable, log_of_positive)
    return pt.log(pt.abs(variable.astype("float64"))) if parts is None else parts


def log_without_exp(variable: Variable) -> Variable | None:
    """Graph of the log of a variable made of exponentials and positive constants, else None."""
    if isinstance(variable, Constant):
        data = np.asarray(variable.data)
        is_positive = data.dtype.kind in "fiu" and bool((data > 0).all())
        return pt.constant(np.log(data.astype("float64"))) if is_positive else None
    return _log_of_parts(variable, log_without_exp)


def _log_of_parts(variable: Variable, log_of) -> Variable | None:  # type: ignore[no-untyped-def]
    """Log of a variable by the logs of its parts; None if it has none, or one has no log."""
    if variable.owner is None or not variable.type.dtype.startswith("float"):
        return None
    op, inputs = variable.owner.op, variable.owner.inputs
    if isinstance(op, PICKING):
        log = log_of(inputs[0])
        return None if log is None else op(log, *inputs[1:])
    if not isinstance(op, Elemwise):
        return None
    match op.scalar_op:
        case ps.Exp():
            return inputs[0].astype("float64")
        case ps.Mul() | ps.TrueDiv():
            logs = [log_of(part) for part in inputs]
            if any(log is None for log in logs):
                return None
            return pt.add(*logs) if isinstance(op.scalar_op, ps.Mul) else logs[0] - logs[1]
        case ps.Pow():
            log, factor = log_of(inputs[0]), inputs[1]
        case ps.Sign():
            log = log_of(inputs[0])
            return None if log is None else pt.zeros_like(log)
        case ps.Sub() if is_everywhere(inputs[1], 0.0):
            log, factor = log_of(inputs[0]), 1.0
        case ps.Reciprocal() | ps.Sqrt() | ps.Sqr() | ps.Cast() | ps.Abs() | ps.Identity():
            log, factor = log_of(inputs[0]), _FACTORS.get(type(op.scalar_op), 1.0)
        case _:
            return None
    return None if log is None else factor * log


_FACTORS: dict[type, float] = {ps.Reciprocal: -1.0, ps.Sqrt: 0.5, ps.Sqr: 2.0}
"""What these operations multiply a log by."""


def is_everywhere(variable: Variable, number: float) -> bool:
    """Whether a variable has this number everywhere, whatever its shape."""
    return bool(get_underlying_scalar_constant_value(variable, raise_not_constant=False) == number)


def computes(variable: Variable, *kinds: type) -> bool:
    """Whether a variable is made, element by element, by a scalar operation of these kinds."""
    op = None if variable.owner is None else variable.owner.op
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, kinds)


@node_rewriter([Elemwise])
def _follow(fgraph, node):  # type: ignore[no-untyped-def]
    """Write what is made of exponentials by its log, which does not overflow."""
    out, first = node.outputs[0], node.inputs[0]
    if all(isinstance(v, Constant) for v in node.inputs):
        return None
    match node.op.scalar_op:
        case ps.Log():
            new = _log_of_sum(first)
        case ps.Log1p() if computes(first, ps.Neg):
            [inner] = first.owner.inputs  # the gradient of log1p(-sigmoid) would be 0 / 0
            new = -pt.softplus(inner.owner.inputs[0]) if computes(inner, ps_math.Sigmoid) else None
        case ps.Log1p():
            new = None if (log := log_without_exp(first)) is None else pt.softplus(log)
        case ps.GT() if is_everywhere(node.inputs[1], 0.0):
            new = None if (log := log_without_exp(first)) is None else pt.gt(log, -np.inf)
        case ps.Mul() | ps.TrueDiv() | ps.Pow() | ps.Sqr() | ps.Reciprocal():
            new = None if (log := log_without_exp(out)) is None else pt.exp(log)
        case _:
            return None
    return None if new is None else in_place_of(out, new)


def _log_of_sum(variable: Variable) -> Variable | None:
    """Log of a variable that has one, or that is a sum of two parts that have."""
    log = log_without_exp(variable)
    if log is not None or not computes(variable, ps.Add) or len(variable.owner.inputs) != 2:
        return log
    first, second = map(log_without_exp, variable.owner.inputs)
    return None if first is None or second is None else first + pt.softplus(second - first)


@node_rewriter([pt.add])
def _cancel(fgraph, node):  # type: ignore[no-untyped-def]
    """Take u and -u out of a sum, also where -u stands in a branch beside -inf, or behind a check.

    The log density of exp(u) has -u, the Jacobian u. Where u is 1e20, what they are added to is
    lost.
    """
    terms = node.inputs
    for i, j in permutations(range(len(terms)), 2):
        if (without := _without(terms[j], _plain(terms[i]))) is not None:
            rest = [without if k == j else term for k, term in enumerate(terms) if k != i]
            return in_place_of(node.outputs[0], pt.add(*rest))
    return None


def in_place_of(out: Variable, new: Variable) -> list[Variable] | None:
    """Return what a rewriting puts in the place of a variable; None if its shape is another."""
    new = new.astype(out.type.dtype)
    return [new] if new.type.broadcastable == out.type.broadcastable else None


def _plain(variable: Variable) -> Variable:
    """Variable behind operations that only give it another name."""
    while computes(variable, ps.Identity):
        variable = variable.owner.inputs[0]
    return variable


def _without(tree: Variable, term: Variable) -> Variable | None:
    """Graph of tree + term, if tree is a sum that -term is a part of; else None."""
    if computes(tree, ps.Neg) and _plain(tree.owner.inputs[0]) is term:
        return pt.zeros_like(tree)
    if computes(tree, ps.Sub) and _plain(tree.owner.inputs[1]) is term:
        return pt.add(tree.owner.inputs[0], pt.zeros_like(term))
    if tree.owner is None or not (
        isinstance(tree.owner.op, CheckParameterValue | Alloc)
        or computes(tree, ps.Add, ps.Sub, ps.Switch, ps.Identity)
    ):
        return None
    for place in _summed(tree):
        part = _without(tree.owner.inputs[place], term)
        if part is not None:
            inputs = list(tree.owner.inputs)
            inputs[place] = part
            return tree.owner.op(*inputs)
    return None


def _summed(tree: Variable) -> Sequence[int]:
    """Which inputs of an operation are added up in it."""
    inputs = tree.owner.inputs
    if computes(tree, ps.Add):
        return range(len(inputs))
    if computes(tree, ps.Switch):
        branches = [i for i in (1, 2) if not is_everywhere(inputs[i], -np.inf)]
        return branches if len(branches) == 1 else []
    return [0]


follow_exponentials = in2out(_follow, _cancel, name="follow_exponentials")
"""Rewriting of densities that stay finite where exp(x) overflows, or underflows to 0."""
