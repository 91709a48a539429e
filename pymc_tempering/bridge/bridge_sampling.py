"""Bridge sampling: the evidence from the posterior draws of any sampler, with its error."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import check_choice
from pymc_tempering.bridge import draw_alarms
from pymc_tempering.bridge.bridge_verdict import chain_estimates, chain_variances, judge_bridges
from pymc_tempering.bridge.optimal_bridge import Bridge, draw_effects, fit_bridge
from pymc_tempering.bridge.proposals import PROPOSALS, Fit
from pymc_tempering.bridge.target import (
    Target,
    check_log_density,
    find_target,
    stored_density_warnings,
    untold_model,
)
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel

MIN_DRAWS = 20
"""Least number of draws of the proposal."""


@dataclass(frozen=True, eq=False)
class BridgedDraws:
    """An evidence by bridge sampling, and what each posterior draw did to it.

    Attributes
    ----------
    evidence : Evidence
    effects : ndarray, shape (chain, draw)
        First-order effect of each draw on log Z (nats); they sum to zero.
    proposal_variance : float
        The part of the variance of log Z that comes from the draws of the proposals.
    """

    evidence: Evidence
    effects: FloatArray
    proposal_variance: float


def bridge_sampling(
    idata: xr.DataTree,
    model: pm.Model | CompiledModel | None = None,
    *,
    proposal: str = "t",
    draws: int | None = None,
    cores: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the evidence from posterior draws of any sampler by bridge sampling.

    A density that can be drawn from is fitted to half of the posterior draws (the first half of
    each chain), in the unconstrained space, and the optimal bridge leads from it to the other
    half. Then the halves change roles, and the estimate is the mean of the two
    (``Evidence.halves``). The draws may come from ``pm.sample``, nutpie or ``pmt.sample``.

    Posterior draws cannot tell what they missed. If all chains missed a mode, the estimate is too
    low by the log of the share that they found, with a small error and a clean R-hat, unless
    draws of the proposal happen to find the mode. For posteriors that may have several modes
    use :func:`pymc_tempering.sample`, or compare independent estimators with
    :func:`pymc_tempering.cross_check`.

    Parameters
    ----------
    idata : DataTree
        With the group ``posterior``. Unconstrained values are rebuilt through the model's
        transforms unless they were saved.
    model : pymc.Model or CompiledModel, optional
        The model that it was drawn from; the one on the context stack by default.
    proposal : {"t", "normal", "warp", "mixture"}, default "t"
        A multivariate t with fitted degrees of freedom; a normal; a normal to which the posterior
        is made symmetric by its mirror image (warp-III, twice the evaluations, for skewed ones);
        a mixture of t's with 5 % prior, for posteriors of several modes.
    draws : int, optional
        Draws of the proposal; as many as there are posterior draws by default.
    cores : int, optional
        Threads that evaluate the model; all cores by default.
    random_seed : int or numpy.random.Generator, optional
        Seed of the proposal's draws.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    Evidence
        In nats. ``mcse`` is the square root of the relative mean-squared error of
        Fruehwirth-Schnatter (2004) (``cv`` in the R package bridgesampling), and at least the
        scatter between chains, or halves of the draws, that disagree ("disagreed"). It is infinite
        ("unchecked") where the densities hardly overlap, where the draws are worth fewer than 10
        independent ones, where draws of the proposal find a region that the posterior draws
        missed, and where the sampler stored another log density than the model's. With one chain,
        or chains that have not mixed (R-hat above 1.01), the error is stated and the verdict is
        "unchecked" too.

    Raises
    ------
    DataMismatchError
        The posterior and the model have different variables, shapes or observed data.
    ModelError, ImproperPriorError, DiscreteVariableError
        The model has no evidence, or cannot be evaluated.
    TemperingError
        The posterior has no draws, too few, or draws without a finite unconstrained value.
    ValueError
        If ``proposal`` is not known or ``draws`` is below 20.

    Warns
    -----
    TemperingWarning
        Once for each entry of ``Evidence.warnings``: R-hat above 1.01, few effective draws, and
        the causes of an infinite or enlarged ``mcse``.

    Notes
    -----
    The optimal bridge of Meng & Wong (1996), which section 18.7.2 of Goodfellow et al. (2016)
    describes; the page "Bridge sampling" has the formulas.

    Examples
    --------
    >>> import arviz as az, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    ...     y = pm.Normal("y", x, observed=1.0)  # the posterior is N(1/2, 1/2)
    >>> x = np.random.default_rng(1).normal(0.5, 0.5**0.5, size=(4, 500))
    >>> values = {"posterior": {"x": x}, "sample_stats": {"lp": -(x**2) / 2 - (1 - x) ** 2 / 2}}
    >>> idata = az.from_dict(values)
    >>> evidence = pmt.bridge_sampling(idata, model, random_seed=1, progressbar=False)
    >>> exact = -0.5 * (np.log(4 * np.pi) + 0.5)
    >>> bool(abs(evidence.log_z - exact) < 4 * evidence.mcse < 0.05)
    True
    """
    with compiling_status(progressbar and not quiet) as report:
        report("Bridge sampling")
        evidence = estimate_by_bridge(
            idata,
            find_model(model),
            proposal=proposal,
            draws=draws,
            cores=cores,
            rng=np.random.default_rng(random_seed),
        )
    return emit_warnings(evidence)


