"""What a row of the benchmark of real models is: a builder, its data, and its exact evidence."""

from collections.abc import Callable
from dataclasses import dataclass

import pymc as pm

HALVES = ("tuned", "unseen")
"""Known while the package was worked on, or written after it was frozen."""


@dataclass(frozen=True)
class RealModel:
    """A model, where its data are from, and its exact log evidence where there is a formula.

    Attributes
    ----------
    build : callable
        Builds the PyMC model.
    dim : int
        Free parameters.
    rows : int
        Rows of data.
    data : str
        Where the data are from.
    exact : callable, optional
        Gives log Z and its error (nats) by conjugacy, sums or quadrature.
    half : {"tuned", "unseen"}
        Whether the model was known while the package was worked on.
    dear : bool
        Whether the density is too dear for the longest of the long runs.
    several : bool
        Whether the posterior has several modes that draws must share rightly (label switching).
    """

    build: Callable[[], pm.Model]
    dim: int
    rows: int
    data: str
    exact: Callable[[], tuple[float, float]] | None = None
    half: str = "tuned"
    dear: bool = False
    several: bool = False

    def __post_init__(self) -> None:
        if self.half not in HALVES:
            raise ValueError(f"half must be one of {HALVES}, got {self.half!r}")
        if self.dim < 1 or self.rows < 1:
            raise ValueError(f"dim and rows must be positive, got {self.dim} and {self.rows}")
