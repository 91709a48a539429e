"""Types of the compiled layer, and adapters from PyTensor graphs to functions of those types.

The chain loop is compiled once for all models: densities and kernels reach it as
first-class functions, so that a new model compiles its own density and nothing else.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import indent
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import float64, int64, types
from pytensor import config
from pytensor.compile import Function
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import numba_funcify_ensure_cache

from pymc_tempering.model.sources import hash_text

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


@contextmanager
def object_mode() -> Iterator[None]:
    """Let Numba call Python for what it cannot compile, without PyTensor's warning.

    This is the only way for a black-box likelihood and for a few of PyMC's distributions.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numba will use object mode")
        yield


def _adapt(graphs: Mapping[str, Function], name: str, source: str, signature: Any) -> Callable:
    """Compile `source`, which calls the graphs of functions by their names, to `signature`.

    PyTensor's own cache is used, because LLVM would optimize the whole graph of a closure again
    in each process. Fast math is off: with it the last bits differ between the process that
    compiles and those that load from the cache, and equal seeds would not give equal draws.
    """
    with config.change_flags(numba__fastmath=False), object_mode():
        environment, keys = {}, []
        for graph_name, function in graphs.items():
            environment[graph_name], key = numba_funcify_ensure_cache(function.maker.fgraph)
            keys.append(key)
    key = f"{'_'.join(map(str, keys))}_pymc_tempering_exact_{hash_text(source)}"
    return compile_source(source, name, environment, signature, None if None in keys else key)


def compile_source(
    source: str, name: str, environment: dict[str, Any], signature: Any, key: str | None
) -> Callable:
    """Compile the function `name` of a source text; cached on disk under `key` if there is one."""
    # A cached entry loads only if the module of its functions can be imported. The name is a part
    # of the key, so that an entry from before the module moved is not tried.
    environment = {"np": np, "__name__": __name__} | environment
    key = None if key is None else f"{key}_{__name__}"
    with config.change_flags(numba__fastmath=False):
        function = compile_numba_function_src(source, name, global_env=environment, cache_key=key)
        return numba.njit(signature, cache=key is not None, nogil=True)(function)


def adapt_density(full: Function | None, values: Function | None = None) -> Callable:
    """Turn functions of x into a density.

    The values are set to NaN first. A graph that raises (`CheckAndRaise`, a singular matrix) must
    not end the run, and must not leave the numbers of an earlier call in place.

    Parameters
    ----------
    full : Function, optional
        x -> (log_reference, log_ratio, gradient, gradient).
    values : Function, optional
        x -> (log_reference, log_ratio). Called where `grads` has no rows, and always if there is
        no `full`; it does not touch `grads`.
    """
    graphs = {"full": full, "alone": values}
    call_values = """
log_reference, log_ratio = alone(x)
values[0] = log_reference.item()
values[1] = log_ratio.item()
"""
    call_full = """
log_reference, log_ratio, grad_reference, grad_ratio = full(x)
values[0] = log_reference.item()
values[1] = log_ratio.item()
if grads.shape[0] > 0:
    grads[0] = grad_reference
    grads[1] = grad_ratio
"""
    if full is None:
        body = call_values
    elif values is None:
        body = call_full
    else:
        body = (
            f"if grads.shape[0] == 0:\n{indent(call_values.strip(), '    ')}\n"
            f"else:\n{indent(call_full.strip(), '    ')}\n"
        )
    source = f"""
def density(x, values, grads):
    values[0] = np.nan
    values[1] = np.nan
    try:
{indent(body.strip(), "        ")}
    except Exception:
        pass
"""
    return _adapt(
        {name: graph for name, graph in graphs.items() if graph is not None},
        "density",
        source,
        DENSITY_SIGNATURE,
    )


def adapt_draws(function: Function, n_rngs: int, slices: Sequence[slice]) -> Callable:
    """Turn a function of generators into `draw(out, *generators)`, which fills a row per draw."""
    rngs = ", ".join(f"rng{i}" for i in range(n_rngs))
    values = ", ".join(f"value{i}" for i in range(len(slices)))
    lines = [f"def draw(out, {rngs}):", "    for i in range(out.shape[0]):"]
    lines.append(f"        {values}{',' if len(slices) == 1 else ''} = graph({rngs})")
    lines += [
        f"        out[i, {s.start}:{s.stop}] = np.ravel(value{j})" for j, s in enumerate(slices)
    ]
    signature = types.void(MATRIX, *[RNG] * n_rngs)
    return _adapt({"graph": function}, "draw", "\n".join(lines) + "\n", signature)
