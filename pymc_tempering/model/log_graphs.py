"""Logarithms of products and powers of exponentials, written without the exponentials."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.rewriting.basic import in2out, node_rewriter
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
        case ps.Sub() if _is_zero(inputs[1]):
            log, factor = log_of(inputs[0]), 1.0
        case ps.Reciprocal() | ps.Sqrt() | ps.Sqr() | ps.Cast() | ps.Abs() | ps.Identity():
            log, factor = log_of(inputs[0]), _FACTORS.get(type(op.scalar_op), 1.0)
        case _:
            return None
    return None if log is None else factor * log


_FACTORS: dict[type, float] = {ps.Reciprocal: -1.0, ps.Sqrt: 0.5, ps.Sqr: 2.0}
"""What these operations multiply a log by."""


def _is_zero(variable: Variable) -> bool:
    """Whether a variable is the constant 0, of any shape."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return isinstance(variable, Constant) and not np.any(variable.data)


def _is(variable: Variable, *kinds: type) -> bool:
    return (
        variable.owner is not None
        and isinstance(variable.owner.op, Elemwise)
        and isinstance(variable.owner.op.scalar_op, kinds)
    )


@node_rewriter([Elemwise])
def _follow(fgraph, node):  # type: ignore[no-untyped-def]
    """Write comparisons with 0, powers and log1p of exponentials so that none of them overflows."""
    out, inputs = node.outputs[0], node.inputs
    if isinstance(inputs[0], Constant) or not _is(out, ps.GT, ps.Pow, ps.Log1p):
        return None
    log = log_without_exp(inputs[0])
    if log is None or (_is(out, ps.GT) and not _is_zero(inputs[1])):
        return None
    if _is(out, ps.GT):
        new = pt.gt(log, -np.inf)
    elif _is(out, ps.Log1p):
        new = pt.softplus(log)
    else:
        new = pt.exp(inputs[1] * log)
    new = new.astype(out.type.dtype)
    return [new] if new.type.broadcastable == out.type.broadcastable else None


follow_exponentials = in2out(_follow, name="follow_exponentials")
"""Rewriting of densities that stay finite where exp(x) overflows, or underflows to 0."""
