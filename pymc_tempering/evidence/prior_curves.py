"""What a prior sensitivity returns: the evidence along the values of priors, as curves."""

import html
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.evidence.sensitivity_curve import (
    DEFAULT_FACTOR,
    NUMBERS,
    SensitivityCurve,
    curve_html,
    curve_lines,
)


@dataclass(frozen=True, repr=False, eq=False)
class PriorSensitivity:
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

    def _factors(self, curve: SensitivityCurve) -> tuple[str, FloatArray, FloatArray]:
        """Return the factors that are shown: over the other model, where there is one."""
        if self.against is None:
            return DEFAULT_FACTOR, curve.log_bf, curve.log_bf_mcse
        return "log BF to the other", *self.against_of(curve)

    def __repr__(self) -> str:
        lines = ["PriorSensitivity"]
        lines.append(f"  log Z of the default  {plus_minus(self.log_z, self.mcse)} nats")
        if self.against is not None:
            lines.append(f"  of the other model    {plus_minus(*self.against)} nats")
        for curve in self.curves:
            lines += ["", *(f"  {line}" for line in curve_lines(curve, *self._factors(curve)))]
        return "\n".join([*lines, *(f"  ! {sentence}" for sentence in self.warnings)])

    def _repr_html_(self) -> str:
        parts = [
            "<div><b>PriorSensitivity</b><br>log Z of the default "
            f"{plus_minus(self.log_z, self.mcse)} nats"
        ]
        if self.against is not None:
            parts.append(f"<br>log Z of the other model {plus_minus(*self.against)} nats")
        parts += [curve_html(curve, *self._factors(curve)) for curve in self.curves]
        notes = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.warnings)
        return "".join([*parts, f"<ul>{notes}</ul>" if notes else "", "</div>"])
