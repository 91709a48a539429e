"""Checks of real-valued data, and expectations that the models share."""

from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from pymc_tempering.exceptions import DataError


def check_real(data: Any, name: str) -> np.ndarray:
    """Return data points in rows as a float array of shape (N, D).

    Raises
    ------
    DataError
        If they are not in two dimensions, none, or not finite.
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


def check_width(width: int, data: Any, name: str) -> None:
    """Raise DataError unless data have as many columns as those that were fitted."""
    if data.shape[1] != width:
        raise DataError(f"{name} was fitted to {width} columns, these data have {data.shape[1]}")


def positive(**values: float) -> None:
    """Raise ValueError unless every hyperparameter is a positive number."""
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} must be a positive number, not {value!r}.")


def whole(**values: int) -> None:
    """Raise ValueError unless every argument is a whole number of at least 1."""
    for name, value in values.items():
        if int(value) != value or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}.")


def dirichlet_kl(a: np.ndarray, b: np.ndarray) -> float:
    """Return KL(Dir(a) | Dir(b)) in nats."""
    log_p = digamma(a) - digamma(a.sum())
    return float(
        gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
        + ((a - b) * log_p).sum()
    )  # fmt: skip
