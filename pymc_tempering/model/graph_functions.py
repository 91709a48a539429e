"""Compiled functions of PyTensor's graphs: one for each operation, kept on disk, and one for all.

PyTensor puts a function of its own around that of each operation, by which the disk cache knows
it. Numba takes as long for it as for a simple operation. Here the function of the operation itself
is kept under that key. A graph is written as lines of text, a call a line, so that whoever needs
its numbers can have them in a function of its own: Numba takes no call with more than 30 arguments
for a function that is written out where it is called, and long for any with hundreds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pytensor import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph

from pymc_tempering.borrowed.numba_code import is_dispatcher, is_intrinsic
from pymc_tempering.borrowed.pytensor_graphs import (
    compile_numba_function_src,
    key_of_constant,
    numba_funcify_and_cache_key,
    numba_njit,
    numba_typify,
)
from pymc_tempering.model.jit import keyed_operation
from pymc_tempering.model.thin_operations import thin_operation

FEW = 25
"""Arguments that a call may have in a plain form."""


@dataclass(frozen=True)
class GraphText:
    """A graph as lines of a function's text.

    Attributes
    ----------
    inputs, outputs : tuple of str
        Names of the variables that the lines start from, and of those that are wanted.
    lines : tuple of str
        A call of an operation's function each.
    environment : dict of str to object
        What the other names in the lines mean.
    key : str or None
        What identifies all of it in the cache; None where an operation cannot be identified.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lines: tuple[str, ...]
    environment: dict[str, Any]
    key: str | None


def write_graph(graph: AbstractFunctionGraph, prefix: str = "") -> GraphText:
    """Write a graph as lines of text.

    Parameters
    ----------
    graph : FunctionGraph
    prefix : str, optional
        What all names begin with, where the lines of several graphs stand in one function.
    """
    names: dict[Variable, str] = {v: f"{prefix}input{i}" for i, v in enumerate(graph.inputs)}
    environment: dict[str, Any] = {}
    meanings: list[str | None] = []
    functions: dict[tuple[str, int], str] = {}

    def name_of(variable: Variable) -> str:
        if variable not in names:
            assert isinstance(variable, Constant)
            names[variable] = name = f"{prefix}constant{len(environment)}"
            environment[name] = numba_typify(variable.data, variable=variable)
            meanings.append(f"{name} is {key_of_constant(variable.data)}")
        return names[variable]

    def function_of(node: Apply) -> str:
        function, key = compile_operation(node)
        known = None if key is None else (key, len(node.inputs))  # it may not tell their number
        if known in functions:
            return functions[known]
        name = f"{prefix}call{len(environment)}"
        environment[name] = function
        meanings.append(None if key is None else f"{name} is {key}")
        if known is not None:
            functions[known] = name
        return name

    lines = []
    for i, node in enumerate(graph.toposort()):
        given = [name_of(variable) for variable in node.inputs]
        names |= {out: f"{prefix}value{i}_{j}" for j, out in enumerate(node.outputs)}
        made = ", ".join(names[out] for out in node.outputs)
        lines.append(f"{made} = {function_of(node)}({_arguments(given)})")
    ends = tuple(map(name_of, graph.outputs))
    text = f"{type(graph)}, {meanings}, {len(graph.inputs)}, {ends}, {lines}"
    text += f", {config.numba__fastmath}"
    key = None if None in meanings else f"graph_{sha256(text.encode()).hexdigest()}"
    return GraphText(tuple(names[v] for v in graph.inputs), ends, tuple(lines), environment, key)


def _arguments(names: Sequence[str]) -> str:
    """Arguments of a call; of very many the parts of a tuple.

    Python makes a tuple of more than 30 by adding one after the other, and Numba compiles each of
    these steps as a copy of all that are there.
    """
    if len(names) <= FEW:
        return ", ".join(names)
    parts = [names[i : i + FEW] for i in range(0, len(names), FEW)]
    return f"*({' + '.join(f'({", ".join(part)},)' for part in parts)})"


def compile_graph(graph: AbstractFunctionGraph) -> tuple[Any, str | None]:
    """Make the function of a graph, to be compiled by Numba.

    Returns
    -------
    callable
        From the inputs of the graph to a tuple of its outputs.
    str or None
        What identifies it in the cache; None where an operation cannot be identified.
    """
    written = write_graph(graph)
    lines = [*written.lines, f"return ({''.join(f'{name}, ' for name in written.outputs)})"]
    source = "\n    ".join([f"def graph({', '.join(written.inputs)}):", *lines])
    function = compile_numba_function_src(source, "graph", global_env=written.environment)
    return numba_njit(function), written.key


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
