"""From a graph of PyTensor to a density, or to draws, as the package's loops call them.

The function that Numba makes of a graph gets the arrays of the model's data as arguments, so that
other data of the same shapes find the same compiled code.

Beside this fast way there is a plain one: PyTensor's own function, which compiled loops have Python
call. It is that of models with black-box operations, and of all models where a part of PyTensor
that the fast way leans on is gone.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from hashlib import sha256
from itertools import batched
from signal import SIGINT, raise_signal
from typing import Any
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import carray, int64, objmode, types, uint8
from pytensor.compile import Function
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.arguments import listed
from pymc_tempering.borrowed.private import function_and_key, function_of_text
from pymc_tempering.core.turns import TURNS
from pymc_tempering.model.compiled import DENSITY_SIGNATURE, MATRIX, RNG, Data, Density, pointer
from pymc_tempering.model.exactly import (
    compile_exactly,
    exactly,
    is_data,
    one_thread_at_a_time,
    unsafe_names,
)
from pymc_tempering.model.jit import kept, without_damage

_COMPILED: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""By key, as long as somebody has it."""

MANY = 20
"""Arguments that are written one by one."""


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
    plain : callable or None
        For Python, of the inputs alone; other than `whole`, threads may call it at once.
    """

    whole: Function
    function: Any = None
    arrays: Sequence[np.ndarray] = ()
    key: str | None = None
    plain: Callable | None = None

    @cached_property
    def unsafe(self) -> str:
        """Names of operations of a user's in it, which one thread at a time may call."""
        return listed(sorted(unsafe_names(self.whole.maker.fgraph.outputs)))

    def for_python(self) -> Callable:
        """Return its function for Python, which any thread may call."""
        work = self.plain or one_thread_at_a_time(self.whole)
        if not self.unsafe:
            return work

        def in_turn(*args: Any) -> Any:
            with TURNS.turn(self.unsafe):
                return work(*args)

        return in_turn


def open_graph(inputs: Sequence[Any], outputs: Sequence[Variable]) -> OpenGraph:
    """Rewrite a graph by PyTensor, take its arrays out, and make Numba's function of it."""
    with exactly():
        whole = compile_exactly(inputs, outputs, mode="NUMBA", on_unused_input="ignore")
        if function_and_key is None or function_of_text is None:
            return OpenGraph(whole)
        graph, arrays = _arrays_out(whole, len(inputs))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            function, key = function_and_key(graph)
        if any("object mode" in str(warning.message) for warning in said):
            return OpenGraph(whole, plain=_plain(function, arrays) if len(arrays) < MANY else None)
    return OpenGraph(whole, function, arrays, key)


def _plain(function: Callable, arrays: Sequence[np.ndarray]) -> Callable:
    """Make a function of Numba's, which cannot be called from Python, one that can."""

    @numba.njit
    def call(given, x):  # type: ignore[no-untyped-def]
        return function(x, *given)

    return partial(call, tuple(arrays))


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
        arrays.append(array if array.flags.forc else np.ascontiguousarray(array))
        variable = constant.type()
        copy.add_input(variable)
        copy.replace(constant, variable)
    return copy, shared + arrays


def _large_constants(graph: FunctionGraph) -> list[Constant]:
    """Constants of a graph that are plain arrays of some size, in the order of their first use."""
    used = [variable for node in graph.toposort() for variable in node.inputs] + graph.outputs
    return list({id(variable): variable for variable in used if is_data(variable)}.values())


@dataclass(frozen=True)
class Packed:
    """Arrays of some graphs as one record, and how a function unpacks it.

    Attributes
    ----------
    kind : dtype
        Of the record.
    data : array of uint8
    given : dict of str
        Arguments of each graph, in a text that has the record as `record`.
    """

    kind: np.dtype
    data: np.ndarray
    given: dict[str, str]

    @classmethod
    def of(cls, inputs: str, graphs: Mapping[str, OpenGraph]) -> "Packed":
        """Pack the arrays of graphs, which have names: in C order, truth values as bytes."""
        named = {f"{n}_{i}": a for n, graph in graphs.items() for i, a in enumerate(graph.arrays)}
        turned = {n: a.T if a.flags.fnc else a for n, a in named.items()}
        plain = {n: a.view(np.uint8) if a.dtype == bool else a for n, a in turned.items()}
        plain = plain or {"none": np.zeros(8, np.uint8)}
        kind = np.dtype([(n, a.dtype, a.shape) for n, a in plain.items()], align=True)
        data = np.zeros(1, kind)
        for name, array in plain.items():
            data[name] = array
        given = {n: _arguments(inputs, n, graph.arrays) for n, graph in graphs.items()}
        return cls(kind, data.view(np.uint8), given)


def _arguments(inputs: str, name: str, arrays: Sequence[np.ndarray]) -> str:
    """Text of the arguments of a graph: its inputs, and its arrays from the record.

    Numba takes no tuple of more than 30 parts as Python writes it, so many come as a sum of some.
    """
    views = [_view(f"{name}_{i}", array) for i, array in enumerate(arrays)]
    if len(views) <= MANY:
        return ", ".join([inputs, *views])
    parts = [inputs, *(", ".join(some) for some in batched(views, MANY))]
    return f"*({' + '.join(f'({part},)' for part in parts)})"


