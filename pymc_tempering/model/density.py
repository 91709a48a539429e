"""The density of a model, and its prior draws, as the package's loops call them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import carray, types, uint8

from pymc_tempering.borrowed.private import function_of_text
from pymc_tempering.model.compiled import DENSITY_SIGNATURE, MATRIX, RNG, Data, Density, pointer
from pymc_tempering.model.graphs import OpenGraph, Packed
from pymc_tempering.model.jit import kept, without_damage
from pymc_tempering.model.python_density import draw_in_python, python_density

_COMPILED: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""By key, as long as somebody has it."""


def make_density(graphs: Mapping[str, OpenGraph], slices: Sequence[slice]) -> Density:
    """Make the density of some graphs of one vector x.

    It is NaN where a graph raises an error.

    Parameters
    ----------
    graphs : mapping of str to OpenGraph
        "full" gives log_reference, log_ratio, and the pieces of their gradients, "alone" the first
        two. One of them may be missing: without "full" there are no gradients.
    slices : sequence of slice
        Where the pieces of a gradient lie in it.
    """
    if any(graph.function is None for graph in graphs.values()):
        return python_density({name: graph.whole for name, graph in graphs.items()}, slices)
    packed = Packed.of(graphs)
    lines = [
        "def density(x, values, grads, data):",
        " values[0] = values[1] = np.nan",
        " try:",
        "  record = carray(pointer(data), (1,), kind)[0]",
    ]
    if "alone" in graphs:
        lines += [
            f"  if {len(graphs)} == 1 or grads.shape[0] == 0:",
            f"   a, b = alone(x{packed.given['alone']})",
            "   values[0], values[1] = a.item(), b.item()",
            "   return",
        ]
    if "full" in graphs:
        pieces = [f"g{i}" for i in range(2 * len(slices))]
        lines += [
            f"  a, b, {', '.join(pieces)} = full(x{packed.given['full']})",
            "  values[0], values[1] = a.item(), b.item()",
            "  if grads.shape[0] > 0:",
        ]
        for i, piece in enumerate(pieces):
            row, part = divmod(i, len(slices))
            start, stop = slices[part].start, slices[part].stop
            lines += [
                f"   for i in range({stop - start}):",
                f"    grads[{row}, {start} + i] = {piece}[i]",
            ]
    lines += [" except Exception:", "  pass"]
    code = _compiled(partial(numba.cfunc, DENSITY_SIGNATURE), lines, graphs, packed)
    return Density(code, Data.of(packed.data))


def make_draws(graph: OpenGraph, slices: Sequence[slice], n_rngs: int) -> Callable:
    """Make `draw(out, *generators)`, which fills the rows of `out` with draws.

    Parameters
    ----------
    graph : OpenGraph
        From generators to the pieces of a draw.
    slices : sequence of slice
        Where those lie in it.
    n_rngs : int
        Number of generators.
    """
    if graph.function is None:
        return partial(draw_in_python, graph.whole, slices)
    packed = Packed.of({"draw": graph})
    rngs = ", ".join(f"rng{i}" for i in range(n_rngs))
    lines = [
        f"def draws(out, data, {rngs}):",
        " record = data.view(kind)[0]",
        " for i in range(out.shape[0]):",
        f"  {''.join(f'v{i}, ' for i in range(len(slices)))} = draw({rngs}{packed.given['draw']})",
    ]
    for i, part in enumerate(slices):
        lines += [
            f"  j = {part.start}",
            f"  for x in v{i}.flat:",
            "   out[i, j] = x",
            "   j += 1",
        ]
    kind = partial(numba.njit, types.void(MATRIX, uint8[::1], *[RNG] * n_rngs))
    code = _compiled(kind, lines, {"draw": graph}, packed)
    return lambda out, *rngs: code(out, packed.data, *rngs)


def _compiled(
    kind: Callable, lines: Sequence[str], graphs: Mapping[str, OpenGraph], packed: Packed
) -> Any:
    """Compile the lines of a function that calls some graphs, or find it on disk.

    `kind` is `numba.njit` or `numba.cfunc`, with a signature.
    """
    text, keys = "\n".join(lines), [graph.key for graph in graphs.values()]
    key = None
    if None not in keys:
        key = sha256(f"{keys}{text}{packed.kind}".encode()).hexdigest()
        if (known := _COMPILED.get(key)) is not None:
            return known
    environment: dict[str, Any] = {
        "np": np, "carray": carray, "pointer": pointer, "kind": packed.kind, "__name__": __name__,
    }  # fmt: skip
    environment |= {name: graph.function for name, graph in graphs.items()}
    name = lines[0].split("(")[0].removeprefix("def ")
    function = function_of_text(text, name, global_env=environment)
    options = {"nogil": True, "cache": key is not None and kept(function, key)}
    made = without_damage(lambda: kind(**options)(function))
    if key is not None:
        _COMPILED[key] = made
    return made