def estimate_by_bridge(
    idata: xr.DataTree,
    model: pm.Model,
    *,
    rng: np.random.Generator,
    proposal: str = "t",
    draws: int | None = None,
    cores: int | None = None,
) -> Evidence:
    """Do as :func:`bridge_sampling`, but give no warnings outside of the result."""
    check_proposal(proposal, draws)
    target, states = find_target(idata, model, cores)
    return bridge_states(target, states, rng=rng, proposal=proposal, draws=draws, idata=idata)


def bridge_draws(
    idata: xr.DataTree, model: pm.Model, *, rng: np.random.Generator, cores: int | None = None
) -> BridgedDraws:
    """Do as :func:`estimate_by_bridge`, and say what each draw did to the estimate."""
    target, states = find_target(idata, model, cores)
    return _bridge(target, states, rng=rng, idata=idata)


def check_proposal(proposal: str, draws: int | None) -> None:
    """Raise an error for an unknown proposal, or too few draws of it.

    Raises
    ------
    ValueError
    """
    check_choice("proposal", proposal, PROPOSALS)
    if draws is not None and draws < MIN_DRAWS:
        raise ValueError(f"draws must be at least {MIN_DRAWS}, got {draws}")


def bridge_states(
    target: Target,
    states: np.ndarray,
    *,
    rng: np.random.Generator,
    proposal: str = "t",
    draws: int | None = None,
    idata: xr.DataTree | None = None,
) -> Evidence:
    """Estimate the evidence from unconstrained posterior draws, shape (chain, draw, d).

    ``idata`` is the DataTree that they came from, to compare the log density stored there.
    """
    return _bridge(target, states, rng=rng, proposal=proposal, draws=draws, idata=idata).evidence


def _bridge(
    target: Target,
    states: np.ndarray,
    *,
    rng: np.random.Generator,
    proposal: str = "t",
    draws: int | None = None,
    idata: xr.DataTree | None = None,
) -> BridgedDraws:
    """Do as :func:`bridge_states`, with the effects of the draws."""
    fit = PROPOSALS[proposal](target)
    started = perf_counter()
    n_chains, n_draws, dim = states.shape
    log_target = target.log_density(states.reshape(-1, dim))
    check_log_density(log_target, target.path, states.reshape(-1, dim))
    log_target = log_target.reshape(n_chains, n_draws)
    mismatch = [] if idata is None else stored_density_warnings(idata, log_target)

    pair, at_draws, lost, n_evaluations = _bridge_both_ways(
        target, states, log_target, fit, rng, draws
    )
    messages = mismatch + draw_alarms.bridge_alarms(list(pair))
    verdict, mcse = judge_bridges(pair, at_draws, messages)
    doubts = draw_alarms.mixing_warnings(states, target.path.layout.label)
    doubts += [] if idata is None else untold_model(idata)
    if doubts and verdict == "ok":
        verdict = "unchecked"
    messages += doubts
    messages += draw_alarms.size_warnings(sum(one.ess for one in pair))
    messages += draw_alarms.lost_warnings(lost)
    shared = sum(one.proposal_variance for one in pair) / 4
    evidence = Evidence(
        log_z=(pair[0].log_z + pair[1].log_z) / 2.0,
        mcse=mcse,
        method="bridge_sampling",
        verdict=verdict,
        ess=sum(one.ess for one in pair),
        per_chain=chain_estimates(pair),
        per_chain_mcse=np.sqrt(chain_variances(pair) + shared),
        # Each is the estimate by one half of the draws; its proposal was fitted to the other.
        halves=(pair[1].log_z, pair[0].log_z),
        warnings=tuple(messages),
        n_evaluations=n_evaluations,
        seconds=perf_counter() - started,
    )
    return BridgedDraws(evidence, draw_effects(pair, at_draws), shared)


def _bridge_both_ways(
    target: Target,
    states: np.ndarray,
    log_target: np.ndarray,
    fit: Fit,
    rng: np.random.Generator,
    draws: int | None,
) -> tuple[tuple[Bridge, Bridge], tuple[np.ndarray, np.ndarray], float, int]:
    """Bridge from a fit to the first half of the draws to the second half, and back.

    Returns
    -------
    bridges : tuple of Bridge
    ratios : tuple of ndarray, shape (chain, draw)
        Log of target over each bridge's proposal at all posterior draws.
    lost : float
        Larger one of the shares of lost draws of the two proposals.
    n_evaluations : int
    """
    n_chains, n_draws, dim = states.shape
    first, second = slice(0, n_draws // 2), slice(n_draws // 2, None)
    bridges, ratios, lost, n_evaluations = [], [], [], log_target.size
    for fitted, used in ((first, second), (second, first)):
        density = fit(states[:, fitted].reshape(-1, dim), rng)
        n = states[:, used].size // dim if draws is None else (draws + 1) // 2
        ratio, _ = density.log_ratio(target, states.reshape(-1, dim), log_target.ravel())
        ratios.append(ratio.reshape(n_chains, n_draws))
        proposed, share = density.log_ratio(target, density.draw(n, rng))
        bridges.append(fit_bridge(ratios[-1][:, used], proposed))
        lost.append(share)
        n_evaluations += n * density.evaluations[0] + ratio.size * density.evaluations[1]
    return (bridges[0], bridges[1]), (ratios[0], ratios[1]), max(lost), n_evaluations
