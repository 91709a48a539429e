"""Types of the compiled layer, and how a source text is compiled to one of them.

The chain loop is compiled once for all models: densities and kernels reach it as
first-class functions, so that a new model compiles its own density and nothing else.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64, types

from pymc_tempering.borrowed.pytensor_graphs import compile_numba_function_src
from pymc_tempering.model.exactly import exactly
from pymc_tempering.model.jit import compile_keyed

VECTOR = float64[::1]
MATRIX = float64[:, ::1]
RNG = types.NumPyRandomGeneratorType("NumPyRandomGeneratorType")

LOG_REFERENCE, LOG_RATIO = 0, 1
"""Positions in `Point.values`, and rows of `Point.grads`."""


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
    mixture : array
        Components of a fitted reference, packed by `pymc_tempering.references.mixture`, with
        scratch space of this point's own; no rows where the prior is the reference.
    """

    x: np.ndarray
    values: np.ndarray
    grads: np.ndarray
    mixture: np.ndarray


NO_MIXTURE = np.empty((0, 0))

POINT = types.NamedTuple((VECTOR, VECTOR, MATRIX, MATRIX), Point)
DENSITY_SIGNATURE = types.void(VECTOR, VECTOR, MATRIX)
DENSITY = types.FunctionType(DENSITY_SIGNATURE)

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
`pymc_tempering.kernels.compound`."""
EXPLORE = types.FunctionType(EXPLORE_SIGNATURE)


def new_point(dim: int, mixture: np.ndarray = NO_MIXTURE) -> Point:
    """Allocate a point of `dim` dimensions, with its own copy of a packed mixture."""
    return Point(np.zeros(dim), np.zeros(2), np.zeros((2, dim)), mixture.copy())


def compile_source(
    source: str,
    name: str,
    environment: dict[str, Any],
    signature: Any,
    key: str | None,
    **options: Any,
) -> Callable:
    """Compile the function `name` of a source text; cached on disk under `key` if there is one.

    Further options are those of `numba.njit`.
    """
    # A cached entry loads only if the module of its functions can be imported. The name is a part
    # of the key, so that an entry from before the module moved is not tried.
    environment = {"np": np, "__name__": __name__} | environment
    key = None if key is None else f"{key}_{__name__}"
    with exactly():
        function = compile_numba_function_src(source, name, global_env=environment, cache_key=key)
        return compile_keyed(function, signature, key, **options)
