"""What a prior sensitivity returns: the evidence along the values of priors, as curves."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.result import Part, Shown, plus_minus

SOURCES = ("reweighted", "rerun")
NUMBERS = ("log_z", "mcse", "log_bf", "log_bf_mcse", "ess", "khat")
MAX_ROWS = 30
"""Rows of a curve that are shown at most."""
DEFAULT_FACTOR = "log BF to default"
"""Head of the column of Bayes factors against the default."""


@dataclass(frozen=True, repr=False, eq=False)
class SensitivityCurve(Shown):
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

    def _parts(self) -> list[Part]:
        return ["SensitivityCurve", *self._shown(DEFAULT_FACTOR, self.log_bf, self.log_bf_mcse)]

    def _shown(self, head: str, factors: FloatArray, errors: FloatArray) -> list[Part]:
        """Return titles and a table with log Bayes factors (nats) under a head; of many some."""
        n = len(self.values)
        some = np.unique(np.linspace(0, n - 1, min(n, MAX_ROWS)).round().astype(int))
        rows = [
            {
                "log Z": plus_minus(self.log_z[i], self.mcse[i]),
                head: plus_minus(factors[i], errors[i]) if errors[i] else "0",
                "ESS": f"{self.ess[i]:.0f}",
                "k-hat": "-" if np.isneginf(self.khat[i]) else f"{self.khat[i]:.2f}",
                "source": self.source[i],
            }
            for i in some
        ]
        cut = "" if n <= MAX_ROWS else f"; {MAX_ROWS} of {n} rows"
        table = pd.DataFrame(rows, [f"{self.coordinate[i]:.4g}" for i in some])
        return [self.label, f"limit of k-hat {self.khat_limit:.2f}{cut}", table]


@dataclass(frozen=True, repr=False, eq=False)
class PriorSensitivity(Shown):
    """Evidence of a model as its priors change.

    ``sensitivity["b"]`` is the curve of ``b``.

    Attributes
    ----------
    log_z, mcse : float
        Log marginal likelihood of the default model and its error (nats).
    verdict : str
        Verdict of the default run.
    curves : tuple of SensitivityCurve
        One a variable or ``pm.Data``.
    against : tuple of float, optional
        log Z and error (nats) of another model, where one was given.
    warnings : tuple of str
        One sentence each, saying what to do.
    """

    log_z: float
    mcse: float
    verdict: str
    curves: tuple[SensitivityCurve, ...]
    against: tuple[float, float] | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [curve.name for curve in self.curves]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"one curve a name is needed, got {names}")

    def __getitem__(self, name: str) -> SensitivityCurve:
        found = next((curve for curve in self.curves if curve.name == name), None)
        if found is None:
            raise KeyError(f"no curve of {name!r}, only of {[c.name for c in self.curves]}")
        return found

    def __iter__(self) -> Iterator[SensitivityCurve]:
        return iter(self.curves)

    def against_of(self, curve: SensitivityCurve) -> tuple[FloatArray, FloatArray]:
        """Return log Bayes factors of a curve's models over the other model, and their errors.

        Raises
        ------
        ValueError
            If no other model was given.
        """
        if self.against is None:
            raise ValueError("there is no other model: pass against= to prior_sensitivity")
        log_z, mcse = self.against
        return curve.log_z - log_z, np.hypot(curve.mcse, mcse)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row a value of each curve.

        Returns
        -------
        DataFrame
            Columns ``variable``, ``value``, ``log_z``, ``mcse``, ``log_bf``, ``log_bf_mcse`` (nats;
            against the default), ``ess``, ``khat``, ``source``; and ``log_bf_against``,
            ``log_bf_against_mcse`` where there is another model.
        """
        frames = []
        for curve in self.curves:
            frame = curve.to_dataframe()
            if self.against is not None:
                factor, error = self.against_of(curve)
                frame = frame.assign(log_bf_against=factor, log_bf_against_mcse=error)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def to_datatree(self) -> xr.DataTree:
        """Return a DataTree with one group a curve, which can be saved by ``to_netcdf``.

        Returns
        -------
        DataTree
            Groups named after the curves, with dimension ``value_index``; what holds for all
            curves is in the attributes at the root.
        """
        root = {"log_z": self.log_z, "mcse": self.mcse, "verdict": self.verdict}
        if self.against is not None:
            root["against_log_z"], root["against_mcse"] = self.against
        root["warnings"] = list(self.warnings)
        groups = {"/": xr.Dataset(attrs=root)}
        for curve in self.curves:
            dims = ("value_index", *(f"{curve.name}_dim_{i}" for i in range(curve.values.ndim - 1)))
            data = {name: ("value_index", getattr(curve, name)) for name in NUMBERS}
            found = xr.Dataset(
                {"value": (dims, curve.values), "default": (dims[1:], curve.default), **data},
                {"value_index": np.arange(len(curve.values))},
                {"kind": curve.kind, "khat_limit": curve.khat_limit},
            ).assign(source=("value_index", list(curve.source)))
            groups[curve.name] = found
            if curve.posterior is not None:
                groups[f"{curve.name}/posterior"] = curve.posterior
        return xr.DataTree.from_dict(groups)

    def _parts(self) -> list[Part]:
        rows = {"log Z of the default": f"{plus_minus(self.log_z, self.mcse)} nats"}
        if self.against is not None:
            rows["of the other model"] = f"{plus_minus(*self.against)} nats"
        parts: list[Part] = ["PriorSensitivity", rows]
        for curve in self.curves:
            head, factors = DEFAULT_FACTOR, (curve.log_bf, curve.log_bf_mcse)
            if self.against is not None:
                head, factors = "log BF to the other", self.against_of(curve)
            parts += curve._shown(head, *factors)
        return parts
