"""Graphs of PyTensor as functions of Numba's, with the arrays of their data as arguments.

So other data of the same shapes find the same compiled code.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.compile import Function
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph

from pymc_tempering.borrowed.private import function_and_key, function_of_text
from pymc_tempering.model.exactly import ALONE, exactly
from pymc_tempering.model.garbage import no_search_for_garbage
from pymc_tempering.model.numba_mode import compile_exactly

MIN_SIZE = {"f": 2, "i": 8, "u": 8, "b": 8}
"""Numbers in the smallest array that leaves the graph, by kind; a few whole ones may be a shape."""


@dataclass(frozen=True)
class OpenGraph:
    """A rewritten graph.

    Attributes
    ----------
    whole : pytensor.compile.Function
        PyTensor's own function of it.
    function : Numba's dispatcher or None
        ``function(*inputs, *arrays)`` for compiled code; None where only `whole` will do: where
        Python evaluates some operation, or a part of PyTensor is gone.
    arrays : list of array
        Its data.
    key : str or None
        What tells it from other graphs on disk; None where it cannot be kept.
    """

    whole: Function
    function: Any = None
    arrays: Sequence[np.ndarray] = ()
    key: str | None = None


def open_graph(inputs: Sequence[Any], outputs: Sequence[Variable]) -> OpenGraph:
    """Rewrite a graph by PyTensor, take its arrays out, and make Numba's function of it."""
    with ALONE, exactly(), no_search_for_garbage():
        whole = compile_exactly(inputs, outputs, mode="NUMBA", on_unused_input="ignore")
        if function_and_key is None or function_of_text is None:
            return OpenGraph(whole)
        graph, arrays = _arrays_out(whole, len(inputs))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            function, key = function_and_key(graph)
        if any("object mode" in str(warning.message) for warning in said):
            return OpenGraph(whole)
    return OpenGraph(whole, function, arrays, key)


def _arrays_out(whole: Function, n_inputs: int) -> tuple[FunctionGraph, list[np.ndarray]]:
    """Copy a graph, with inputs in the places of its arrays, and return those arrays.

    Shared variables are such inputs already.
    """
    graph = whole.maker.fgraph
    shared = [np.asarray(each.value) for each in whole.input_storage[n_inputs:]]
    copy, _ = graph.clone_get_equiv(check_integrity=False, attach_feature=True)
    arrays = []
    for constant in _large_constants(copy):
        array = np.asarray(constant.data)
        is_plain = array.flags.c_contiguous or array.flags.f_contiguous
        arrays.append(array if is_plain else np.ascontiguousarray(array))
        variable = constant.type()
        copy.add_input(variable)
        copy.replace(constant, variable)
    return copy, shared + arrays


def _large_constants(graph: FunctionGraph) -> list[Constant]:
    """Constants of a graph that are plain arrays of some size, in the order of their first use."""
    used = [variable for node in graph.toposort() for variable in node.inputs] + graph.outputs
    found = {
        id(variable): variable
        for variable in used
        if isinstance(variable, Constant)
        and isinstance(variable.data, np.ndarray)
        and variable.data.size >= MIN_SIZE.get(variable.data.dtype.kind, np.inf)
    }
    return list(found.values())


@dataclass(frozen=True)
class Packed:
    """Arrays of some graphs as one record, and how a function unpacks it.

    Attributes
    ----------
    kind : dtype
        Of the record.
    data : array of uint8
    given : dict of str
        What follows the inputs in a call of each graph, in a text that has the record as `record`.
    """

    kind: np.dtype
    data: np.ndarray
    given: dict[str, str]

    @classmethod
    def of(cls, graphs: Mapping[str, OpenGraph]) -> "Packed":
        """Pack the arrays of graphs, which have names."""
        named = {f"{n}_{i}": a for n, graph in graphs.items() for i, a in enumerate(graph.arrays)}
        plain = {name: _plain(array) for name, array in named.items()}
        fields = [(name, array.dtype, array.shape) for name, array in plain.items()]
        kind = np.dtype(fields or [("none", "u1", (8,))], align=True)
        data = np.zeros(1, kind)
        for name, array in plain.items():
            data[name] = array
        views = {name: f", {_view(name, array)}" for name, array in named.items()}
        given = {
            n: "".join(views[f"{n}_{i}"] for i in range(len(graph.arrays)))
            for n, graph in graphs.items()
        }
        return cls(kind, data.view(np.uint8), given)


def _plain(array: np.ndarray) -> np.ndarray:
    """Array as the record has it: in C order, truth values as bytes."""
    turned = array if array.flags.c_contiguous else array.T
    return turned.view(np.uint8) if array.dtype == bool else turned


def _view(name: str, array: np.ndarray) -> str:
    """Text of the array that a field of the record stands for."""
    if array.ndim == 0:
        return f"np.asarray(record.{name})"
    kind = ".view(np.bool_)" if array.dtype == bool else ""
    return f"record.{name}[:]{kind}{'' if array.flags.c_contiguous else '.T'}"
