"""Checks of real-valued data, and expectations that the models share."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from pymc_tempering.exceptions import DataError
from pymc_tempering.variational.conjugate.protocol import Globals


def check_real(data: Any, name: str) -> np.ndarray:
    """Return data points in rows as a float array of shape (N, D).

    Raises
    ------
    DataError
        If there are none, or they are not two-dimensional, or not finite.
    """
    array = np.asarray(data, dtype=float)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(
            f"{name} takes data of shape (N, D), a data point a row; got shape {array.shape}. "
            "One-dimensional data need x[:, None]"
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise DataError(f"{name}: data[{row}, {column}] is {array[row, column]}")
    return np.ascontiguousarray(array)


class RealRows(ABC):
    """The part of a `ConjugateModel` that is common to all whose data are rows of real numbers."""

    name: str

    @abstractmethod
    def initialize(self, data: np.ndarray, rng: np.random.Generator) -> Globals:
        """Draw global parameters to start from."""

    def check(self, data: Any) -> np.ndarray:
        """Return the data as a float array of shape (N, D)."""
        return check_real(data, self.name)

    def n_data(self, data: np.ndarray) -> int:
        """Return N."""
        return len(data)

    def take(self, data: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return some rows."""
        return data[rows]

    def perturb(
        self, lam: Globals, data: np.ndarray, share: float, rng: np.random.Generator
    ) -> None:
        """Mix in a share of first parameters; natural parameters are a convex set."""
        for old, new in zip(lam, self.initialize(data, rng), strict=True):
            old *= 1.0 - share
            old += share * new


def check_width(width: int, data: Any, name: str) -> None:
    """Raise DataError unless data have as many columns as those that were fitted."""
    if data.shape[1] != width:
        raise DataError(f"{name} was fitted to {width} columns, these data have {data.shape[1]}")


def check_positive(**values: float) -> None:
    """Raise ValueError unless every hyperparameter is a positive number."""
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} must be a positive number, not {value!r}.")


def dirichlet_kl(a: np.ndarray, b: np.ndarray) -> float:
    """Return KL(Dir(a) | Dir(b)) in nats."""
    log_p = digamma(a) - digamma(a.sum())
    return float(
        gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
        + ((a - b) * log_p).sum()
    )  # fmt: skip
