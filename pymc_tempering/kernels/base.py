"""The contract of a kernel: a compiled transition and how its tuning numbers are laid out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ACCEPTANCE, N_EVALUATIONS, DIVERGED = 0, 1, 2
N_INFO = 3

STEP_SIZE = 0
"""Position of the step size in a row of tuning numbers."""


@dataclass(frozen=True)
class Kernel:
    """A transition that leaves `pi_beta` invariant.

    Attributes
    ----------
    name : str
    transition : callable
        Compiled function of the signature `pymc_tempering.compiled.KERNEL_SIGNATURE`.
    n_scratch : int
        Rows of scratch space of length d that it needs.
    pack : callable
        `pack(step_size, scale)`: tuning numbers of one rung, of a step size and the standard
        deviations `scale`, shape (d,), of the rung's distribution.
    target_accept : float
        Acceptance probability that the step size is tuned for.
    rebuild : tuple
        `(function, args)` that makes this kernel again, for pickling: compiled code stays
        where it is.
    """

    name: str
    transition: Callable
    n_scratch: int
    pack: Callable[[float, np.ndarray], np.ndarray]
    target_accept: float
    rebuild: tuple[Callable[..., "Kernel"], tuple[float, ...]]

    def __reduce__(self) -> tuple[Callable[..., "Kernel"], tuple[Any, ...]]:
        return self.rebuild

    def __post_init__(self) -> None:
        if not 0 < self.target_accept < 1:
            raise ValueError(f"target_accept must lie between 0 and 1, not {self.target_accept!r}.")
