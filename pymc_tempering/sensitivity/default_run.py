"""The run that curves start from: its draws, and its evidence with what the draws did to it."""

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.bridge import bridge_draws
from pymc_tempering.bridge.target import check_same_model
from pymc_tempering.comparison.evidence_of import is_model_alone, is_tempered
from pymc_tempering.comparison.smc_runs import is_smc_run
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.reweight import ChainDraws
from pymc_tempering.exceptions import ModelError, NotTemperedError
from pymc_tempering.sensitivity.run_draws import RunDraws, read_draws

HELP = "sample with pymc_tempering.sample(), or pass the draws of pm.sample and the model"


def check_draws(idata: object) -> None:
    """Raise an error for what holds no draws that can be reweighted.

    Raises
    ------
    NotTemperedError
        The message says what to pass.
    """
    if is_model_alone(idata):
        raise NotTemperedError(f"a model alone has no draws to reweight: {HELP}")
    if not isinstance(idata, xr.DataTree):
        raise NotTemperedError(
            f"draws are reweighted, and a {type(idata).__name__} holds none: {HELP}"
        )
    if is_tempered(idata):
        return
    if is_smc_run(idata):
        raise NotTemperedError(
            "the particles of pm.sample_smc are copies of each other, so that nothing tells the "
            f"error of their average: {HELP}"
        )
    if "variational" in idata.children:
        raise NotTemperedError(
            f"the draws of a fit are those of an approximation, not of the posterior: {HELP}"
        )
    if "posterior" not in idata.children:
        found = ", ".join(map(repr, idata.children)) or "nothing"
        raise NotTemperedError(f"this DataTree has no 'posterior' (it has {found}): {HELP}")


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
    if is_tempered(idata):
        evidence = _tempered_evidence(idata)
        check_same_model(idata, model)
        return read_draws(idata), evidence
    check_same_model(idata, model)
    bridged = bridge_draws(idata, model, rng=rng, cores=cores)
    draws = ChainDraws(bridged.effects, bridged.proposal_variance, bridged.evidence.ess)
    keep = np.ones(bridged.effects.shape, dtype=bool)
    return RunDraws(draws, keep, idata["posterior"].to_dataset(), idata), bridged.evidence


def _tempered_evidence(idata: xr.DataTree) -> Evidence:
    """Estimate the evidence of a tempered run."""
    evidence = estimate_quietly(idata)
    if evidence.prior_term is not None:
        raise ModelError(
            "The evidence of this run is divided by the normalizing constant of its prior (because "
            "of tempered=, or of a prior without random draws), which changes with the prior, too: "
            "call pmt.sample for each value, with pmt.compile(model).with_data(...)."
        )
    return evidence
