"""One curve of a prior sensitivity: reweighted draws, and fresh runs where these do not suffice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import FINITE_VARIANCE_KHAT
from pymc_tempering.evidence.prior_curves import SensitivityCurve
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.reweight import moments, reweight
from pymc_tempering.sensitivity.changes import PriorChange
from pymc_tempering.sensitivity.reruns import rerun_with
from pymc_tempering.sensitivity.run_draws import RunDraws, change_at, read_draws

METRICS = ("mean", "sd", "mcse")


@dataclass(frozen=True, eq=False)
class Default:
    """The run that a curve starts from.

    Attributes
    ----------
    model : pymc.Model
    run : RunDraws
    evidence : Evidence
    var_names : tuple of str
        Variables whose moments are computed along the curve.
    """

    model: pm.Model
    run: RunDraws
    evidence: Evidence
    var_names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Reruns:
    """How fresh runs are made.

    Attributes
    ----------
    settings : mapping
        Arguments of :func:`pymc_tempering.sample`.
    rng : Generator
    report : callable
        Takes a line of progress.
    """

    settings: Mapping[str, Any]
    rng: np.random.Generator
    report: Callable[[str], None]


def reweighted_curve(change: PriorChange, default: Default) -> tuple[SensitivityCurve, np.ndarray]:
    """Return a curve from the draws of the default run, and where these do not suffice, (V,).

    There log Z has an infinite error, and it is not a number where the range of a variable depends
    on the value.
    """
    evidence, draws = default.evidence, default.run.draws
    held = change.opened.held
    table = change_at(
        default.run, default.model, change.effect, held(change.values), held(change.default)
    )
    found = reweight(draws, table, evidence)
    moved = change.values.reshape(len(change.values), -1) != change.default.ravel()
    moves = moved.any(axis=1) & bool(change.effect.moves_support)
    no_error = np.isinf(found.log_ratio_mcse) & np.isfinite(evidence.mcse)
    short = (found.khat > draws.khat_limit) | no_error | moves
    log_ratio = np.where(moves, np.nan, found.log_ratio)
    summary = _summary(default.run, table, default.var_names)
    if summary is not None:
        summary = summary.where(xr.DataArray(~short, dims="value_index"))
    curve = SensitivityCurve(
        name=change.name,
        kind=change.kind,
        values=change.values,
        default=change.default,
        log_z=evidence.log_z + log_ratio,
        mcse=np.where(short, np.inf, found.mcse),
        log_bf=log_ratio,
        log_bf_mcse=np.where(short, np.inf, found.log_ratio_mcse),
        ess=found.ess,
        khat=np.where(moves, np.inf, found.khat),
        khat_limit=draws.khat_limit,
        source=("reweighted",) * len(change.values),
        posterior=summary,
    )
    return curve, short


def with_reruns(
    curve: SensitivityCurve,
    short: np.ndarray,
    change: PriorChange,
    default: Default,
    reruns: Reruns,
) -> tuple[SensitivityCurve, list[str]]:
    """Replace the values where the draws do not suffice by fresh runs; also what these warn of."""
    numbers: dict[str, Any] = {
        name: np.array(getattr(curve, name))
        for name in ("log_z", "mcse", "log_bf", "log_bf_mcse", "ess")
    }
    source, summary, sentences = list(curve.source), curve.posterior, []
    seeds = reruns.rng.spawn(len(change.values))
    places = np.flatnonzero(short).tolist()
    for n, i in enumerate(places):
        reruns.report(f"Fresh run {n + 1} of {len(places)} along {change.name}")
        idata, evidence = rerun_with(
            change.opened.model,
            change.opened.container,
            change.opened.held(change.values[i]),
            seeds[i],
            reruns.settings,
        )
        sizes = idata["posterior"].sizes
        numbers["log_z"][i], numbers["mcse"][i] = evidence.log_z, evidence.mcse
        numbers["log_bf"][i] = evidence.log_z - default.evidence.log_z
        numbers["log_bf_mcse"][i] = np.hypot(evidence.mcse, default.evidence.mcse)
        numbers["ess"][i] = sizes["chain"] * sizes["draw"]
        source[i] = "rerun"
        if evidence.verdict != "ok":
            sentences.append(_words_of(curve, i, evidence))
        if summary is not None:
            run = read_draws(idata)
            own = _summary(run, np.zeros((len(run.draws.weight), 1)), default.var_names)
            assert own is not None
            for name in default.var_names:
                summary[name][i] = own[name].values[0]  # dimensions may have other names
    return replace(curve, **numbers, source=tuple(source), posterior=summary), sentences


def _words_of(curve: SensitivityCurve, i: int, evidence: Evidence) -> str:
    where = f"{curve.name} at {curve.coordinate[i]:.4g}"
    return f"The fresh run of {where} is {evidence.verdict!r}: {' '.join(evidence.warnings)}"


def short_warning(curve: SensitivityCurve, short: np.ndarray) -> list[str]:
    """Say at which values the draws do not suffice, where no fresh runs are made."""
    if not short.any():
        return []
    values = ", ".join(f"{x:.3g}" for x in curve.coordinate[short])
    return [
        f"The draws of the default run do not reach {curve.name} at {values} (k-hat above "
        f"{curve.khat_limit:.2f}, few tours, or another range of a variable), so the mcse there is "
        "infinite: pass rerun=True."
    ]


def rough_warning(curve: SensitivityCurve) -> list[str]:
    """Say at which values the error of reweighted draws is rough."""
    fresh = np.array(curve.source) == "rerun"
    rough = ~fresh & (curve.khat > FINITE_VARIANCE_KHAT) & np.isfinite(curve.mcse)
    if not rough.any():
        return []
    values = ", ".join(f"{x:.3g}" for x in curve.coordinate[rough])
    return [
        f"The k-hat of {curve.name} at {values} is above {FINITE_VARIANCE_KHAT}, so the mcse there "
        "is rough and log Z more likely too low: sample the default run with keep='states', or "
        "with more draws."
    ]


def _summary(run: RunDraws, table: FloatArray, var_names: Sequence[str]) -> xr.Dataset | None:
    """Mean, sd and mcse of variables under each change."""
    if not var_names:
        return None
    found = {}
    for name in var_names:
        one, values = run.table(name)
        numbers = moments(run.draws, table, values).transpose(1, 0, 2)
        shape = (table.shape[1], len(METRICS), *one.shape)
        found[name] = xr.DataArray(
            numbers.reshape(shape),
            dims=("value_index", "metric", *one.dims),
            coords=dict(one.coords) | {"metric": list(METRICS)},
        )
    return xr.Dataset(found)
