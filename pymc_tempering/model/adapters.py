"""From compiled PyTensor graphs to functions of the types that the chain loop calls."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from textwrap import indent
from typing import Any
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import types, uint8
from pytensor import config
from pytensor.compile import Function

from pymc_tempering.model.bound_density import OPEN_SIGNATURE, BoundDensity
from pymc_tempering.model.compiled import MATRIX, RNG, compile_source
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.exactly import exactly
from pymc_tempering.model.graph_functions import compile_graph
from pymc_tempering.model.packed_data import ENVIRONMENT, Packing
from pymc_tempering.model.sources import hash_text

_COMPILED: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""By the key of the graphs and of the source that calls them, as long as somebody has it."""


def _adapt(
    graphs: Mapping[str, Function], name: str, write: Callable[[Mapping[str, str]], str],
    signature: Any, *, inline: bool,
) -> tuple[Callable, np.ndarray]:  # fmt: skip
    """Compile a source that calls the graphs of functions, and return it with their packed data.

    PyTensor's own cache is used, because LLVM would optimize the whole graph of a closure again
    in each process. Fast math is off: with it the last bits differ between the process that
    compiles and those that load from the cache, and equal seeds would not give equal draws.

    Parameters
    ----------
    graphs : mapping of str to Function
        By the names that the source calls them by.
    name : str
        Of the function in the source.
    write : callable
        Returns the source, given the arrays to pass to each graph and, under the name "data", the
        lines that make them.
    signature : Numba signature
    inline : bool
        Whether to compile graphs and source as one function, which takes half as long where the
        source is not a loop.
    """
    packing, keys, arguments, places = Packing(), [], {}, set()
    environment: dict[str, Any] = dict(ENVIRONMENT) | {"copy_numbers": copy_numbers}
    with exactly():
        for graph_name, function in graphs.items():
            graph, used = packing.open(function)
            jitted, key = compile_graph(graph)
            environment[graph_name] = (
                numba.njit(inline="always")(jitted.py_func) if inline else jitted
            )
            arguments[graph_name] = "".join(f", array{place}" for place in used)
            keys.append(key)
            places |= set(used)
    source = write(arguments | {"data": packing.source(places)})
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
    graphs = {"full": full, "alone": values}
    pieces = ", ".join(f"x[{part.start}:{part.stop}]" for part in parts)
    moved = [part for part, is_moved in zip(parts, differentiated, strict=True) if is_moved]
    still = [part for part, is_moved in zip(parts, differentiated, strict=True) if not is_moved]

    def write(arguments: Mapping[str, str]) -> str:
        call_values = f"""
log_reference, log_ratio = alone({pieces}{arguments.get("alone")})
values[0] = log_reference.item()
values[1] = log_ratio.item()
"""
        names = [f"grad{row}_{i}" for row in range(2) for i in range(len(moved))]
        outputs = ", ".join(["log_reference", "log_ratio", *names])
        copies = [
            f"    copy_numbers(grads[{row}, {part.start}:{part.stop}], grad{row}_{i})\n"
            for row in range(2)
            for i, part in enumerate(moved)
        ]
        copies += [
            f"    for i in range({part.start}, {part.stop}):\n"
            "        grads[0, i] = grads[1, i] = 0.0\n"
            for part in still
        ]
        call_full = f"""
{outputs} = full({pieces}{arguments.get("full")})
values[0] = log_reference.item()
values[1] = log_ratio.item()
if grads.shape[0] > 0:
{"".join(copies)}
"""
        if full is None:
            body = call_values
        elif values is None:
            body = call_full
        else:
            body = (
                f"if grads.shape[0] == 0:\n{indent(call_values.strip(), '    ')}\n"
                f"else:\n{indent(call_full.strip(), '    ')}\n"
            )
        return f"""
def density(x, values, grads, data):
    values[0] = np.nan
    values[1] = np.nan
{indent(arguments["data"] + body.strip(), "    ")}
"""

    given = {name: graph for name, graph in graphs.items() if graph is not None}
    return BoundDensity(*_adapt(given, "density", write, OPEN_SIGNATURE, inline=True))


def adapt_draws(function: Function, n_rngs: int, slices: Sequence[slice]) -> Callable:
    """Turn a function of generators into `draw(out, *generators)`, which fills a row per draw."""
    rngs = ", ".join(f"rng{i}" for i in range(n_rngs))
    values = ", ".join(f"value{i}" for i in range(len(slices)))

    def write(arguments: Mapping[str, str]) -> str:
        lines = [f"def draw(packed, out, {rngs}):", "    data = np.uintp(packed.ctypes.data)"]
        lines.append(indent(arguments["data"], "    "))
        lines.append("    for i in range(out.shape[0]):")
        comma = "," if len(slices) == 1 else ""
        lines.append(f"        {values}{comma} = graph({rngs}{arguments['graph']})")
        lines += [
            f"        copy_numbers(out[i, {s.start}:{s.stop}], np.ravel(value{j}))"
            for j, s in enumerate(slices)
        ]
        return "\n".join(lines) + "\n"

    signature = types.void(uint8[::1], MATRIX, *[RNG] * n_rngs)
    compiled, data = _adapt({"graph": function}, "draw", write, signature, inline=False)
    return partial(compiled, data)
