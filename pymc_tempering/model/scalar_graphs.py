"""Composites of scalar operations as one compiled function of one text.

PyTensor compiles a function for each operation of a composite, a function around each of these,
and one that calls them all. Most are one call of NumPy, or one operator.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar import basic as scalar
from pytensor.scalar.basic import Composite, ScalarOp

from pymc_tempering.borrowed.pytensor_graphs import (
    compile_numba_function_src,
    key_of_constant,
    numba_funcify_and_cache_key,
    numba_njit,
    numba_typify,
    register_funcify_and_cache_key,
)
from pymc_tempering.model.graph_functions import compile_operation

PLAIN = {"bool", "int64", "float64"}
"""Kinds of numbers whose results Numba has in the same kind as PyTensor."""

SIGNS = {scalar.Add: " + ", scalar.Mul: " * "}
CHOICES = {scalar.Identity: "{0}", scalar.Second: "{1}", scalar.Switch: "{1} if {0} else {2}"}
"""Operations that are no call, with the text that PyTensor has for them too."""


class ThinComposite(Composite):
    """A composite that is compiled as one function."""


def thin_composite(op: Any) -> ThinComposite | None:
    """Return the thin form of a scalar operation, if it is a composite that can have one."""
    if type(op) is not Composite:
        return None
    outputs = op.fgraph.outputs
    return ThinComposite(op.inputs, op.outputs) if _are_plain(outputs) else None


@register_funcify_and_cache_key(ThinComposite)
def _compile_composite(op: ThinComposite, node: Apply, **options: Any) -> tuple[Any, str | None]:
    """Compiled composite, and its key in the cache."""
    names: dict[Variable, str] = {x: f"x{i}" for i, x in enumerate(op.fgraph.inputs)}
    environment: dict[str, Any] = {"np": np}
    parts: list[str | None] = []

    def name_of(variable: Variable) -> str:
        if variable not in names:  # a constant
            assert isinstance(variable, Constant)
            names[variable] = f"c{len(names)}"
            environment[names[variable]] = numba_typify(variable.data, variable=variable)
            parts.append(f"{names[variable]} is {key_of_constant(variable.data)}")
        return names[variable]

    lines = [f"def composite({', '.join(names.values())}):"]
    for i, inner in enumerate(op.fgraph.toposort()):
        given = [name_of(variable) for variable in inner.inputs]
        text = _text(inner, given)
        if text is None:
            function, key = compile_operation(inner, **options)
            environment[f"call{i}"] = function
            parts.append(None if key is None else f"call{i} is {key}")
            text = f"call{i}({', '.join(given)})"
        for j, variable in enumerate(inner.outputs):
            names[variable] = f"v{i}_{j}"
        lines.append(f"    {', '.join(names[variable] for variable in inner.outputs)} = {text}")
    ends = ", ".join(map(name_of, op.fgraph.outputs))
    lines.append(f"    return {ends if len(op.fgraph.outputs) == 1 else f'({ends})'}")
    source = "\n".join(lines)
    function = numba_njit(compile_numba_function_src(source, "composite", global_env=environment))
    if None in parts:
        return function, None
    text = f"{source}\n{parts}"
    return function, f"composite_{sha256(text.encode()).hexdigest()}"


def _text(node: Apply, given: Sequence[str]) -> str | None:
    """Text of an operation, as PyTensor compiles it; None where that is more than a line."""
    kind = type(node.op)
    if not _are_plain(node.outputs):
        return None
    if kind in SIGNS:
        return SIGNS[kind].join(given)
    if kind in CHOICES:
        return CHOICES[kind].format(*given)
    return f"np.{name}({', '.join(given)})" if (name := _name_in_numpy(node.op)) else None


def _name_in_numpy(op: ScalarOp) -> str | None:
    """Name of the function of NumPy that PyTensor compiles an operation to, if it is one."""
    chosen: Callable = numba_funcify_and_cache_key.dispatch(type(op))
    spec = getattr(op, "nfunc_spec", None)
    if chosen is not numba_funcify_and_cache_key.dispatch(ScalarOp) or not spec:
        return None
    return str(spec[0]) if "." not in spec[0] else None


def _are_plain(variables: Sequence[Variable]) -> bool:
    return {variable.type.dtype for variable in variables} <= PLAIN
