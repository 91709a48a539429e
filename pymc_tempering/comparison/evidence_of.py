"""The table of what can be turned into an evidence, and the way in for each kind of thing.

One row of `KINDS` is one kind of thing that a user may have. The first row that fits is used. What
fits none gets a sentence that names the function that would help.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.backends.base import MultiTrace
from pymc.variational.opvi import Approximation

from pymc_tempering.arguments import check_choice
from pymc_tempering.comparison.smc_runs import is_smc_run, smc_evidence
from pymc_tempering.comparison.stored_check import agreed_evidence, believed_evidence
from pymc_tempering.core.cycles import LADDER_STATS, RUNG_STATS
from pymc_tempering.crosscheck.store import GROUP as CHECK_GROUP
from pymc_tempering.crosscheck.store import CrossCheck, read_cross_check
from pymc_tempering.evidence import ESTIMATORS, Evidence
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.result import GROUP as EVIDENCE_GROUP
from pymc_tempering.exceptions import ImproperPriorError, NotTemperedError
from pymc_tempering.model.check import is_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel

FIT_NOTE = (
    "The estimate rests on draws around the fit, which do not see a mode that the fit missed, so "
    "nothing checks it: run pymc_tempering.sample beside it."
)
"""Why an evidence from a fit is unchecked."""


MODEL_ALONE = (
    "a model alone has no draws yet: idata = pymc_tempering.sample(model=model) makes a run "
    "to pass here"
)
"""What helps whoever has but a model."""


@dataclass(frozen=True, eq=False)
class Extras:
    """What goes with the thing.

    Attributes
    ----------
    model : pymc.Model, optional
    rng : numpy.random.Generator
    cores : int, optional
    progressbar : bool
    given : bool
        Whether the user gave the model, and did not just have it on the context stack.
    """

    model: pm.Model | None = None
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    cores: int | None = None
    progressbar: bool = False
    given: bool = True


@dataclass(frozen=True)
class Kind:
    """A kind of thing that an evidence can be had from.

    Attributes
    ----------
    name : str
        What it is, for texts.
    fits : callable
        Whether a thing is of this kind.
    read : callable
        ``(thing, extras)`` to ``Evidence``, without warnings outside of it.
    """

    name: str
    fits: Callable[[Any], bool]
    read: Callable[[Any, Extras], Evidence]


def evidence_of(thing: Any, extras: Extras, method: str | None = None) -> Evidence:
    """Estimate the evidence from whatever a user has; warnings stay in the result.

    Raises
    ------
    NotTemperedError
        If nothing can be read from it; the message names what can help.
    DataMismatchError
        If a run was made with another model than the one that the user gave.
    ValueError
        If the method is not known.
    """
    if extras.model is not None and extras.given and is_tempered(thing):
        from pymc_tempering.bridge.target import check_same_model  # slow to import

        check_same_model(thing, extras.model)
    if method is not None:
        check_choice("method", method, [*sorted(ESTIMATORS), *POSTERIOR_METHODS])
        if method in ESTIMATORS:
            return estimate_quietly(thing, method)
        return _from_posterior(thing, extras, method)
    for kind in KINDS:
        if kind.fits(thing):
            return kind.read(thing, extras)
    raise NotTemperedError(_advice(thing))


def _has(*groups: str) -> Callable[[Any], bool]:
    return lambda thing: isinstance(thing, xr.DataTree) and set(groups) <= set(thing.children)


def is_tempered(thing: Any) -> bool:
    """Whether a DataTree has statistics of a tempering run, be it not all of them."""
    if not _has("sample_stats")(thing):
        return False
    # The ladder becomes a coordinate when a run is converted.
    names = set(map(str, thing["sample_stats"].to_dataset().variables))
    return bool(names & {*RUNG_STATS, *LADDER_STATS} - {"beta"})


def is_fit(thing: Any) -> bool:
    """Whether something is a fit of ``pmt.fit``, or its report."""
    report = getattr(thing, "tempering", thing)
    return hasattr(report, "elbo_history") and hasattr(report, "evidence")


def is_model_alone(thing: Any) -> bool:
    """Whether something is a model of PyMC, in a handle or of Bambi or not."""
    inner = getattr(getattr(thing, "backend", None), "model", None)
    return isinstance(thing, CompiledModel) or is_model(thing) or is_model(inner)


def _from_run(tree: xr.DataTree, extras: Extras) -> Evidence:
    evidence = estimate_quietly(tree)
    if CHECK_GROUP not in tree.children:
        return evidence
    return agreed_evidence(evidence, read_cross_check(tree))


def _from_fit(thing: Any, extras: Extras) -> Evidence:
    report = getattr(thing, "tempering", thing)
    if report.evidence is None:
        raise ImproperPriorError(
            "the fit has no evidence: its model has none (an improper prior), or its log density "
            f"is not a number somewhere. Its ELBO, {report.elbo:.3f} nats, is a lower bound at "
            "best and is not taken for log Z; give every variable a proper prior and fit again"
        )
    return _said_of_a_fit(report.evidence)


def _from_stored_fit(tree: xr.DataTree, extras: Extras) -> Evidence:
    """Read what ``pmt.to_datatree`` stored of a fit."""
    attrs = tree["variational"].attrs
    if not {"log_z", "log_z_mcse"} <= set(attrs):
        raise NotTemperedError(
            "the group 'variational' was not written by pmt.to_datatree(approx): pass the "
            "approximation itself"
        )
    if np.isnan(attrs["log_z"]):
        raise ImproperPriorError(
            "the stored fit has no evidence: its model has none (an improper prior). Its ELBO is a "
            "lower bound at best and is not taken for log Z"
        )
    known = bool(np.isfinite(attrs["log_z_mcse"]))
    evidence = Evidence(
        log_z=float(attrs["log_z"]),
        mcse=float(attrs["log_z_mcse"]),
        method="psis_vi",
        verdict="unchecked",
        bias_direction="" if known else "below",
    )
    return _said_of_a_fit(evidence)


def _said_of_a_fit(evidence: Evidence) -> Evidence:
    """Say why it is unchecked; without an error it is a lower bound in expectation."""
    note = FIT_NOTE
    if evidence.bias_direction:
        note = "Without an error log Z is a lower bound in expectation, not an estimate. " + note
    return replace(evidence, warnings=(*evidence.warnings, note))


def _from_draws(tree: xr.DataTree, extras: Extras) -> Evidence:
    return _from_posterior(tree, extras, "bridge_sampling")


def _from_posterior(tree: Any, extras: Extras, method: str) -> Evidence:
    """Estimate by a method that evaluates the model at posterior draws."""
    if not _has("posterior")(tree):
        raise NotTemperedError(_advice(tree))
    if extras.model is None:
        raise NotTemperedError(
            f"this DataTree holds {_drawn_by(tree)} and no tempering run, so that log Z needs the "
            "model that they were drawn from: pass model= (models= to compare, bayes_factor and "
            "average), or call pymc_tempering.bridge_sampling(idata, model). A run of "
            "pymc_tempering.sample needs none"
        )
    from pymc_tempering.bridge import estimate_by_bridge, estimate_by_importance  # slow to import

    estimate = {
        "bridge_sampling": estimate_by_bridge,
        "importance_sampling": estimate_by_importance,
    }[method]
    with compiling_status(extras.progressbar) as report:
        report(method.replace("_", " ").capitalize())
        return estimate(tree, extras.model, rng=extras.rng, cores=extras.cores)


POSTERIOR_METHODS = ("bridge_sampling", "importance_sampling")
"""Methods that take posterior draws of any sampler, and the model."""


def _drawn_by(tree: xr.DataTree) -> str:
    """Words for whose draws these are."""
    library = tree["posterior"].attrs.get("inference_library")
    return "posterior draws" if library is None else f"posterior draws of {library}"


KINDS = (
    Kind("an Evidence", lambda thing: isinstance(thing, Evidence), lambda thing, _: thing),
    Kind(
        "a CrossCheck",
        lambda thing: isinstance(thing, CrossCheck),
        lambda thing, _: believed_evidence(thing),
    ),
    Kind("a fit of pmt.fit", is_fit, _from_fit),
    Kind("a run of simulated tempering", is_tempered, _from_run),
    Kind("a stored Evidence", _has(EVIDENCE_GROUP), lambda tree, _: Evidence.from_datatree(tree)),
    Kind(
        "a stored cross-check",
        _has(CHECK_GROUP),
        lambda tree, _: believed_evidence(read_cross_check(tree)),
    ),
    Kind(
        "a run of pm.sample_smc",
        lambda thing: isinstance(thing, xr.DataTree) and is_smc_run(thing),
        lambda tree, _: smc_evidence(tree),
    ),
    Kind("a stored fit of pmt.fit", _has("variational"), _from_stored_fit),
    Kind("posterior draws of any sampler", _has("posterior"), _from_draws),
)
"""What an evidence can be had from, in the order in which it is looked for."""


REFUSED: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (
        is_model_alone,
        f"{MODEL_ALONE}, and pymc_tempering.smc(model) estimates log Z without one",
    ),
    (
        lambda thing: isinstance(thing, str | PathLike),
        "this is the name of a file: open it first, by xarray.open_datatree(path)",
    ),
    (
        lambda thing: isinstance(thing, Approximation),
        "this approximation of pm.fit has no estimate of log Z, and its loss is but a bound: fit "
        "by pymc_tempering.fit(method='advi'), which has one, and pass that",
    ),
    (
        lambda thing: isinstance(thing, MultiTrace),
        "a MultiTrace is taken as a DataTree: idata = pymc.to_inference_data(trace, model=model)",
    ),
    (
        lambda thing: isinstance(thing, xr.Dataset),
        "a Dataset of draws is taken in a DataTree: "
        "xarray.DataTree.from_dict({'posterior': dataset})",
    ),
    (
        lambda thing: hasattr(thing, "lower") and hasattr(thing, "upper"),
        "these are two bounds of log Z: pass the one that you mean, .lower or .upper",
    ),
    (
        lambda thing: hasattr(thing, "elbo"),
        "a fit of a conjugate model has an ELBO, which is but a lower bound of log Z: write the "
        "model in PyMC and use pymc_tempering.sample or pymc_tempering.fit",
    ),
)
"""What no evidence can be had from, and the sentence that says what can help."""


def _advice(thing: Any) -> str:
    """Sentence for something that fits no kind."""
    for fits, sentence in REFUSED:
        if fits(thing):
            return sentence
    known = ", ".join(kind.name for kind in KINDS)
    if not isinstance(thing, xr.DataTree):
        return f"no evidence can be read from a {type(thing).__name__}; what can be passed: {known}"
    found = ", ".join(map(repr, thing.children)) or "nothing"
    return (
        f"this DataTree has neither 'sample_stats' of a tempering run nor a 'posterior' (it has "
        f"{found}); what can be passed: {known}. pymc_tempering.sample() makes a run"
    )
