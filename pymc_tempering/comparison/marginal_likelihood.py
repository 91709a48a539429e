"""`log_marginal_likelihood`: from whatever a user has to an ``Evidence``, with warnings.

One row of `KINDS` is one kind of thing that a user may have. The first row that fits is used. What
fits none gets a sentence that names the function that would help.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from os import PathLike
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.backends.base import MultiTrace
from pymc.variational.opvi import Approximation
from scipy.special import stdtrit

from pymc_tempering.arguments import (
    RandomSeed,
    check_choice,
    check_whole,
    has_group,
    listed,
    rng_of,
)
from pymc_tempering.comparison.runs import is_row, row_evidence
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import kish, log_mean, log_mean_error
from pymc_tempering.crosscheck.registry import MODEL_ESTIMATORS, is_tempered, run_estimator
from pymc_tempering.crosscheck.result import GROUP as CHECK_GROUP, CrossCheck, read_cross_check
from pymc_tempering.evidence import ESTIMATORS, Evidence
from pymc_tempering.evidence.estimators import POSTERIOR, estimate_quietly, lists_estimators
from pymc_tempering.evidence.factor import QUANTILE_95
from pymc_tempering.evidence.result import GROUP as EVIDENCE_GROUP, doubted, emit_warnings, untold
from pymc_tempering.exceptions import (
    DataMismatchError,
    ImproperPriorError,
    ModelError,
    NotTemperedError,
    TemperingError,
)
from pymc_tempering.model.bambi import is_bambi, pymc_draws
from pymc_tempering.model.check import NO_DRAWS, find_model_if_any, is_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel, ModelLike
from pymc_tempering.model.identity import differences, identity_of
from pymc_tempering.model.same_model import check_same_model, is_fitted, untold_model

FIT_NOTE = (
    "The estimate rests on draws around the fit, which do not see a mode that the fit missed, so "
    "nothing checks it: run pymc_tempering.sample beside it."
)
"""Why an evidence from a fit is unchecked."""

VERDICTS = {"agree": "ok", "disagree": "disagreed", "unchecked": "unchecked"}
"""Verdict of an evidence for that of a cross-check."""


@lists_estimators(ESTIMATORS)
def log_marginal_likelihood(
    idata: Any,
    model: ModelLike | None = None,
    *,
    method: str | None = None,
    cores: int | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood of a model from whatever there is of it.

    What is passed is looked at in this order:

    ===================================  ======================================================
    what there is                        how log Z is estimated
    ===================================  ======================================================
    an ``Evidence``                      it is returned
    a ``CrossCheck``                     the estimate that it says to believe, with its verdict
    a row of the table of                what it says
    :func:`sample_many` or
    :func:`compare`
    a fit of :func:`fit`                 its importance-sampled evidence, ``"psis_vi"``
    a run of :func:`sample`              ``"pooled"`` where it has reference draws, else ``"rts"``,
                                         with the bridge to its draws if it made one; a stored
                                         cross-check that disagrees counts
    a DataTree with an ``Evidence``      it is read
    a DataTree with a cross-check        as a ``CrossCheck``
    a run of ``pm.sample_smc``           the chains' log Z, with an error from their scatter
    a DataTree of :func:`to_datatree`    as a fit
    draws of another fit, such as        :func:`importance_sampling`, which needs the model
    ``pymc_extras.fit_laplace``
    posterior draws of any sampler       :func:`bridge_sampling`, which needs the model
    ===================================  ======================================================

    Parameters
    ----------
    idata : DataTree, Evidence, CrossCheck or Approximation
        A run, the draws of any sampler, a result, or a DataTree that one was stored in.
    model : pymc.Model or CompiledModel, optional
        The model that posterior draws are from; by default the one on the context stack. Only
        draws without an estimate of their own need it. Where it is given, a run or a fit of
        another model is refused, and what does not tell its model is "unchecked"; only an
        ``Evidence`` and a ``CrossCheck`` say nothing of theirs. Draws of Bambi's ``fit`` take the
        Bambi model itself.
    method : str, optional
        By default that of the table above. "bridge_sampling", "importance_sampling" and
        "reverse_ais" take posterior draws and the model. The others read a run of simulated
        tempering; those marked (trace) its flat trace, which ``keep="log_ratio"`` keeps, and the
        one marked (reference) the reference draws beside it too.

        {estimators}

    cores : int, optional
        Threads that evaluate the model; all cores by default.
    random_seed : int or numpy.random.Generator, optional
        Seed of the methods that draw random numbers: those that take a model.
    progressbar : bool, default True
        Whether to show a line of progress where a model is evaluated.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    Evidence
        log Z and its Monte Carlo standard error, in nats.

    Raises
    ------
    NotTemperedError
        If no evidence can be had from ``idata``: it lacks a model or the trace, say. The message
        names the function that can help.
    DataMismatchError, ModelError
        If draws or a run do not fit the model, or it has no evidence.
    LadderError
        If the draws of a run do not come from one ladder from beta = 0 to 1.
    SolverError
        If the equations of the method have no solution, or it was not found.
    TemperingError
        If a stored result cannot be read, or a chain of ``pm.sample_smc`` has no log Z.
    ValueError
        If ``method`` is not known.

    Warns
    -----
    TemperingWarning
        Once for each entry of ``Evidence.warnings``, but for an ``Evidence`` that is passed.

    Notes
    -----
    A fit enters by importance sampling and not by its ELBO. The ELBO is a lower bound of log Z,
    short by the divergence of the fit from the posterior, which is not known and differs between
    models. The verdict is "unchecked", since a fit does not see the modes that it missed.

    Of the chains of ``pm.sample_smc`` the mean of Z counts. Its standard error is made wider by
    Student's t for as many chains, and below four the verdict is "unchecked".

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pmt.log_marginal_likelihood(idata).verdict  # a run of pmt.sample
    'ok'
    """
    check_whole(1, cores=cores)
    if isinstance(model, str):
        raise ModelError(f"model is no text: give the method by name, as method={model!r}.")
    extras = Extras(
        find_model_if_any(model),
        rng_of(random_seed),
        cores,
        progressbar and not quiet,
        given=model is not None,
    )
    evidence = evidence_of(pymc_draws(idata, model), extras, method)
    return evidence if evidence is idata else emit_warnings(evidence)


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


