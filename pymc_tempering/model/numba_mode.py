"""A mode for PyTensor's functions in which a few operations cost next to nothing to compile.

PyTensor compiles its product of matrices anew for each combination of layouts, for 7 to 10 seconds,
an array of equal numbers with the text of an error, for 2, and sums over an axis with a sorting,
for 4 to 9. In this mode they become operations of our own. The graphs of other users' functions
stay as they are.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pymc.pytensorf import compile as pymc_compile
from pytensor.compile import Function
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot

from pymc_tempering.borrowed.pytensor_graphs import (
    NumbaLinker,
    compile_numba_function_src,
    numba_njit,
    register_funcify_and_cache_key,
)
from pymc_tempering.model import blas
from pymc_tempering.model.array_views import address, number
from pymc_tempering.model.blas import DONE, make_ready, multiply
from pymc_tempering.model.exactly import ALONE, exactly
from pymc_tempering.model.garbage import no_search_for_garbage
from pymc_tempering.model.graph_functions import compile_graph
from pymc_tempering.model.jit import compile_keyed
from pymc_tempering.model.packed_data import arrays_out
from pymc_tempering.model.scalar_graphs import thin_composite
from pymc_tempering.model.sources import hash_of_sources
from pymc_tempering.model.thin_reductions import thin_reduction

AFTER_ALL_MATHEMATICS = 99.0
"""Position of the rewriting: one before PyTensor wraps batched operations for Numba."""

WRONG_SIZES = "matrix product: the sizes do not fit, or are above 2**31 - 1"


class ThinDot(Dot):
    """Product of two matrices of float64, by one compiled function for all layouts."""


class ThinBatchedDot(BatchedDot):
    """Products of matrices of float64 one by one, by the same function."""


class ThinAlloc(Alloc):
    """Array of float64 that are all equal, filled by loops."""


class LeanLinker(NumbaLinker):
    """PyTensor's linker for Numba, whose functions are optimized once, with all that they call.

    Arrays of the graph are arguments of its function: with others it is the same function.
    """

    def fgraph_convert(self, fgraph: FunctionGraph, **options: Any) -> Any:
        """Make the function of a graph, its key in the cache, and arrays that it takes."""
        graph, arrays = arrays_out(fgraph)
        return *compile_graph(graph), arrays

    def jit_compile(self, made: Any) -> Callable:
        """Make a function that is compiled at its first call."""
        function, key, arrays = made
        compiled = compile_keyed(function.py_func, None, key)
        if not arrays:
            return compiled

        def with_arrays(*inputs: Any) -> Any:
            return compiled(*inputs, *arrays)

        return with_arrays


class GraphLinker(LeanLinker):
    """A linker for functions of which the graph alone is used."""

    def fgraph_convert(self, fgraph: FunctionGraph, **options: Any) -> None:
        """Make nothing of the graph."""

    def jit_compile(self, made: None) -> Any:
        """Return what is never called."""
        return None


def numba_mode(*, graph_only: bool = False) -> Mode:
    """PyTensor's mode for Numba, with operations that compile at once.

    Parameters
    ----------
    graph_only : bool, default False
        Whether the graph of the function is all that is wanted, after rewriting.
    """
    linker = GraphLinker() if graph_only else LeanLinker()
    mode = Mode(linker, get_mode("NUMBA").provided_optimizer)
    made: Mode = mode.register((dfs_rewriter(_thin), AFTER_ALL_MATHEMATICS))
    return made


def compile_exactly(
    inputs: Sequence[Any], outputs: Any, *, mode: Mode | str | None = None, **options: Any
) -> Function:
    """PyMC's `compile`, whose function gives the same bits in each process.

    With PyTensor's fast math they differ between the process that compiles a function and those
    that load it from the cache on disk.

    Parameters
    ----------
    inputs, outputs, **options
        Of `pymc.compile`.
    mode : Mode or str, optional
        By default that of `numba_mode`, where Numba is PyTensor's default, too.
    """
    with ALONE, exactly(), no_search_for_garbage():
        if mode is None and isinstance(get_mode(None).linker, NumbaLinker):
            mode = numba_mode()
        made = pymc_compile(inputs, outputs, mode=mode, **options)
        if any(map(_is_without_arrays, made.maker.fgraph.apply_nodes)):
            made = pymc_compile(
                inputs, outputs, mode=get_mode(mode).excluding("scalarize"), **options
            )
        return made


def _is_without_arrays(node: Apply) -> bool:
    """Whether all that a fused operation takes are scalars, which PyTensor's Numba code cannot do.

    PyTensor 3.3.8 raises an IndexError while it compiles one.
    """
    if type(node.op).__name__ not in ("FusedElemwise", "ScalarizedElemwise"):
        return False
    [inner] = [each for each in node.op.fgraph.apply_nodes if isinstance(each.op, Elemwise)]
    taken = node.inputs[: len(inner.inputs)]
    return all(isinstance(variable.type, ScalarType) for variable in taken)


@node_rewriter([Dot, BatchedDot, Blockwise, Alloc, CAReduce, Elemwise])
def _thin(graph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Replace an operation by one that compiles at once, if there is one."""
    if isinstance(node.op, CAReduce):
        return thin_reduction(node)
    if isinstance(node.op, Elemwise):
        thinner = thin_composite(node.op.scalar_op)
        if thinner is None:
            return None
        elementwise = Elemwise(thinner, node.op.inplace_pattern, name=node.op.name)
        return list(elementwise.make_node(*node.inputs).outputs)
    if type(node.op) is Alloc:
        value, *shape = node.inputs
        if value.type.dtype == "float64" and all(value.type.broadcastable) and shape:
            return [ThinAlloc()(value, *shape)]
        return None
    if {variable.type.dtype for variable in [*node.inputs, *node.outputs]} != {"float64"}:
        return None
    if type(node.op) is Dot:
        return [ThinDot()(*node.inputs)]
    if type(node.op) is BatchedDot:
        return [ThinBatchedDot()(*node.inputs)]
    if type(node.op) is Blockwise and type(node.op.core_op) is Dot:
        thin = Blockwise(ThinDot(), signature=node.op.signature)
        return list(thin.make_node(*node.inputs).outputs)
    return None


