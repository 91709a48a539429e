"""PyMC's `compile`, whose functions give the same bits in each process."""

from collections.abc import Sequence
from typing import Any

from pymc.pytensorf import compile as pymc_compile
from pytensor.compile import Function
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import Elemwise

from pymc_tempering.model.exactly import ALONE, exactly
from pymc_tempering.model.garbage import no_search_for_garbage


def compile_exactly(
    inputs: Sequence[Any], outputs: Any, *, mode: Mode | str | None = None, **options: Any
) -> Function:
    """PyMC's `compile`, whose function gives the same bits in each process.

    With PyTensor's fast math they differ between the process that compiles a function and those
    that load it from the cache on disk.

    Parameters
    ----------
    inputs, outputs, mode, **options
        Of `pymc.compile`.
    """
    with ALONE, exactly(), no_search_for_garbage():
        made = pymc_compile(inputs, outputs, mode=mode, **options)
        if any(map(_is_without_arrays, made.maker.fgraph.apply_nodes)):
            mode = get_mode(mode).excluding("scalarize")
            made = pymc_compile(inputs, outputs, mode=mode, **options)
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