def evidence_of(thing: Any, extras: Extras, method: str | None = None) -> Evidence:
    """Estimate the evidence from whatever a user has; warnings stay in the result.

    Raises
    ------
    NotTemperedError
        If nothing can be read from it; the message names what can help.
    DataMismatchError
        If a run or a fit is of another model than the one that the user gave.
    ValueError
        If the method is not known.
    """
    if method is not None:
        of_draws = [
            name
            for name, row in MODEL_ESTIMATORS.items()
            if row.draws == POSTERIOR and row.by_default
        ]
        check_choice("method", method, [*sorted(ESTIMATORS), *of_draws])
        if method in of_draws:
            return _from_posterior(thing, extras, method)
        return untold(estimate_quietly(thing, method), _doubts(thing, extras))
    read = next((read for _, fits, read in KINDS if fits(thing)), None)
    if read is None:
        raise NotTemperedError(_advice(thing))
    if read is _from_posterior:
        return read(thing, extras)
    return untold(read(thing, extras), _doubts(thing, extras))


def _doubts(thing: Any, extras: Extras) -> list[str]:
    """Say what an evidence that needs no model leaves open, where the user gave a model.

    Raises
    ------
    DataMismatchError
        It is of another model than that one.
    """
    if extras.model is None or not extras.given:
        return []
    own = getattr(thing, "model", None)
    is_other = is_model(own) and own is not extras.model  # of a fit
    if is_other and (found := differences(identity_of(own), identity_of(extras.model))):
        raise DataMismatchError(
            f"The fit is of another model: {found}. Pass the model that it was made with."
        )
    if not has_group(thing, "posterior"):
        return []
    check_same_model(thing, extras.model)
    return untold_model(thing)


def is_fit(thing: Any) -> bool:
    """Whether something is a fit of ``pmt.fit``, or its report."""
    report = getattr(thing, "tempering", thing)
    return hasattr(report, "elbo_history") and hasattr(report, "evidence")


def is_model_alone(thing: Any) -> bool:
    """Whether something is a model of PyMC, in a handle or of Bambi or not."""
    return isinstance(thing, CompiledModel) or is_model(thing) or is_bambi(thing)


def _from_run(tree: xr.DataTree, extras: Extras) -> Evidence:
    """Estimate from a run, "disagreed" if a cross-check of that run disagrees."""
    evidence = estimate_quietly(tree)
    check = read_cross_check(tree) if CHECK_GROUP in tree.children else None
    if check is None or check.verdict != "disagree":
        return evidence
    verdict = "unchecked" if evidence.verdict == "unchecked" else "disagreed"
    return doubted(evidence, verdict, check.least_error, _said(check))


def _from_check(check: CrossCheck) -> Evidence:
    """Return the estimate that a cross-check believes, with the verdict of the cross-check."""
    if check.believe is None:
        raise TemperingError(
            "the cross-check believes none of its estimates, since none states an error: sample "
            "with pymc_tempering.sample, and run cross_check again"
        )
    row = check.table.loc[check.believe]
    count, verdict = row["n_evaluations"], VERDICTS[check.verdict]
    evidence = Evidence(
        log_z=float(row["log_z"]),
        mcse=float(row["mcse"]),
        method=f"cross_check ({check.believe})",
        verdict=str(row["verdict"]) if verdict == "ok" else verdict,
        bias_direction=str(row["bias_direction"]),
        n_evaluations=int(count) if isinstance(count, int | np.integer) and count else None,
        seconds=float(row["seconds"]),
    )
    if check.verdict == "agree":
        return evidence
    return doubted(evidence, evidence.verdict, check.least_error, _said(check))