def _key(name: str) -> str | None:
    """Key of an operation in the cache: another one after each edit of what it calls."""
    edition = hash_of_sources(Path(__file__), Path(blas.__file__))
    return None if edition is None else f"pymc_tempering_{name}_{edition}"


@register_funcify_and_cache_key(ThinDot)
def _compile_dot(op: ThinDot, node: Apply, **options: Any) -> tuple[Any, str | None]:
    """Compiled product, and its key in the cache."""
    make_ready()

    @numba_njit
    def thin_dot(x, y, out=None):  # type: ignore[no-untyped-def]
        if out is None:
            out = np.empty((x.shape[0], y.shape[1]))
        status = multiply(
            x.shape[0], x.shape[1], y.shape[0], y.shape[1],
            address(x), x.strides[0], x.strides[1],
            address(y), y.strides[0], y.strides[1],
            address(out), out.strides[0], out.strides[1],
        )  # fmt: skip
        if status != DONE:
            raise ValueError(WRONG_SIZES)
        return out

    thin_dot.handles_out = True  # a batched product gives it the place of each
    return thin_dot, _key("dot")


@register_funcify_and_cache_key(ThinBatchedDot)
def _compile_batched_dot(op: ThinBatchedDot, node: Apply, **options: Any) -> tuple[Any, str | None]:
    """Compiled products, and their key in the cache."""
    make_ready()

    @numba_njit
    def thin_batched_dot(x, y):  # type: ignore[no-untyped-def]
        if x.shape[0] != y.shape[0]:
            raise ValueError("product of stacks of matrices: they are not equally many")
        out = np.empty((x.shape[0], x.shape[1], y.shape[2]))
        for i in range(x.shape[0]):
            status = multiply(
                x.shape[1], x.shape[2], y.shape[1], y.shape[2],
                address(x) + i * x.strides[0], x.strides[1], x.strides[2],
                address(y) + i * y.strides[0], y.strides[1], y.strides[2],
                address(out) + i * out.strides[0], out.strides[1], out.strides[2],
            )  # fmt: skip
            if status != DONE:
                raise ValueError(WRONG_SIZES)
        return out

    return thin_batched_dot, _key("batched_dot")


@register_funcify_and_cache_key(ThinAlloc)
def _compile_alloc(op: ThinAlloc, node: Apply, **options: Any) -> tuple[Any, str | None]:
    """Compiled filling, and its key in the cache."""
    n = len(node.inputs) - 1
    lengths = [f"number(length{i})" for i in range(n)]
    lines = [f"def thin_alloc(value, {', '.join(f'length{i}' for i in range(n))}):"]
    lines += ["    one = number(value)", f"    filled = np.empty(({', '.join(lengths)},))"]
    lines += [f"{'    ' * (i + 1)}for i{i} in range(filled.shape[{i}]):" for i in range(n)]
    lines += [f"{'    ' * (n + 1)}filled[{', '.join(f'i{i}' for i in range(n))}] = one"]
    source = "\n".join([*lines, "    return filled"])
    environment = {"np": np, "number": number}
    filling = compile_numba_function_src(source, "thin_alloc", global_env=environment)
    return numba_njit(filling), _key(f"alloc_{n}")
