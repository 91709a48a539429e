"""`log_marginal_likelihood`: from whatever a user has to an ``Evidence``, with warnings."""

from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.arguments import check_whole
from pymc_tempering.comparison.evidence_of import Extras, evidence_of
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import ESTIMATORS, lists_estimators
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.check import find_model_if_any
from pymc_tempering.model.handle import CompiledModel


@lists_estimators(ESTIMATORS)
def log_marginal_likelihood(
    idata: Any,
    model: pm.Model | CompiledModel | None = None,
    *,
    method: str | None = None,
    cores: int | None = None,
    random_seed: int | np.random.Generator | None = None,
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
    a fit of :func:`fit`                 its importance-sampled evidence, ``"psis_vi"``
    a run of :func:`sample`              ``"pooled"`` where it has reference draws, else ``"rts"``;
                                         a stored cross-check that disagrees counts
    a DataTree with an ``Evidence``      it is read
    a DataTree with a cross-check        as a ``CrossCheck``
    a run of ``pm.sample_smc``           the chains' log Z, with an error from their scatter
    a DataTree of :func:`to_datatree`    as a fit
    posterior draws of any sampler       :func:`bridge_sampling`, which needs the model
    ===================================  ======================================================

    Parameters
    ----------
    idata : DataTree, Evidence, CrossCheck or Approximation
        A run, the draws of any sampler, a result, or a DataTree that one was stored in.
    model : pymc.Model or CompiledModel, optional
        The model that posterior draws are from; by default the one on the context stack. Only
        draws without an estimate of their own need it. A run is refused if it was made with
        another one than the one that is given here.
    method : str, optional
        By default that of the table above. "bridge_sampling" and "importance_sampling" take
        posterior draws and the model. The others read a run of simulated tempering; those marked
        (trace) its flat trace, which ``keep="log_ratio"`` keeps, and the one marked (reference) the
        reference draws beside it too.

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
        np.random.default_rng(random_seed),
        cores,
        progressbar and not quiet,
        given=model is not None,
    )
    evidence = evidence_of(idata, extras, method)
    return evidence if evidence is idata else emit_warnings(evidence)
