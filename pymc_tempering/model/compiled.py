"""Types of the compiled layer, and how Python calls a loop.

The chain loop is compiled once for all models: densities and kernels reach it as
first-class functions, so that a new model compiles its own density and nothing else.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import RLock, current_thread, main_thread
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from numba import float64, int64, types
from numba.extending import intrinsic

from pymc_tempering.core.turns import TURNS
from pymc_tempering.model.jit import compile_now, kept, njit, without_damage

VECTOR = float64[::1]
MATRIX = float64[:, ::1]
RNG = types.NumPyRandomGeneratorType("NumPyRandomGeneratorType")

LOG_REFERENCE, LOG_RATIO = 0, 1
"""Positions in `Point.values`, and rows of `Point.grads`."""

DENSITY_SIGNATURE = types.void(VECTOR, VECTOR, MATRIX, int64)
"""(x, values, grads, address of the data): write log_reference and log_ratio at x into `values`,
and their gradients into `grads` if that has rows."""


class Data(int):
    """Address of an array that holds the data of a density, and lives as long as this."""

    array: np.ndarray
    evaluator: Any = None
    """What evaluates the density in Python; the second number of the array tells it to stop."""
    in_turns: bool = False
    """Whether one thread at a time may do so."""

    @classmethod
    def of(cls, array: np.ndarray) -> Self:
        """Address of an array."""
        made = cls(array.ctypes.data)
        made.array = array
        return made


@intrinsic
def pointer(typingctx, address):  # type: ignore[no-untyped-def]
    """Turn an address into a pointer."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(int64), codegen


class Density(NamedTuple):
    """The density of a path from its prior: compiled code, and the data of the model.

    Compiled code evaluates it by `pymc_tempering.references.compiled_mixture.evaluate`, for the
    path may begin at a fitted reference.
    """

    code: Any
    data: Data

    def __call__(self, x: np.ndarray, values: np.ndarray, grads: np.ndarray) -> None:
        """Write the density at `x` into `values` and `grads`."""
        call_loop(_evaluate_once, self, x, values, grads)


DENSITY = types.NamedTuple((types.FunctionType(DENSITY_SIGNATURE), int64), Density)


@njit(types.void(DENSITY, VECTOR, VECTOR, MATRIX))
def _evaluate_once(density, x, values, grads):  # type: ignore[no-untyped-def]
    density.code(x, values, grads, density.data)


MIX_SIGNATURE = types.void(VECTOR, VECTOR, MATRIX, MATRIX, MATRIX)
"""(x, values, grads, table, warp): turn log prior and log likelihood, and their gradients, into
log_reference and log_ratio of a path from a fitted reference."""


@dataclass(frozen=True)
class Mixer(types.WrapperAddressProtocol):
    """What evaluates fitted references: compiled when a loop is first given it.

    The loops reach it by its address. So runs from the prior do without it, and it is compiled
    once and not in each loop.
    """

    function: Callable | None

    def signature(self) -> Any:
        """Types of its arguments."""
        return MIX_SIGNATURE

    def __wrapper_address__(self) -> int:
        """Address of the compiled code; Numba asks for it."""
        with _MIXERS_ALONE:
            return -1 if self.function is None else _mixer(self.function).address


_MIXERS_ALONE = RLock()
"""Held where a mixer is compiled, so that all threads have the address of one."""


@cache
def _mixer(function: Callable) -> Any:
    options = {"nogil": True, "error_model": "numpy", "cache": kept(function)}
    return without_damage(lambda: numba.cfunc(MIX_SIGNATURE, **options)(function))


class Mixing(NamedTuple):
    """A fitted reference: what evaluates it, its components as a table, and its warp as one.

    The tables are packed by `pymc_tempering.references.mixture` and `warp`; the first has scratch
    space. They have no rows where the prior is the reference, or where there is no warp.
    """

    mixer: Mixer
    table: np.ndarray
    warp: np.ndarray

    def copy(self) -> "Mixing":
        """Return one with scratch space of its own."""
        return Mixing(self.mixer, self.table.copy(), self.warp)

    @property
    def size(self) -> int:
        """Numbers in the table."""
        return self.table.size


NO_MIXTURE = Mixing(Mixer(None), np.empty((0, 0)), np.empty((0, 0)))
MIXTURE = types.NamedTuple((types.FunctionType(MIX_SIGNATURE), MATRIX, MATRIX), Mixing)


class Point(NamedTuple):
    """A state and the values of the density there; the arrays are written in place.

    Attributes
    ----------
    x : array, shape (d,)
        Unconstrained, raveled free variables.
    values : array, shape (2,)
        `log_reference(x)` and `log_ratio(x)`, in nats.
    grads : array, shape (2, d)
        Their gradients.
    mixture : Mixing
        The fitted reference, with scratch space of this point's own.
    """

    x: np.ndarray
    values: np.ndarray
    grads: np.ndarray
    mixture: Mixing


POINT = types.NamedTuple((VECTOR, VECTOR, MATRIX, MIXTURE), Point)

INDICES = int64[::1]
KERNEL_SIGNATURE = types.void(DENSITY, POINT, float64, INDICES, VECTOR, MATRIX, RNG, VECTOR)
"""(density, point, beta, block, params, scratch, rng, info): see `pymc_tempering.kernels`."""


class Parts(NamedTuple):
    """Which coordinates and which tuning numbers belong to each kernel."""

    indices: np.ndarray
    table: np.ndarray


PARTS = types.NamedTuple((INDICES, int64[:, ::1]), Parts)
EXPLORE_SIGNATURE = types.void(DENSITY, POINT, float64, PARTS, VECTOR, MATRIX, RNG, MATRIX)
"""(density, point, beta, parts, params, scratch, rng, infos): see
`pymc_tempering.kernels.contract`."""
EXPLORE = types.FunctionType(EXPLORE_SIGNATURE)


def new_point(dim: int, mixture: Mixing = NO_MIXTURE) -> Point:
    """Allocate a point of `dim` dimensions, with its own copy of a packed mixture."""
    return Point(np.zeros(dim), np.zeros(2), np.zeros((2, dim)), mixture.copy())


def call_loop(loop: Any, density: Density, *args: Any) -> Any:
    """Call a loop of `njit` whose first argument is a density.

    Parameters
    ----------
    loop : callable
    density : Density
        If Python evaluates it, a Ctrl-C while the loop runs in the main thread is kept until it
        ends, which is soon: from then on the density is NaN. Raised in the middle of Python code
        that compiled code calls, it would be lost.
    *args

    Returns
    -------
    Any
        What the loop returns.

    Raises
    ------
    LikelihoodError
        The density waits for a call that hangs, see :mod:`pymc_tempering.core.turns`.
    """
    compile_now(loop)
    if density.data.evaluator is None:
        return loop(density, *args)
    if not density.data.in_turns:
        return _call_in_python(loop, density, *args)
    TURNS.check()
    found = _call_in_python(loop, density, *args)
    TURNS.check()
    return found


def _call_in_python(loop: Any, density: Density, *args: Any) -> Any:
    """Call a loop whose density Python evaluates; see `call_loop`."""
    if current_thread() is not main_thread():
        return loop(density, *args)
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        came.append(number)
        density.data.array[1] = 1

    handlers = {n: f for n in (signal.SIGINT, signal.SIGTERM) if callable(f := signal.getsignal(n))}
    for asked in handlers:
        signal.signal(asked, note)
    try:
        return loop(density, *args)
    finally:
        density.data.array[1] = 0
        for asked, handler in handlers.items():
            signal.signal(asked, handler)
        for number in came:
            signal.raise_signal(number)
