"""One curve of a prior sensitivity, and how it is shown."""

import html
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.result import plus_minus

SOURCES = ("reweighted", "rerun")
NUMBERS = ("log_z", "mcse", "log_bf", "log_bf_mcse", "ess", "khat")
MAX_ROWS = 30
"""Rows of a curve that are shown at most."""
DEFAULT_FACTOR = "log BF to default"
"""Head of the column of Bayes factors against the default."""


@dataclass(frozen=True, repr=False, eq=False)
class SensitivityCurve:
    """Evidence along the values of one number of a prior.

    Attributes
    ----------
    name : str
        The variable whose scale is multiplied, or the ``pm.Data`` that is set.
    kind : {"scale", "data"}
    values : ndarray, shape (n, ...)
        Factors of the scale, or values of the ``pm.Data``.
    default : ndarray, shape (...)
        1, or the value that the run was made with.
    log_z, mcse : ndarray, shape (n,)
        Log marginal likelihood and its Monte Carlo standard error (nats).
    log_bf, log_bf_mcse : ndarray, shape (n,)
        Log Bayes factor against the default and its error (nats); smaller than that of ``log_z``
        where both come from the same draws.
    ess : ndarray, shape (n,)
        Kish's effective number of the weighted draws; of a fresh run all draws.
    khat : ndarray, shape (n,)
        Shape of the Pareto tail of the weights of the default run's draws.
    khat_limit : float
        Above it they are not used.
    source : tuple of str
        "reweighted" or "rerun", for each value.
    posterior : Dataset, optional
        ``mean``, ``sd`` and ``mcse`` (dimension ``metric``) of variables along the curve
        (dimension ``value_index``).
    """

    name: str
    kind: str
    values: FloatArray
    default: FloatArray
    log_z: FloatArray
    mcse: FloatArray
    log_bf: FloatArray
    log_bf_mcse: FloatArray
    ess: FloatArray
    khat: FloatArray
    khat_limit: float
    source: tuple[str, ...]
    posterior: xr.Dataset | None = None

    def __post_init__(self) -> None:
        n = len(self.values)
        wrong = [name for name in NUMBERS if np.shape(getattr(self, name)) != (n,)]
        if wrong or len(self.source) != n:
            raise ValueError(f"{n} values, but another number of {wrong or ['source']}")
        if self.kind not in ("scale", "data") or not set(self.source) <= set(SOURCES):
            raise ValueError(f"unknown kind {self.kind!r} or source in {self.source}")
        if np.any(self.mcse < 0.0) or np.any(self.log_bf_mcse < 0.0):
            raise ValueError("standard errors must not be negative")

    @property
    def coordinate(self) -> FloatArray:
        """Place of each value on an axis, shape (n,): itself, or its number if it is an array."""
        return self.values if self.values.ndim == 1 else np.arange(len(self.values), dtype=float)

    @property
    def label(self) -> str:
        """Words for an axis."""
        if self.kind == "scale":
            return f"scale of {self.name}, times its default"
        return self.name if self.values.ndim == 1 else f"{self.name}, number of the value"

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row a value."""
        frame = pd.DataFrame({"variable": self.name, "value": self.coordinate})
        for name in NUMBERS:
            frame[name] = getattr(self, name)
        return frame.assign(source=list(self.source))

    def __repr__(self) -> str:
        lines = curve_lines(self, DEFAULT_FACTOR, self.log_bf, self.log_bf_mcse)
        return "\n".join(["SensitivityCurve", *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        table = curve_html(self, DEFAULT_FACTOR, self.log_bf, self.log_bf_mcse)
        return f"<div><b>SensitivityCurve</b>{table}</div>"


def curve_lines(
    curve: SensitivityCurve, head: str, factors: FloatArray, errors: FloatArray
) -> list[str]:
    """Title and rows of a curve as lines of text, with log Bayes factors under a head (nats)."""
    rows = _rows(curve, head, factors, errors)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    shown = ["  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in rows]
    return [*_title(curve), *shown]


def curve_html(curve: SensitivityCurve, head: str, factors: FloatArray, errors: FloatArray) -> str:
    """Title and rows of a curve as HTML, with log Bayes factors under a head (nats)."""
    names, *rows = _rows(curve, head, factors, errors)
    parts = [f"<p>{html.escape(', '.join(_title(curve)))}</p><table><tr>"]
    parts += [f"<th>{html.escape(text)}</th>" for text in names]
    parts.append("</tr>")
    for row in rows:
        cells = "".join(f"<td style='text-align:right'>{html.escape(t)}</td>" for t in row)
        parts.append(f"<tr>{cells}</tr>")
    return "".join([*parts, "</table>"])


def _rows(
    curve: SensitivityCurve, head: str, factors: FloatArray, errors: FloatArray
) -> list[tuple[str, ...]]:
    """Rows as texts, their head first; of long curves some are left out."""
    rows: list[tuple[str, ...]] = [("value", "log Z", head, "ESS", "k-hat", "source")]
    n = len(curve.values)
    shown = np.arange(n)
    if n > MAX_ROWS:
        shown = np.unique(np.linspace(0, n - 1, MAX_ROWS).round().astype(int))
    for i in shown:
        khat = curve.khat[i]
        rows.append(
            (
                f"{curve.coordinate[i]:.4g}",
                plus_minus(curve.log_z[i], curve.mcse[i]),
                plus_minus(factors[i], errors[i]) if errors[i] else "0",
                f"{curve.ess[i]:.0f}",
                "-" if np.isneginf(khat) else f"{khat:.2f}",
                curve.source[i],
            )
        )
    return rows


def _title(curve: SensitivityCurve) -> tuple[str, str]:
    n = len(curve.values)
    cut = "" if n <= MAX_ROWS else f"; {MAX_ROWS} of {n} rows"
    return curve.label, f"limit of k-hat {curve.khat_limit:.2f}{cut}"
