"""From compiled PyTensor graphs to functions of the types that the chain loop calls."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numba import types, uint8
from pytensor import config
from pytensor.compile import Function

from pymc_tempering.model.array_views import number, piece, put
from pymc_tempering.model.bound_density import OPEN_SIGNATURE, BoundDensity
from pymc_tempering.model.compiled import MATRIX, compile_source
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.exactly import exactly
from pymc_tempering.model.generators import TABLE, generator_at, rows_of
from pymc_tempering.model.graph_functions import write_graph
from pymc_tempering.model.packed_data import ENVIRONMENT, Packing
from pymc_tempering.model.sources import hash_text

_COMPILED: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""By the key of the graphs and of the source that calls them, as long as somebody has it."""


class GraphLines(NamedTuple):
    """GraphLines of a function's text, with the names that they begin from and lead to."""

    inputs: Sequence[str] = ()
    body: Sequence[str] = ()
    outputs: Sequence[str] = ()


def _adapt(
    graphs: Mapping[str, Function], name: str, write: Callable[[Mapping[str, GraphLines]], str],
    signature: Any,
) -> tuple[Callable, np.ndarray]:  # fmt: skip
    """Compile a source with the lines of some graphs, and return it with their packed data.

    PyTensor's own cache is used, because LLVM would optimize the whole graph of a closure again
    in each process. Fast math is off: with it the last bits differ between the process that
    compiles and those that load from the cache, and equal seeds would not give equal draws.

    Parameters
    ----------
    graphs : mapping of str to Function
        By the names that the source knows them by.
    name : str
        Of the function in the source.
    write : callable
        Returns the source, given the lines of each graph, and under the name "data" those that
        make the arrays of all.
    signature : Numba signature
    """
    packing, keys, texts, places = Packing(), [], {}, set()
    environment: dict[str, Any] = dict(ENVIRONMENT)
    environment |= {
        "copy_numbers": copy_numbers,
        "number": number,
        "piece": piece,
        "put": put,
        "generator_at": generator_at,
    }
    with exactly():
        for graph_name, function in graphs.items():
            graph, used = packing.open(function)
            text = write_graph(graph, f"{graph_name}_")
            environment |= text.environment
            n = len(text.inputs) - len(used)
            arrays = [f"{x} = array{i}" for x, i in zip(text.inputs[n:], used, strict=True)]
            texts[graph_name] = GraphLines(text.inputs[:n], [*arrays, *text.lines], text.outputs)
            keys.append(text.key)
            places |= set(used)
    source = write(texts | {"data": GraphLines(body=packing.source(places).splitlines())})
    data = packing.pack()
    if None in keys or not config.numba__cache:
        return compile_source(source, name, environment, signature, None), data
    key = f"{'_'.join(map(str, keys))}_pymc_tempering_exact_{hash_text(source)}"
    compiled = _COMPILED.get(key)
    if compiled is None:
        compiled = compile_source(source, name, environment, signature, key)
        _COMPILED[key] = compiled
    return compiled, data


def adapt_density(
    full: Function | None,
    values: Function | None,
    parts: Sequence[slice],
    differentiated: Sequence[bool],
) -> BoundDensity:
    """Turn functions of the parts of x into a density.

    The values are set to NaN first: where a graph raises (`CheckAndRaise`, a singular matrix),
    which `BoundDensity` takes for the end of the call, no numbers of an earlier call stay in place.

    Parameters
    ----------
    full : Function, optional
        parts -> (log_reference, log_ratio, gradients, gradients).
    values : Function, optional
        parts -> (log_reference, log_ratio). Called where `grads` has no rows, and always if there
        is no `full`; it does not touch `grads`.
    parts : sequence of slice
        The arguments of both, as they follow each other in x.
    differentiated : sequence of bool
        Which parts have gradients; the others get zeros.
    """
    # The rows are there before anything is computed: a variable that outlives a branch is one that
    # Numba keeps in memory, and the time that LLVM takes grows with the square of their number.
    dim = parts[-1].stop
    moved = [part for part, is_moved in zip(parts, differentiated, strict=True) if is_moved]
    still = [part for part, is_moved in zip(parts, differentiated, strict=True) if not is_moved]

    def evaluation(graph: GraphLines) -> list[str]:
        return [
            *(
                f"{name} = piece(x, {part.start}, {part.stop - part.start})"
                for name, part in zip(graph.inputs, parts, strict=True)
            ),
            *graph.body,
            *(f"values[{i}] = number({graph.outputs[i]})" for i in range(2)),
        ]

    def gradients(graph: GraphLines) -> list[str]:
        lines = []
        for i, name in enumerate(graph.outputs[2:]):
            row, part = i // len(moved), moved[i % len(moved)]
            lines.append(_copy("rows", dim, str(row), part, name))
        for part in still:
            lines.append(f"for i in range({part.start}, {part.stop}):")
            lines.append("    rows[0, i] = rows[1, i] = 0.0")
        return lines

    def write(texts: Mapping[str, GraphLines]) -> str:
        body = [*texts["data"].body]
        if "alone" in texts:
            alone = evaluation(texts["alone"])
            body += ["if grads.shape[0] == 0:", *_indented(alone)] if "full" in texts else alone
        if "full" in texts:
            rows = f"rows = grads if grads.shape[0] > 0 else np.empty((2, {dim}))"
            whole = [rows, *evaluation(texts["full"]), *gradients(texts["full"])]
            body += ["else:", *_indented(whole)] if "alone" in texts else whole
        lines = ["values[0] = np.nan", "values[1] = np.nan", *body]
        return "\n".join(["def density(x, values, grads, data):", *_indented(lines), ""])

    given = {"full": full, "alone": values}
    graphs = {name: graph for name, graph in given.items() if graph is not None}
    return BoundDensity(*_adapt(graphs, "density", write, OPEN_SIGNATURE))


def adapt_draws(function: Function, slices: Sequence[slice]) -> Callable:
    """Turn a function of generators into `draw(out, *generators)`, which fills a row per draw."""

    def write(texts: Mapping[str, GraphLines]) -> str:
        graph = texts["graph"]
        dim = slices[-1].stop
        copies = [
            _copy("out", dim, "i", part, name)
            for part, name in zip(slices, graph.outputs, strict=True)
        ]
        lines = ["data = np.uintp(packed.ctypes.data)", *texts["data"].body]
        given = [f"{name} = generator_at(table, {i})" for i, name in enumerate(graph.inputs)]
        lines += ["for i in range(out.shape[0]):", *_indented([*given, *graph.body, *copies])]
        return "\n".join(["def draw(packed, out, table):", *_indented(lines), ""])

    signature = types.void(uint8[::1], MATRIX, TABLE)
    return partial(_draw, *_adapt({"graph": function}, "draw", write, signature))


def _draw(
    compiled: Callable, data: np.ndarray, out: np.ndarray, *generators: np.random.Generator
) -> None:
    compiled(data, out, rows_of(generators))


def _copy(matrix: str, width: int, row: str, part: slice, name: str) -> str:
    """Write the line that copies an array to a part of a row of a matrix."""
    if part.stop - part.start == 1:
        return f"put({matrix}, {row} * {width} + {part.start}, number({name}))"
    return f"copy_numbers({matrix}[{row}, {part.start}:{part.stop}], np.ravel({name}))"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
