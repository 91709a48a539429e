"""One curve: draws of the default run, reweighted, and fresh runs where these fall short."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.arguments import listed
from pymc_tempering.bridge.bridge_sampling import bridge_draws
from pymc_tempering.comparison.marginal_likelihood import is_model_alone, is_smc_run
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import FINITE_VARIANCE_KHAT
from pymc_tempering.crosscheck.registry import is_tempered
from pymc_tempering.evidence.datatree import has_states, read_cycles, read_states
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.prior_curves import SensitivityCurve
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.reweight import (
    ChainDraws,
    Draws,
    moments,
    posterior_draws,
    reweight,
    state_draws,
)
from pymc_tempering.exceptions import (
    DataMismatchError,
    ModelError,
    NotTemperedError,
    TemperingWarning,
)
from pymc_tempering.model.constrain import Point
from pymc_tempering.model.density_change import DensityChange, density_change
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.new_data import checked_value
from pymc_tempering.model.prior_scales import OpenModel, scaled_model
from pymc_tempering.model.same_model import check_same_model
from pymc_tempering.model.unconstrain import unconstrained_values
from pymc_tempering.sampling.sample import sample

HELP = "sample with pymc_tempering.sample(), or pass the draws of pm.sample and the model"


@dataclass(frozen=True, eq=False)
class RunDraws:
    """Draws of a run: all weighted states where they were kept, else those of the posterior.

    Attributes
    ----------
    draws : Draws
    keep : ndarray of bool, shape (chain, draw or state)
        Which of the stored draws these n are.
    idata : DataTree
        What they come from: the group ``posterior`` has the stored draws, by (chain, draw, ...), in
        the constrained space.
    """

    draws: Draws
    keep: np.ndarray
    idata: xr.DataTree

    def point(self, model: pm.Model, names: Sequence[str]) -> Point:
        """Unconstrained values of free variables, (n, ...) each, by name of the value variable."""
        rvs = [model[name] for name in names]
        found = unconstrained_values(self.idata, model, model_layout(model), rvs)
        return {name: values[self.keep] for name, values in found.items()}

    def table(self, name: str) -> tuple[xr.DataArray, FloatArray]:
        """Return one draw of a variable, and all that count as a table (n, M)."""
        ordered = self.idata["posterior"][name].transpose("chain", "draw", ...)
        table = np.asarray(ordered.values, dtype=float)[self.keep]
        return ordered.isel(chain=0, draw=0, drop=True), table.reshape(len(table), -1)


def read_draws(idata: xr.DataTree) -> RunDraws:
    """Read the draws of a tempering run.

    Raises
    ------
    NotTemperedError, LadderError
        If ``idata`` holds no complete tempering run.
    """
    if has_states(idata):
        states = read_states(idata)
        groups = {"posterior": states.variables.rename(state="draw")}
        if "observed_data" in idata.children:
            groups["observed_data"] = idata["observed_data"].to_dataset()
        return RunDraws(state_draws(states), states.keep, xr.DataTree.from_dict(groups))
    draws, keep = posterior_draws(read_cycles(idata))
    return RunDraws(draws, keep, idata)


def change_at(
    run: RunDraws, model: pm.Model, change: DensityChange, values: FloatArray, default: np.ndarray
) -> FloatArray:
    """Log ratio of the changed density to that of the run's model at its draws, (n, V) (nats).

    Raises
    ------
    DataMismatchError
        The density is not a number somewhere, or zero under the model of the run.
    ModelError
        The density is zero at all draws with some value.
    """
    point = run.point(model, change.needs)
    now = change.evaluate(point, default)
    columns = [change.evaluate(point, value) - now for value in values]
    table = np.column_stack([np.broadcast_to(c, len(run.draws.weight)) for c in columns])
    nowhere = np.all(table == -np.inf, axis=0)
    if nowhere.any() and not change.moves_support:
        raise ModelError(
            f"At all draws of the run the density of {', '.join(change.terms)} is zero with the "
            f"value {values[nowhere.argmax()]}: it is outside of the range of this number."
        )
    odd = np.isnan(table) | (table == np.inf)
    if odd.any():
        raise DataMismatchError(
            f"The log density of {', '.join(change.terms)} is not a number at "
            f"{odd.any(axis=1).sum()} draws, or has no density there under the model that was "
            "passed: pass the model that the run was made with."
        )
    return table


def check_draws(idata: object) -> None:
    """Raise an error for what holds no draws that can be reweighted.

    Raises
    ------
    NotTemperedError
        The message says what to pass.
    """
    if is_tempered(idata):
        return
    if is_model_alone(idata):
        why = "a model alone has no draws to reweight"
    elif not isinstance(idata, xr.DataTree):
        why = f"draws are reweighted, and a {type(idata).__name__} holds none"
    elif is_smc_run(idata):
        why = (
            "the particles of pm.sample_smc are copies of each other, so that nothing tells the "
            "error of their average"
        )
    elif "variational" in idata.children:
        why = "the draws of a fit are those of an approximation, not of the posterior"
    elif "posterior" not in idata.children:
        found = listed(idata.children) or "nothing"
        why = f"this DataTree has no 'posterior' (it has {found})"
    else:
        return
    raise NotTemperedError(f"{why}: {HELP}")


def read_default(
    idata: xr.DataTree, model: pm.Model, rng: np.random.Generator, cores: int | None
) -> tuple[RunDraws, Evidence]:
    """Read the draws of a run, and estimate its evidence.

    That of draws without tempering statistics is estimated by bridge sampling.

    Raises
    ------
    DataMismatchError
        The run was made with another model.
    ModelError
        The evidence is over the constant of a prior that is not normalized, or cannot be estimated.
    NotTemperedError, LadderError
        There are no draws that can be used.
    """
    check_draws(idata)
    if not is_tempered(idata):
        check_same_model(idata, model)
        bridged = bridge_draws(idata, model, rng=rng, cores=cores)
        draws = ChainDraws(bridged.effects, bridged.proposal_variance, bridged.evidence.ess)
        keep = np.ones(bridged.effects.shape, dtype=bool)
        return RunDraws(draws, keep, idata), bridged.evidence
    evidence = estimate_quietly(idata)
    if evidence.prior_term is not None:
        raise ModelError(
            "The evidence of this run is divided by the normalizing constant of its prior (because "
            "of tempered=, or of a prior without random draws), which changes with the prior, too: "
            "call pmt.sample for each value, with pmt.compile(model).with_data(...)."
        )
    check_same_model(idata, model)
    return read_draws(idata), evidence


METRICS = ("mean", "sd", "mcse")


@dataclass(frozen=True, eq=False)
class PriorChange:
    """Values of one number of a prior, and what they do to the density.

    Attributes
    ----------
    name : str
        Of the variable or the ``pm.Data``.
    kind : {"scale", "data"}
    values : ndarray, shape (V, ...)
    default : ndarray, shape (...)
    opened : OpenModel
        A model with a ``pm.Data`` for the number.
    effect : DensityChange
        The part of its density that depends on it.
    """

    name: str
    kind: str
    values: np.ndarray
    default: np.ndarray
    opened: OpenModel
    effect: DensityChange


def change_of_scale(model: pm.Model, name: str, factors: ArrayLike) -> PriorChange:
    """Multiply the scale of a variable's prior.

    Raises
    ------
    ValueError
        A factor is not positive and finite.
    ImproperPriorError, ModelError
        There is no such prior, or it has no scale.
    """
    scaled = scaled_model(model, name)
    try:
        values = np.atleast_1d(np.asarray(factors, dtype=float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"scale of {name!r} must be positive numbers: {error}") from error
    if values.ndim != 1 or not values.size:
        raise ValueError(f"scale of {name!r} must be a list of factors, got shape {values.shape}")
    bad = values[~((values > 0.0) & np.isfinite(values))]
    if bad.size:
        raise ValueError(
            f"scale of {name!r} holds {bad[0]:g}: a factor must be positive and finite, for no "
            "other gives a proper prior."
        )
    effect = density_change(scaled.model, scaled.container)
    return PriorChange(name, "scale", values, np.array(1.0), scaled, effect)


def change_of_data(model: pm.Model, name: str, values: ArrayLike) -> PriorChange:
    """Set a `pm.Data` of a model.

    Raises
    ------
    DataMismatchError
        There is no such ``pm.Data``, or a value has another shape or kind.
    ModelError
        The density does not depend on it, or it holds observed values.
    """
    effect = density_change(model, name)  # raises an error for a name that means nothing
    container = model[name]
    assert isinstance(container, SharedVariable)
    default = np.asarray(container.get_value())
    given = np.asarray(values)
    if given.ndim == default.ndim:
        given = given[None]
    if given.shape[1:] != default.shape or not len(given):
        raise DataMismatchError(
            f"data of {name!r} must be a list of values of shape {default.shape}, that of the "
            f"pm.Data; got the shape {given.shape}."
        )
    checked = np.stack([checked_value(name, value, default) for value in given])
    return PriorChange(name, "data", checked, default, OpenModel(model, name), effect)


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


def reweighted_curve(change: PriorChange, default: Default) -> tuple[SensitivityCurve, np.ndarray]:
    """Return a curve from the draws of the default run, and where these do not suffice, (V,).

    There log Z has an infinite error, and it is not a number where the range of a variable depends
    on the value.
    """
    evidence, draws = default.evidence, default.run.draws
    table = change_at(default.run, default.model, change.effect, change.values, change.default)
    found = reweight(draws, table, evidence)
    moved = change.values.reshape(len(change.values), -1) != change.default.ravel()
    moves = moved.any(axis=1) & bool(change.effect.moves_support)
    no_error = np.isinf(found.log_ratio_mcse) & np.isfinite(evidence.mcse)
    short = (found.khat > draws.khat_limit) | no_error | moves
    log_ratio = np.where(moves, np.nan, found.log_ratio)
    summary = None
    if default.var_names:
        summary = _summary(default.run, table, default.var_names)
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
    rng: np.random.Generator,
    settings: dict[str, Any],
    report: Callable[[str], None],
) -> tuple[SensitivityCurve, list[str]]:
    """Replace the values where the draws do not suffice by fresh runs; also what these warn of.

    Values of one shape use the same compiled code.

    Parameters
    ----------
    settings : dict
        Arguments of :func:`pymc_tempering.sample`.
    report : callable
        Takes a line of progress.
    """
    names = ("log_z", "mcse", "log_bf", "log_bf_mcse", "ess")
    numbers = np.array([getattr(curve, name) for name in names])
    source, summary, sentences = list(curve.source), curve.posterior, []
    seeds, opened = rng.spawn(len(change.values)), change.opened
    places = np.flatnonzero(short).tolist()
    for n, i in enumerate(places):
        report(f"Fresh run {n + 1} of {len(places)} along {change.name}")
        handle = CompiledModel(opened.model).with_data(**{opened.container: change.values[i]})
        given: dict[str, Any] = {"random_seed": seeds[i], "quiet": True, "model": handle}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TemperingWarning)  # they are in the evidence
            idata = sample(**(given | settings))
            evidence = estimate_quietly(idata)
        sizes = idata["posterior"].sizes
        numbers[:, i] = (
            evidence.log_z,
            evidence.mcse,
            evidence.log_z - default.evidence.log_z,
            np.hypot(evidence.mcse, default.evidence.mcse),
            sizes["chain"] * sizes["draw"],
        )
        source[i] = "rerun"
        if evidence.verdict != "ok":
            where = f"{curve.name} at {curve.coordinate[i]:.4g}"
            said = " ".join(evidence.warnings)
            sentences.append(f"The fresh run of {where} is {evidence.verdict!r}: {said}")
        if summary is not None:
            run = read_draws(idata)
            own = _summary(run, np.zeros((len(run.draws.weight), 1)), default.var_names)
            for name in default.var_names:
                summary[name][i] = own[name].values[0]  # dimensions may have other names
    changed: dict[str, Any] = dict(zip(names, numbers, strict=True))
    return replace(curve, **changed, source=tuple(source), posterior=summary), sentences


def warnings_of(curve: SensitivityCurve, short: np.ndarray) -> list[str]:
    """Say at which values no error can be stated, and where that of reweighted draws is rough.

    `short` are those where the draws do not suffice and no fresh runs were made.
    """
    reweighted = np.array(curve.source) == "reweighted"
    rough = reweighted & (curve.khat > FINITE_VARIANCE_KHAT) & np.isfinite(curve.mcse)

    def at(here: np.ndarray) -> str:
        return f"{curve.name} at {', '.join(f'{x:.3g}' for x in curve.coordinate[here])}"

    sentences = []
    if short.any():
        sentences.append(
            f"The draws of the default run do not reach {at(short)} (k-hat above "
            f"{curve.khat_limit:.2f}, few tours, or another range of a variable), so the mcse "
            "there is infinite: pass rerun=True."
        )
    if rough.any():
        sentences.append(
            f"The k-hat of {at(rough)} is above {FINITE_VARIANCE_KHAT}, so the mcse there is rough "
            "and log Z more likely too low: sample the default run with keep='states', or with "
            "more draws."
        )
    return sentences


def _summary(run: RunDraws, table: FloatArray, var_names: tuple[str, ...]) -> xr.Dataset:
    """Mean, sd and mcse of variables under each change."""
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
