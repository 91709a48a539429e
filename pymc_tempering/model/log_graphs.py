"""Logarithms of products and powers of exponentials, written without the exponentials."""

from collections.abc import Sequence

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as ps_math
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.tensor.basic import Alloc
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
        case ps.Sub() if _is_all(inputs[1], 0.0):
            log, factor = log_of(inputs[0]), 1.0
        case ps.Reciprocal() | ps.Sqrt() | ps.Sqr() | ps.Cast() | ps.Abs() | ps.Identity():
            log, factor = log_of(inputs[0]), _FACTORS.get(type(op.scalar_op), 1.0)
        case _:
            return None
    return None if log is None else factor * log


_FACTORS: dict[type, float] = {ps.Reciprocal: -1.0, ps.Sqrt: 0.5, ps.Sqr: 2.0}
"""What these operations multiply a log by."""


def _is_all(variable: Variable, number: float) -> bool:
    """Whether a variable is a constant with this number everywhere, of any shape."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return isinstance(variable, Constant) and bool(np.all(variable.data == number))


def _is(variable: Variable, *kinds: type) -> bool:
    return (
        variable.owner is not None
        and isinstance(variable.owner.op, Elemwise)
        and isinstance(variable.owner.op.scalar_op, kinds)
    )


@node_rewriter([Elemwise])
def _follow(fgraph, node):  # type: ignore[no-untyped-def]
    """Write what is made of exponentials by its log, which does not overflow."""
    out, inputs = node.outputs[0], node.inputs
    if _is_constant(inputs):
        return None
    new = None
    if _is(out, ps.GT) and _is_all(inputs[1], 0.0):
        log = log_without_exp(inputs[0])
        new = None if log is None else pt.gt(log, -np.inf)
    elif _is(out, ps.Log):
        new = log_without_exp(inputs[0])
        new = _log_of_sum(inputs[0]) if new is None else new
    elif _is(out, ps.Log1p) and _is(inputs[0], ps.Neg):
        [inner] = inputs[0].owner.inputs  # the gradient of log1p(-sigmoid) would be 0 / 0
        new = -pt.softplus(inner.owner.inputs[0]) if _is(inner, ps_math.Sigmoid) else None
    elif _is(out, ps.Log1p):
        log = log_without_exp(inputs[0])
        new = None if log is None else pt.softplus(log)
    elif _is(out, ps.Mul, ps.TrueDiv, ps.Pow, ps.Sqr, ps.Reciprocal):
        log = log_without_exp(out)
        new = None if log is None else pt.exp(log)
    if new is None:
        return None
    new = new.astype(out.type.dtype)
    return [new] if new.type.broadcastable == out.type.broadcastable else None


def _is_constant(variables: list[Variable]) -> bool:
    return all(isinstance(v, Constant) for v in variables)


def _log_of_sum(variable: Variable) -> Variable | None:
    """Log of a sum of two parts that have logs."""
    if not _is(variable, ps.Add) or len(variable.owner.inputs) != 2:
        return None
    first, second = (log_without_exp(part) for part in variable.owner.inputs)
    if first is None or second is None:
        return None
    return first + pt.softplus(second - first)


@node_rewriter([Elemwise])
def _cancel(fgraph, node):  # type: ignore[no-untyped-def]
    """Take u and -u out of a sum, also where -u stands in a branch beside -inf, or behind a check.

    The log density of exp(u) has -u, the Jacobian u. Where u is 1e20, what they are added to is
    lost.
    """
    if not _is(node.outputs[0], ps.Add):
        return None
    for i, term in enumerate(node.inputs):
        rest = [part for j, part in enumerate(node.inputs) if j != i]
        for j, part in enumerate(rest):
            without = _without(part, _plain(term))
            if without is not None:
                rest[j] = without
                new = pt.add(*rest) if len(rest) > 1 else without
                same = new.type.broadcastable == node.outputs[0].type.broadcastable
                return [new.astype(node.outputs[0].type.dtype)] if same else None
    return None


def _plain(variable: Variable) -> Variable:
    """Variable behind operations that only give it another name."""
    while _is(variable, ps.Identity):
        variable = variable.owner.inputs[0]
    return variable


def _without(tree: Variable, term: Variable) -> Variable | None:
    """Graph of tree + term, if tree is a sum that -term is a part of; else None."""
    if _is(tree, ps.Neg) and _plain(tree.owner.inputs[0]) is term:
        return pt.zeros_like(tree)
    if _is(tree, ps.Sub) and _plain(tree.owner.inputs[1]) is term:
        return pt.add(tree.owner.inputs[0], pt.zeros_like(term))
    if tree.owner is None or not (
        isinstance(tree.owner.op, CheckParameterValue | Alloc)
        or _is(tree, ps.Add, ps.Sub, ps.Switch, ps.Identity)
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
    if _is(tree, ps.Add):
        return range(len(inputs))
    if _is(tree, ps.Switch):
        branches = [i for i in (1, 2) if not _is_all(inputs[i], -np.inf)]
        return branches if len(branches) == 1 else []
    return [0]


follow_exponentials = in2out(_follow, _cancel, name="follow_exponentials")
"""Rewriting of densities that stay finite where exp(x) overflows, or underflows to 0."""