def _view(name: str, array: np.ndarray) -> str:
    """Text of the array that a field of the record stands for."""
    if array.ndim == 0:
        return f"np.asarray(record.{name})"
    kind = ".view(np.bool_)" if array.dtype == bool else ""
    return f"record.{name}[:]{kind}{'.T' if array.flags.fnc else ''}"


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
        made = _python_density({n: each.for_python() for n, each in graphs.items()}, slices)
        made.data.in_turns = any(graph.unsafe for graph in graphs.values())
        return made
    packed = Packed.of("x", graphs)
    lines = [
        "def density(x, values, grads, data):",
        " values[0] = values[1] = np.nan",
        " try:",
        "  record = carray(pointer(data), (1,), kind)[0]",
    ]
    if "alone" in graphs:
        lines += [
            f"  if {len(graphs)} == 1 or grads.shape[0] == 0:",
            f"   a, b = alone({packed.given['alone']})",
            "   values[0], values[1] = a.item(), b.item()",
            "   return",
        ]
    if "full" in graphs:
        pieces = [f"g{i}" for i in range(2 * len(slices))]
        lines += [
            f"  a, b, {', '.join(pieces)} = full({packed.given['full']})",
            "  values[0], values[1] = a.item(), b.item()",
            "  if grads.shape[0] > 0:",
        ]
        for i, piece in enumerate(pieces):
            row, part = divmod(i, len(slices))
            start, stop = slices[part].start, slices[part].stop
            lines += [f"   for i in range({start}, {stop}):"]
            lines += [f"    grads[{row}, i] = {piece}[i - {start}]"]
    lines += [" except Exception:", "  pass"]
    code = _compiled(partial(numba.cfunc, DENSITY_SIGNATURE), lines, graphs, packed)
    return Density(code, Data.of(packed.data))


def draws_at_random(graph: OpenGraph) -> bool:
    """Whether a graph draws random numbers when it is evaluated."""
    nodes = graph.whole.maker.fgraph.apply_nodes
    return any(isinstance(v.type, RandomGeneratorType) for node in nodes for v in node.inputs)


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
        return partial(_draw_in_python, graph.for_python(), slices)
    rngs = ", ".join(f"rng{i}" for i in range(n_rngs))
    packed = Packed.of(rngs, {"draw": graph})
    lines = [
        f"def draws(data, out, {rngs}):",
        " record = data.view(kind)[0]",
        " for i in range(out.shape[0]):",
        f"  {''.join(f'v{i}, ' for i in range(len(slices)))} = draw({packed.given['draw']})",
    ]
    for i, part in enumerate(slices):
        if part.stop - part.start == 1:  # Numba's `flat` of no dimensions reads other memory
            lines.append(f"  out[i, {part.start}] = v{i}.item()")
        else:
            lines += [f"  for j, x in enumerate(v{i}.flat):", f"   out[i, {part.start} + j] = x"]
    kind = partial(numba.njit, types.void(uint8[::1], MATRIX, *[RNG] * n_rngs))
    return partial(_compiled(kind, lines, {"draw": graph}, packed), packed.data)


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
    environment = {
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


_EVALUATORS: WeakValueDictionary[int, Callable] = WeakValueDictionary()
"""By the address of the data of each."""


def _python_density(functions: Mapping[str, Callable], slices: Sequence[slice]) -> Density:
    """Density of functions that Python calls, as `make_density` makes it of graphs.

    Any thread may call them.
    """

    def evaluate(x: np.ndarray, values: np.ndarray, grads: np.ndarray) -> None:
        """Write the density; nothing if the functions raise an error, which Numba would lose."""
        wanted = "full" if grads.shape[0] > 0 else "alone"
        try:
            found = functions.get(wanted, next(iter(functions.values())))(x.copy())
        except KeyboardInterrupt:
            raise_signal(SIGINT)  # whoever called the compiled loop gets it, see `call_loop`
            return
        except Exception:  # of somebody's own code, of whatever kind
            return
        values[:] = found[:2]
        for i, piece in enumerate(found[2:] if grads.shape[0] > 0 else ()):
            row, part = divmod(i, len(slices))
            grads[row, slices[part]] = piece

    data = Data.of(np.zeros(2, dtype=np.int64))  # its own address, and whether to stop
    data.array[0] = data
    data.evaluator = _EVALUATORS[int(data)] = evaluate
    return Density(_code(), data)


def _evaluate(x: np.ndarray, values: np.ndarray, grads: np.ndarray, name: int) -> None:
    _EVALUATORS[name](x, values, grads)


@cache
def _code() -> Any:
    """Compiled code of all such densities, which asks Python."""

    @numba.njit
    def ask(x, values, grads, name):  # type: ignore[no-untyped-def]
        with objmode():
            _evaluate(x, values, grads, name)

    @numba.cfunc(DENSITY_SIGNATURE, nogil=True)
    def code(x, values, grads, data):  # type: ignore[no-untyped-def]
        held = carray(pointer(data), (2,), int64)
        values[0] = values[1] = np.nan
        if held[1] == 0:
            ask(x, values, grads, held[0])

    return code


def _draw_in_python(
    function: Callable, slices: Sequence[slice], out: np.ndarray, *rngs: np.random.Generator
) -> None:
    """Fill the rows of `out` with draws of a function of generators."""
    for row in out:
        for part, piece in zip(slices, function(*rngs), strict=True):
            row[part] = np.ravel(piece)
