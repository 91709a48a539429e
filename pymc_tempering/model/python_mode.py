"""PyTensor's mode for what is computed a few times: it compiles at once, and runs in Python."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from pymc.pytensorf import compile as pymc_compile
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.scalar.basic import Add, Mul
from pytensor.tensor.elemwise import Elemwise

from pymc_tempering.model.exactly import ALONE

MOST = 31
"""Operands that an elementwise operation may have in Python, with its result: NumPy takes 32."""

LAST = 100
"""Place of a rewriting after all others."""


@node_rewriter([Elemwise])
def _split(graph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Make a sum, or product, of many terms one of sums: a log density has a term a variable."""
    if len(node.inputs) <= MOST or not isinstance(node.op.scalar_op, Add | Mul):
        return None
    operation, terms = Elemwise(node.op.scalar_op), node.inputs
    while len(terms) > 1:
        pieces = [terms[i : i + MOST] for i in range(0, len(terms), MOST)]
        terms = [operation(*some) for some in pieces]
    return terms


@cache
def python_mode() -> Mode:
    """Return `FAST_COMPILE`, for operations of any number of operands."""
    return get_mode("FAST_COMPILE").register((dfs_rewriter(_split), LAST))


def compile_alone(inputs: Sequence[Variable], outputs: Any) -> Function:
    """Compile graphs by PyMC in this mode, in one thread at a time; inputs may be unused."""
    with ALONE:
        return pymc_compile(inputs, outputs, mode=python_mode(), on_unused_input="ignore")