def _said(check: CrossCheck) -> str:
    return f"The cross-check says: {check.words}"


def _from_fit(thing: Any, extras: Extras) -> Evidence:
    """Say why the evidence of a fit is unchecked; without an error it is a lower bound."""
    report = getattr(thing, "tempering", thing)
    if report.evidence is None:
        raise ImproperPriorError(
            "the fit has no evidence: its model has none (an improper prior), or its log density "
            f"is not a number somewhere. Its ELBO, {report.elbo:.3f} nats, is a lower bound at "
            "best and is not taken for log Z; give every variable a proper prior and fit again"
        )
    note = FIT_NOTE
    if report.evidence.bias_direction:
        note = "Without an error log Z is a lower bound in expectation, not an estimate. " + note
    return replace(report.evidence, warnings=(*report.evidence.warnings, note))


SMC_STATISTIC = "log_marginal_likelihood"
"""Statistic where ``pm.sample_smc`` stores the running log Z of every stage, NaN before the last.

Its shape depends on the run: a list a chain where chains took unequal numbers of stages, a table of
objects where they took the same number, and for one chain its stages along a dimension that is
called ``chain``.
"""

MIN_SMC_CHAINS = 4
"""Chains of ``pm.sample_smc`` below which their scatter says too little."""

MAX_SMC_RHAT = 1.1
"""R-hat above which the posteriors of its chains are different ones.

Particles are resampled, so that equal ones are many. So it is not 1.01, which is for Markov chains.
"""


def is_smc_run(thing: Any) -> bool:
    """Whether something is a DataTree with the statistic that ``pm.sample_smc`` stores."""
    return has_group(thing, "sample_stats") and SMC_STATISTIC in thing["sample_stats"].data_vars


def chain_log_z(tree: xr.DataTree) -> FloatArray:
    """Return log Z of each chain of ``pm.sample_smc``, shape (chain,), in nats.

    Raises
    ------
    TemperingError
        If a chain has none: it did not come to beta = 1.
    """
    stored = tree["sample_stats"].to_dataset()[SMC_STATISTIC].values
    n_chains = tree["posterior"].sizes["chain"] if "posterior" in tree.children else len(stored)
    # One chain: its stages lie along a dimension that is called chain.
    rows = [stored] if n_chains == 1 else list(stored)
    if len(rows) != n_chains:
        raise TemperingError(
            f"sample_stats['{SMC_STATISTIC}'] has {len(rows)} chains and the posterior {n_chains}: "
            "pass the DataTree as pm.sample_smc returned it"
        )
    last = [np.asarray(row, dtype=float).reshape(-1)[-1:] for row in rows]
    values = np.array([row[0] if row.size else np.nan for row in last])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise TemperingError(
            f"chains {bad.tolist()} of pm.sample_smc have no finite log Z: they did not come to "
            "beta = 1; run it again"
        )
    return values


def smc_evidence(tree: xr.DataTree) -> Evidence:
    """Estimate log Z from the chains of ``pm.sample_smc``.

    The log of the mean of the chains' Z, which each estimates nearly without bias (Del Moral,
    Doucet & Jasra 2006). Its error is the standard error of that mean, by the delta method, and
    wider by the ratio of the 97.5 % quantiles of Student's t with C - 1 degrees of freedom and of
    a normal, so that 1.96 errors are half of a 95 % interval: 1.6 times at four chains.
    """
    values = chain_log_z(tree)
    n = values.size
    wider = float(stdtrit(n - 1, 0.975)) / QUANTILE_95 if n > 1 else 1.0
    too_few, apart = _too_few_chains(n), _chains_apart(tree) if n > 1 else []
    return Evidence(
        log_z=log_mean(values),
        mcse=log_mean_error(values) * wider,
        method="pm.sample_smc",
        verdict="disagreed" if apart else "unchecked" if too_few else "ok",
        ess=float(kish(np.exp(values - values.max()))),
        per_chain=values,
        per_chain_mcse=np.full(n, np.inf),
        warnings=(*too_few, *apart),
        seconds=float(tree["sample_stats"].attrs.get("_t_sampling", np.nan)),
    )


def _too_few_chains(n: int) -> list[str]:
    if n >= MIN_SMC_CHAINS:
        return []
    count = "one chain" if n == 1 else f"{n} chains"
    error = "there is no error" if n == 1 else "the mcse is a guess"
    return [
        f"pm.sample_smc ran {count}, and its error is the scatter of chains, so {error}: run "
        f"chains={MIN_SMC_CHAINS} or more."
    ]


