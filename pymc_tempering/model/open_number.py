"""A number that stays an argument of compiled code, where PyTensor would write it into the code.

Arrays of a model's data are arguments of its compiled density; single numbers are not, for
PyTensor computes with them while it rewrites the graph. Here a number is the first of a pair, which
is an array, and the operation that takes it is not computed ahead. So a model with another number
finds the same code.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from pymc_tempering.borrowed.pytensor_graphs import numba_njit, register_funcify_and_cache_key
from pymc_tempering.model.sources import hash_of_sources


class OpenNumber(Op):
    """First number of a pair; it has no gradient, and is never computed ahead."""

    __props__ = ()

    def make_node(self, pair: Variable) -> Apply:
        """Apply it to a vector of two numbers."""
        pair = pt.as_tensor_variable(pair)
        return Apply(self, [pair], [pt.scalar(dtype=pair.type.dtype)])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute it in Python."""
        outputs[0][0] = np.asarray(inputs[0][0])

    def infer_shape(self, node: Apply, shapes: Any) -> list[tuple]:
        """Shape of a number."""
        return [()]

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:
        """Keep the pair in the graph."""
        return False


def pair_of(number: ArrayLike) -> np.ndarray:
    """Return the pair for a number, shape (2,), or the pairs for numbers, shape (n, 2)."""
    return np.repeat(np.asarray(number, dtype=float)[..., None], 2, axis=-1)


@register_funcify_and_cache_key(OpenNumber)
def _compile_open_number(op: OpenNumber, node: Apply, **options: Any) -> tuple[Any, str | None]:
    """Compiled operation, and its key in the cache."""

    @numba_njit
    def open_number(pair):  # type: ignore[no-untyped-def]
        return np.asarray(pair[0])

    edition = hash_of_sources(Path(__file__))
    return open_number, None if edition is None else f"pymc_tempering_open_number_{edition}"
