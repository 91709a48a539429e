"""Compiled functions of PyTensor's graphs: one for each operation, kept on disk, and one for all.

PyTensor puts a function of its own around that of each operation, by which the disk cache knows
it. Numba takes as long for it as for a simple operation. Here the function of the operation itself
is kept under that key.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from pytensor import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from pymc_tempering.borrowed.numba_code import is_dispatcher, is_intrinsic
from pymc_tempering.borrowed.pytensor_graphs import (
    compile_numba_function_src,
    fgraph_to_python,
    key_of_constant,
    numba_funcify_and_cache_key,
    numba_njit,
    numba_typify,
)
from pymc_tempering.model.jit import keyed_operation
from pymc_tempering.model.thin_operations import thin_operation

CONSTANT = -1
"""Stands for the place of a constant in a key."""


def compile_graph(graph: AbstractFunctionGraph, **options: Any) -> tuple[Any, str | None]:
    """Make the function of a graph, to be compiled by Numba.

    Parameters
    ----------
    graph : FunctionGraph
    **options
        Of `pytensor.link.utils.fgraph_to_python`.

    Returns
    -------
    callable
        From the inputs of the graph to a tuple of its outputs.
    str or None
        What identifies it in the cache; None where an operation cannot be identified.
    """
    places: dict[Variable, tuple[int, int | str]] = {v: (0, i) for i, v in enumerate(graph.inputs)}
    for i, node in enumerate(graph.toposort(), start=1):
        places |= {variable: (i, j) for j, variable in enumerate(node.outputs)}
    keys: list[tuple[Any, str | None]] = []

    def operation(op: Any, *, node: Apply, **given: Any) -> Callable:
        function, key = compile_operation(node, **given)
        keys.append((tuple(places[variable] for variable in node.inputs), key))
        return function

    def number(value: Any, variable: Variable, **given: Any) -> Any:
        if isinstance(variable, Constant):
            places[variable] = (CONSTANT, key_of_constant(value))
        return numba_typify(value, variable=variable, **given)

    function = fgraph_to_python(
        graph,
        op_conversion_fn=operation,
        type_conversion_fn=number,
        fgraph_name="graph",
        ofg_memo={},
        **options,
    )
    if any(key is None for _, key in keys):
        return numba_njit(function), None
    ends = tuple(places[variable] for variable in graph.outputs)
    text = f"{type(graph)}, {keys}, {len(graph.inputs)}, {ends}, {config.numba__fastmath}"
    return numba_njit(function), f"graph_{sha256(text.encode()).hexdigest()}"


def compile_operation(node: Apply, **options: Any) -> tuple[Callable, str | None]:
    """Make the function of an operation, and its key in the cache if it has one."""
    thin = thin_operation(node)
    function, key = thin or numba_funcify_and_cache_key(node.op, node=node, **options)
    if key is None or is_intrinsic(function):
        return function, key
    key = f"operation_{key}_fastmath{int(config.numba__fastmath)}"  # the function was made by it
    if not is_dispatcher(function):  # of a kind that Numba writes anew at each call
        source = f"def {function.__name__}(*args): return function(*args)"
        environment = {"function": function}
        function = numba_njit(
            compile_numba_function_src(source, function.__name__, global_env=environment)
        )
    return keyed_operation(function, key), key
