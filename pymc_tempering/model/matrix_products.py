"""A compile mode in which the matrix products of a graph cost next to nothing to compile.

PyTensor compiles its own product anew for each combination of layouts, for 7 to 10 seconds. Here
the products of a graph become operations of our own, which call `blas.multiply`. The graphs of
other users' functions stay as they are.
"""

from pathlib import Path
from typing import Any

import numpy as np
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from pymc_tempering.model import blas
from pymc_tempering.model.blas import multiply
from pymc_tempering.model.sources import hash_of_sources

AFTER_ALL_MATHEMATICS = 99.0
"""Position of the rewriting: one before PyTensor wraps batched operations for Numba."""


class ThinDot(Dot):
    """Product of two matrices of float64, by one compiled function for all layouts."""


@node_rewriter([Dot, Blockwise])
def thin_products(graph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Replace a product of matrices of float64, batched or not."""
    kinds = {variable.type.dtype for variable in [*node.inputs, *node.outputs]}
    if kinds != {"float64"}:
        return None
    if type(node.op) is Dot:
        return [ThinDot()(*node.inputs)]
    if type(node.op) is Blockwise and type(node.op.core_op) is Dot:
        thin = Blockwise(ThinDot(), signature=node.op.signature)
        return list(thin.make_node(*node.inputs).outputs)
    return None


@register_funcify_and_cache_key(ThinDot)
def _compile_thin_dot(op: ThinDot, node: Apply, **options: Any) -> tuple[Any, str | None]:
    """Compiled product, and its key in the cache: another one after each edit of what it calls."""

    @numba_njit
    def thin_dot(x, y, out=None):  # type: ignore[no-untyped-def]
        if out is None:
            out = np.empty((x.shape[0], y.shape[1]))
        multiply(
            x.shape[0], x.shape[1], y.shape[0], y.shape[1],
            x.ctypes.data, x.strides[0], x.strides[1],
            y.ctypes.data, y.strides[0], y.strides[1],
            out.ctypes.data, out.strides[0], out.strides[1],
        )  # fmt: skip
        return out

    thin_dot.handles_out = True
    edition = hash_of_sources(Path(__file__), Path(blas.__file__))
    return thin_dot, None if edition is None else f"pymc_tempering_thin_dot_{edition}"


def numba_mode() -> Mode:
    """PyTensor's mode for Numba, with thin matrix products."""
    rewriting = dfs_rewriter(thin_products)
    mode: Mode = get_mode("NUMBA").register((rewriting, AFTER_ALL_MATHEMATICS))
    return mode
