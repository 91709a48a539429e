"""The contract of a kernel: a compiled transition of a block, and the density that it keeps."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numba import float64

from pymc_tempering.model.compiled import DENSITY, LOG_RATIO, LOG_REFERENCE, POINT
from pymc_tempering.model.jit import njit
from pymc_tempering.references.compiled_mixture import evaluate_values

ACCEPTANCE, N_EVALUATIONS, DIVERGED = 0, 1, 2
N_INFO = 3

CONTINUOUS, BINARY, BOUNDED, INTEGER, FIXED_SUM, JOINT = (
    "continuous", "binary", "bounded", "integer", "fixed sum", "joint",
)  # fmt: skip
"""Kinds of variables: real, 0 or 1, integers in known bounds, integers without, vectors of counts
with a fixed sum (a multinomial), and other discrete vectors, whose elements cannot move one at a
time."""


SMALL_BLOCK = 30
"""Coordinates up to which the products with a dense metric cost next to nothing."""


@dataclass(frozen=True, eq=False)
class Block:
    """Free variables that one kernel moves.

    Attributes
    ----------
    indices : array of int, shape (b,)
        Their positions in the raveled vector.
    lower, upper : array, shape (b,)
        Bounds that the values cannot leave, inclusive; infinite for real variables and for
        integers without known bounds.
    whole : array of bool, shape (b,)
        Whether the values are whole numbers.
    names : tuple of str
        Value variables.
    """

    indices: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    whole: np.ndarray
    names: tuple[str, ...] = ()

    @classmethod
    def real(cls, dim: int) -> "Block":
        """Block of all of `dim` real coordinates."""
        return cls(
            np.arange(dim), np.full(dim, -np.inf), np.full(dim, np.inf), np.zeros(dim, dtype=bool)
        )

    @property
    def size(self) -> int:
        """Number of coordinates b."""
        return self.indices.size

    def reversed(self) -> "Block":
        """Put the same coordinates in reverse order."""
        parts = {name: getattr(self, name)[::-1] for name in ("indices", "lower", "upper", "whole")}
        return replace(self, **parts)


@dataclass(frozen=True)
class Kernel:
    """A transition of a block of coordinates that leaves `pi_beta` invariant.

    Attributes
    ----------
    name : str
    transition : callable
        Compiled function of the signature `pymc_tempering.model.compiled.KERNEL_SIGNATURE`.
    n_scratch : int
        Rows of scratch space of length d that it needs.
    pack : callable
        `pack(step_size, metric, block)`: tuning numbers of one rung. `metric` holds the standard
        deviations of the rung's distribution, shape (b,), or, for a dense kernel, the lower
        Cholesky factor of its covariance, shape (b, b). With `lengths` also
        `pack(step_size, metric, block, length)`.
    kinds : frozenset of str
        Kinds of variables that it can move.
    target_accept : float, optional
        Acceptance probability that the step size is tuned for; None if there is nothing to tune.
    uses_gradient : bool
        Whether it reads `point.grads`; if so, they are those of the state when it returns.
    dense : bool or None
        Whether its metric is a covariance; None: for at most `SMALL_BLOCK` coordinates.
    dense_form : callable, optional
        Makes the same kernel with `dense` true, where `dense` is None.
    prior_only : bool
        Whether it only works on the path from the prior: it leaves prior times likelihood to the
        power beta invariant.
    bind : callable, optional
        `bind(model, layout, block)` makes the kernel that moves this block of this model, where
        the kernel must know them.
    lengths : tuple of float
        Trajectory lengths that the warm-up chooses from at each rung, the usual one first; empty
        where there is no choice.
    reversal : {"self", "block"} or callable, optional
        What undoes it in time. P~ is the reversal of P if pi(x) P(x, y) = pi(y) P~(y, x), with pi
        the law that both leave invariant. "self": P~ = P. "block": P~ is P with the coordinates
        of its block in reverse order, as for coordinates that are updated one after the other.
        Otherwise a function that makes the kernel P~; None where it is not known.
    carries : bool, default False
        Whether its first row of scratch keeps its content between the transitions of one state,
        where a standard normal momentum lies at first. Such a kernel is for annealing: a chain
        that must forget its past when it comes to the reference cannot have it.
    keeps_state : bool, default False
        Whether it keeps more from one transition to the next than the chain does, in Python, so
        that a chain cannot be stored and gone on with.
    rebuild : tuple
        `(function, args)` that makes this kernel again, for pickling: compiled code stays
        where it is.
    """

    name: str
    transition: Callable
    n_scratch: int
    pack: Callable[..., np.ndarray]
    rebuild: tuple[Callable[..., "Kernel"], tuple[Any, ...]]
    kinds: frozenset[str] = field(default=frozenset({CONTINUOUS}))
    target_accept: float | None = None
    uses_gradient: bool = False
    dense: bool | None = False
    dense_form: Callable[[], "Kernel"] | None = None
    prior_only: bool = False
    bind: Callable[..., "Kernel"] | None = None
    lengths: tuple[float, ...] = ()
    reversal: Literal["self", "block"] | Callable[[], "Kernel"] | None = None
    carries: bool = False
    keeps_state: bool = False

    def __reduce__(self) -> tuple[Callable[..., "Kernel"], tuple[Any, ...]]:
        return self.rebuild

    def __post_init__(self) -> None:
        if self.target_accept is not None and not 0 < self.target_accept < 1:
            raise ValueError(f"target_accept must lie between 0 and 1, not {self.target_accept!r}.")


@njit(float64(DENSITY, POINT, float64), error_model="numpy")
def log_density_at(density, point, beta):  # type: ignore[no-untyped-def]
    """Evaluate a point without gradients; its tempered log density, -inf where it is no number."""
    evaluate_values(density, point)
    value = point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO]
    return value if -np.inf < value < np.inf else -np.inf
