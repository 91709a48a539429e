"""Settings of the whole process that hold while anything of ours compiles, in any thread."""

import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from typing import Any

import numpy as np
from pymc.pytensorf import compile as pymc_compile
from pytensor import config, shared
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, applys_between
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import Elemwise

ALONE = RLock()
"""Held where PyTensor compiles. It changes the mode of the whole process for that time: of two
threads that do so at once, the last one to end would put back the mode of the other, for good."""


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """Switch the search for circles of objects off, and on again if it was on.

    Compilers make objects by the million, and each round of the search looks at all objects that
    have lived for a while, those of the libraries among them. A tenth of the time went into it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def exactly() -> Iterator[None]:
    """Compile in one thread, without fast math, and let Numba call Python where it must.

    With fast math the last bits differ between the process that compiles a function and those that
    load it from the cache on disk. Python is the only way for a black-box likelihood and for a few
    of PyMC's distributions; PyTensor's warning about it is silenced. So is the traceback that it
    prints where one of its rewritings fails: the graph stays as it was, and its values are right.
    """
    flags = config.change_flags(numba__fastmath=False, on_opt_error="ignore")
    with ALONE, no_search_for_garbage(), flags, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numba will use object mode")
        yield


def one_thread_at_a_time[**P, T](work: Callable[P, T]) -> Callable[P, T]:
    """Have work that is kept with a model done by one thread at a time.

    A function of PyTensor's keeps its arguments and results in itself while it is called: of two
    threads, one would get what the other one asked for.
    """
    lock = RLock()

    @wraps(work)
    def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        with lock:
            return work(*args, **kwargs)

    return alone


OURS = ("pytensor.", "pymc.", "pymc_extras.", "pymc_tempering.")

ANY_FUNCTION = ("FromFunctionOp", "JAXOp")
"""Operations of PyTensor's that hold a function of the user's."""


def is_foreign(op: Op) -> bool:
    """Whether an operation is neither PyTensor's nor PyMC's: a user's own, maybe in Python."""
    kind = type(getattr(op, "core_op", op))
    return not kind.__module__.startswith(OURS) or kind.__name__ in ANY_FUNCTION


def unsafe_names(outputs: Sequence[Variable]) -> set[str]:
    """Classes of the operations in graphs that users wrote, but for those that are thread-safe.

    These say ``thread_safe = True``.
    """
    found: set[str] = set()
    for node in applys_between([], outputs):
        if isinstance(node.op, HasInnerGraph):
            found |= unsafe_names(node.op.inner_outputs)
        elif is_foreign(node.op) and not getattr(node.op, "thread_safe", False):
            found.add(type(getattr(node.op, "core_op", node.op)).__name__)
    return found


MIN_SIZE = {"f": 2, "i": 8, "u": 8, "b": 8}
"""Numbers in the smallest array that leaves a graph, by kind; a few whole ones may be a shape."""


def is_data(variable: Variable) -> bool:
    """Whether a variable is a constant array of some size."""
    data = variable.data if isinstance(variable, Constant) else None
    return isinstance(data, np.ndarray) and data.size >= MIN_SIZE.get(data.dtype.kind, np.inf)


def with_data_apart(outputs: Sequence[Variable]) -> list[Variable]:
    """Replace data by shared variables: other data of their shapes find the same compiled code."""
    data = filter(is_data, ancestors(outputs))
    places = {each: shared(each.data, shape=each.type.shape) for each in data}
    return clone_replace(outputs, places) if places else list(outputs)


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
    with exactly():
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
