"""Sums, maxima and their kin over some axes of an array, by plain loops that compile at once.

PyTensor's own reductions order the loops by the strides that they meet. For that they sort a few
whole numbers, and Numba compiles its sorting anew in each process, for 4 to 9 seconds.
"""

from pathlib import Path
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import AND, OR, Add, Maximum, Minimum, Mul
from pytensor.tensor.elemwise import CAReduce

from pymc_tempering.borrowed.pytensor_graphs import (
    compile_numba_function_src,
    numba_njit,
    register_funcify_and_cache_key,
)
from pymc_tempering.model.sources import hash_of_sources

STEPS: dict[type, tuple[str, str, str]] = {
    Add: ("float64", "0.0", "{sum} + {x}"),
    Mul: ("float64", "1.0", "{sum} * {x}"),
    Maximum: ("float64", "-np.inf", "{x} if ({x} != {x}) | ({sum} < {x}) else {sum}"),
    Minimum: ("float64", "np.inf", "{x} if ({x} != {x}) | ({sum} > {x}) else {sum}"),
    AND: ("bool", "True", "{sum} & {x}"),
    OR: ("bool", "False", "{sum} | {x}"),
}
"""By operation: the only kind of numbers that it is written for, the start, and one step."""

MOST_AXES = 4


class ThinReduce(CAReduce):
    """Reduction of an array over some of its axes, but not all."""


def thin_reduction(node: Apply) -> list[Variable] | None:
    """Return the same reduction by plain loops, or None where it has no such form."""
    op, [x], [out] = node.op, node.inputs, node.outputs
    if isinstance(op, ThinReduce) or type(op.scalar_op) not in STEPS:
        return None
    dtype, *_ = STEPS[type(op.scalar_op)]
    summed = op.acc_dtype or out.type.dtype
    if {x.type.dtype, out.type.dtype, summed} != {dtype} or not 2 <= x.type.ndim <= MOST_AXES:
        return None
    axes = tuple(range(x.type.ndim)) if op.axis is None else tuple(sorted(op.axis))
    if not axes:
        return None
    if len(axes) < x.type.ndim:
        return [_reduced(op, x, axes)]
    # What is left has one axis, and PyTensor sorts nothing for it.
    rest = CAReduce(op.scalar_op, 0, op.dtype, op.acc_dtype)
    return [rest(_reduced(op, x, axes[1:]))]


def _reduced(op: CAReduce, x: Variable, axes: tuple[int, ...]) -> Variable:
    thin = ThinReduce(op.scalar_op, axes, op.dtype, op.acc_dtype)
    reduced: Variable = thin(x)
    return reduced


@register_funcify_and_cache_key(ThinReduce)
def _compile_reduce(op: ThinReduce, node: Apply, **options: Any) -> tuple[Any, str | None]:
    """Compiled reduction, and its key in the cache: another one after each edit of this file."""
    ndim, axes = node.inputs[0].type.ndim, op.axis
    source = _source(op.scalar_op, ndim, axes)
    function = compile_numba_function_src(source, "thin_reduce", global_env={"np": np})
    edition = hash_of_sources(Path(__file__))
    name = f"reduce_{type(op.scalar_op).__name__}_{ndim}_{'_'.join(map(str, axes))}"
    key = None if edition is None else f"pymc_tempering_{name}_{edition}"
    return numba_njit(function), key


def _source(scalar_op: Any, ndim: int, axes: tuple[int, ...]) -> str:
    """Text of the function: loops in the order of the axes, and of a matrix by its strides."""
    dtype, start, _ = STEPS[type(scalar_op)]
    kept = [axis for axis in range(ndim) if axis not in axes]
    shape = "".join(f"x.shape[{axis}], " for axis in kept)
    lines = ["def thin_reduce(x):", f"    out = np.empty(({shape}), dtype=np.{dtype})"]
    lines += ["    for i in range(out.size):", f"        out.flat[i] = {start}"]
    order = list(range(ndim))
    if ndim > 2:
        lines += _loops(scalar_op, order, axes, "    ")
    else:
        lines += ["    if abs(x.strides[0]) >= abs(x.strides[1]):"]
        lines += _loops(scalar_op, order, axes, "        ")
        lines += ["    else:", *_loops(scalar_op, order[::-1], axes, "        ")]
    return "\n".join([*lines, "    return out"])


def _loops(scalar_op: Any, order: list[int], axes: tuple[int, ...], indent: str) -> list[str]:
    """Lines of one nest; what the innermost loop reduces is held in a number meanwhile."""
    step = STEPS[type(scalar_op)][2]
    out = f"out[{', '.join(f'i{a}' for a in sorted(order) if a not in axes)}]"
    x = f"x[{', '.join(f'i{a}' for a in sorted(order))}]"
    lines = []
    for depth, axis in enumerate(order[:-1]):
        lines.append(f"{indent}{'    ' * depth}for i{axis} in range(x.shape[{axis}]):")
    last, inner = order[-1], indent + "    " * (len(order) - 1)
    loop = f"{inner}for i{last} in range(x.shape[{last}]):"
    one = [f"{inner}    number = {x}"]
    if last not in axes:
        return [*lines, loop, *one, f"{inner}    {out} = {step.format(sum=out, x='number')}"]
    held = f"{inner}    held = {step.format(sum='held', x='number')}"
    return [*lines, f"{inner}held = {out}", loop, *one, held, f"{inner}{out} = held"]