def _chains_apart(tree: xr.DataTree) -> list[str]:
    """Warn if the posteriors of the chains are different ones."""
    from arviz_stats import rhat  # slow to import

    if "posterior" not in tree.children:
        return []
    found = rhat(tree["posterior"].to_dataset())
    worst = {str(name): float(values.max()) for name, values in found.data_vars.items()}
    name = max(worst, key=lambda name: np.nan_to_num(worst[name]), default="")
    if not name or not worst[name] > MAX_SMC_RHAT:
        return []
    return [
        f"R-hat of the chains of pm.sample_smc is {worst[name]:.2f} for {name!r} (at most "
        f"{MAX_SMC_RHAT} is wanted): they ended in different parts of the posterior; run it with "
        "more draws, or sample with pymc_tempering.sample."
    ]


def _from_stored_fit(tree: xr.DataTree, extras: Extras) -> Evidence:
    """Read what ``pmt.to_datatree`` stored of a fit."""
    attrs = tree["variational"].attrs
    if not {"log_z", "log_z_mcse", "elbo"} <= set(attrs):
        raise NotTemperedError(
            "the group 'variational' was not written by pmt.to_datatree(approx): pass the "
            "approximation itself"
        )
    log_z, mcse = float(attrs["log_z"]), float(attrs["log_z_mcse"])
    bias = "" if np.isfinite(mcse) else "below"
    evidence = None
    if not np.isnan(log_z):
        evidence = Evidence(log_z, mcse, "psis_vi", "unchecked", bias_direction=bias)
    return _from_fit(SimpleNamespace(evidence=evidence, elbo=attrs["elbo"]), extras)


def _from_posterior(tree: Any, extras: Extras, method: str | None = None) -> Evidence:
    """Estimate by a method that evaluates the model at posterior draws.

    By default that is bridge sampling, but not of draws of a fit, which are near the posterior.
    """
    if not has_group(tree, "posterior"):
        raise NotTemperedError(_advice(tree))
    if extras.model is None:
        library = tree["posterior"].attrs.get("inference_library")
        draws = "posterior draws" if library is None else f"posterior draws of {library}"
        raise NotTemperedError(
            f"this DataTree holds {draws} and no tempering run, so that log Z needs the "
            "model that they were drawn from: pass model= (models= to compare, bayes_factor and "
            "average), or call pymc_tempering.bridge_sampling(idata, model). A run of "
            "pymc_tempering.sample needs none"
        )
    if is_tempered(tree) and extras.given:
        check_same_model(tree, extras.model)
    method = method or ("importance_sampling" if is_fitted(tree) else "bridge_sampling")
    with compiling_status(extras.progressbar) as report:
        report(method.replace("_", " ").capitalize())
        return run_estimator(method, tree, extras.model, extras.rng, extras.cores)[method]


def _with(group: str) -> Callable[[Any], bool]:
    return lambda thing: has_group(thing, group)


KINDS: tuple[tuple[str, Callable[[Any], bool], Callable[[Any, Extras], Evidence]], ...] = (
    ("an Evidence", lambda thing: isinstance(thing, Evidence), lambda thing, _: thing),
    (
        "a CrossCheck",
        lambda thing: isinstance(thing, CrossCheck),
        lambda thing, _: _from_check(thing),
    ),
    ("a row of sample_many or compare", is_row, lambda row, _: row_evidence(row)),
    ("a fit of pmt.fit", is_fit, _from_fit),
    ("a run of simulated tempering", is_tempered, _from_run),
    ("a stored Evidence", _with(EVIDENCE_GROUP), lambda tree, _: Evidence.from_datatree(tree)),
    (
        "a stored cross-check",
        _with(CHECK_GROUP),
        lambda tree, _: _from_check(read_cross_check(tree)),
    ),
    ("a run of pm.sample_smc", is_smc_run, lambda tree, _: smc_evidence(tree)),
    ("a stored fit of pmt.fit", _with("variational"), _from_stored_fit),
    ("posterior draws of any sampler", _with("posterior"), _from_posterior),
)
"""What an evidence can be had from, in the order in which it is looked for: words for it, whether a
thing is of this kind, and ``(thing, extras)`` to ``Evidence``, without warnings outside of it."""


REFUSED: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (is_model_alone, NO_DRAWS),
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
    known = ", ".join(name for name, *_ in KINDS)
    if not isinstance(thing, xr.DataTree):
        return f"no evidence can be read from a {type(thing).__name__}; what can be passed: {known}"
    found = listed(thing.children) or "nothing"
    return (
        f"this DataTree has neither 'sample_stats' of a tempering run nor a 'posterior' (it has "
        f"{found}); what can be passed: {known}. pymc_tempering.sample() makes a run"
    )
