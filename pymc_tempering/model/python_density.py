"""A density that Python evaluates, as compiled loops call it: slow, and right.

It is that of models with black-box operations, and of all models where a part of PyTensor that the
fast way leans on is gone.
"""

from _thread import interrupt_main
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import carray, int64, objmode

from pymc_tempering.model.compiled import DENSITY_SIGNATURE, Data, Density, pointer


@dataclass(eq=False)
class _Evaluator:
    """Functions of PyTensor's from x to values and gradients; one thread at a time calls them."""

    functions: Mapping[str, Callable]
    slices: Sequence[slice]
    lock: Any = field(default_factory=RLock)

    def __call__(self, x: np.ndarray, values: np.ndarray, grads: np.ndarray) -> None:
        """Write the density; NaN if the functions raise an error, which Numba would lose."""
        values[:] = np.nan
        wanted = "full" if grads.shape[0] > 0 else "alone"
        try:
            with self.lock:
                found = self.functions.get(wanted, next(iter(self.functions.values())))(x.copy())
        except KeyboardInterrupt:
            interrupt_main()  # whoever called the compiled loop gets it, see `call_loop`
            return
        except Exception:  # of somebody's own code, of whatever kind
            return
        values[:] = found[:2]
        for i, piece in enumerate(found[2:] if grads.shape[0] > 0 else ()):
            row, part = divmod(i, len(self.slices))
            grads[row, self.slices[part]] = piece


class _PythonData(Data):
    """Address of two numbers: itself, by which the evaluator is found, and whether to stop."""

    in_python = True
    evaluate: _Evaluator


_EVALUATORS: WeakValueDictionary[int, _Evaluator] = WeakValueDictionary()
"""By the address of the data of each."""


def python_density(functions: Mapping[str, Callable], slices: Sequence[slice]) -> Density:
    """Density of functions of PyTensor's; see `pymc_tempering.model.density.make_density`."""
    data = _PythonData.of(np.zeros(2, dtype=np.int64))
    data.array[0] = data
    data.evaluate = _EVALUATORS[int(data)] = _Evaluator(functions, slices)
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
        if held[1] == 0:
            ask(x, values, grads, held[0])
        else:
            values[0] = values[1] = np.nan

    return code


def draw_in_python(
    function: Callable, slices: Sequence[slice], out: np.ndarray, *rngs: np.random.Generator
) -> None:
    """Fill the rows of `out` with draws of a function of generators."""
    for row in out:
        for part, piece in zip(slices, function(*rngs), strict=True):
            row[part] = np.ravel(piece)
