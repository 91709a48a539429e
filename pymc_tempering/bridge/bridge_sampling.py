"""Bridge sampling: the evidence from the posterior draws of any sampler, with its error."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import RandomSeed, check_choice, rng_of
from pymc_tempering.bridge.optimal_bridge import Bridge, draw_effects, fit_bridge, fit_correlation
from pymc_tempering.bridge.proposals import PROPOSALS, Fit, find_fit
from pymc_tempering.bridge.target import Target, check_log_density, find_target
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import MIN_ESS
from pymc_tempering.evidence import Evidence, homogeneity_pvalue
from pymc_tempering.evidence.alarms import disagreement_warning
from pymc_tempering.evidence.result import emit_warnings, with_findings
from pymc_tempering.model.bambi import pymc_draws
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.same_model import is_fitted, stored_density_warnings, untold_model
from pymc_tempering.references.as_written import findings_at

MAX_RHAT = 1.01
"""R-hat above which chains have not mixed (Vehtari et al. 2021)."""
LOW_ESS = 100.0
"""Effective numbers of posterior draws: below the first no error is stated, below the second it is
called rough."""
MIN_USED = 10.0
"""Kish's effective number of draws in the overlap below which no error is stated."""
MIN_LOG_CHANCE = np.log(1e-5)
"""Log of the chance below which a region without posterior draws is an alarm."""
MAX_HALVES_Z = 4.0
"""Standard errors by which the estimates from the two halves of the draws may differ."""
MAX_LOST_SHARE = 1e-3
"""Largest share of the proposal's draws that may have a density of NaN without a warning."""
MAX_PVALUE = 1e-3
"""p-value of the homogeneity test below which the chains disagree."""
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
    model: ModelLike | None = None,
    *,
    proposal: str = "t",
    draws: int | None = None,
    cores: int | None = None,
    random_seed: RandomSeed = None,
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
        a mixture of t's with 5 % prior, for posteriors of several modes, and for labels that can
        be exchanged, of which it has all labelings. A model with binary
        variables takes "t", which is one t for each of their states, or "mixture", which is the
        same.
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
        missed, where the sampler stored another log density than the model's, and where the draws
        are of a fit (``pymc_extras.fit_laplace``). With one chain,
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
        rng = rng_of(random_seed)
        found = bridge_draws(
            pymc_draws(idata, model), find_model(model),
            rng=rng, proposal=proposal, draws=draws, cores=cores,
        )  # fmt: skip
    return emit_warnings(found.evidence)


def bridge_draws(
    idata: xr.DataTree,
    model: pm.Model,
    *,
    rng: np.random.Generator,
    proposal: str = "t",
    draws: int | None = None,
    cores: int | None = None,
) -> BridgedDraws:
    """Do as :func:`bridge_sampling`, without warnings, and say what each draw did."""
    check_proposal(proposal, draws)
    target, states = find_target(idata, model, cores)
    return bridge_states(target, states, rng=rng, proposal=proposal, draws=draws, idata=idata)


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
) -> BridgedDraws:
    """Estimate the evidence from unconstrained posterior draws, shape (chain, draw, d).

    ``idata`` is the DataTree that they came from, to compare the log density stored there.
    """
    fit = find_fit(proposal, target)
    started = perf_counter()
    n_chains, n_draws, dim = states.shape
    log_target = target.log_density(states.reshape(-1, dim))
    check_log_density(log_target, target.path, states.reshape(-1, dim))
    log_target = log_target.reshape(n_chains, n_draws)
    mismatch = []
    if idata is not None:
        mismatch = [*stored_density_warnings(idata, log_target), *_fit_alarms(idata)]

    pair, at_draws, lost, n_evaluations = _bridge_both_ways(
        target, states, log_target, fit, rng, draws
    )
    messages = mismatch + bridge_alarms(list(pair))
    verdict, mcse = judge_bridges(pair, at_draws, messages)
    doubts = mixing_warnings(states, target.path.layout.label)
    doubts += [] if idata is None else untold_model(idata)
    if doubts and verdict == "ok":
        verdict = "unchecked"
    messages += doubts
    messages += size_warnings(sum(one.ess for one in pair))
    messages += lost_warnings(lost)
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
    evidence = with_findings(evidence, findings_at(target.path, states.reshape(-1, dim)))
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
        n_evaluations += density.spent
    return (bridges[0], bridges[1]), (ratios[0], ratios[1]), max(lost), n_evaluations


def mixing_warnings(draws: FloatArray, label: Callable[[int], str]) -> list[str]:
    """Warn if chains, shape (chain, draw, d), have not mixed."""
    from arviz_stats.base import array_stats  # slow to import

    if len(draws) < 2:
        return [
            "There is one chain, so nothing tells whether others would agree: sample at least four."
        ]
    with np.errstate(divide="ignore", invalid="ignore"):  # of indicators that never change
        rhat = np.atleast_1d(array_stats.rhat(draws, chain_axis=0, draw_axis=1))
    if not np.isfinite(rhat).any() or not np.nanmax(rhat) > MAX_RHAT:
        return []
    worst = int(np.nanargmax(rhat))
    return [
        f"R-hat is {rhat[worst]:.3f} for {label(worst)} (at most {MAX_RHAT} is wanted): the "
        "chains have not mixed, so sample longer, or with pymc_tempering.sample if the posterior "
        "has several modes."
    ]


def _fit_alarms(idata: xr.DataTree) -> list[str]:
    """Say so where draws are of a fit; a bridge takes them for draws of the posterior."""
    if not is_fitted(idata):
        return []
    return [
        "The draws are of a fit, and not of the posterior, so log Z is off by what the fit is, and "
        "the mcse is infinite: use importance_sampling, which needs draws near the posterior."
    ]


def size_warnings(ess: float) -> list[str]:
    """Warn if the posterior draws are few, but enough for an error."""
    if not MIN_ESS <= ess < LOW_ESS:
        return []
    return [
        f"The posterior draws are worth only {ess:.0f} independent ones, so the mcse is rough: "
        "sample more draws."
    ]


def bridge_alarms(bridges: list[Bridge]) -> list[str]:
    """Say why no error of a bridge can be stated."""
    ess = min(one.ess for one in bridges)
    draws, proposals = (
        min(one.used_draws for one in bridges),
        min(one.used_proposals for one in bridges),
    )
    alarms = []
    if min(draws, proposals) < MIN_USED:
        alarms.append(
            "Posterior and proposal hardly overlap (worth "
            f"{draws:.1f} draws of the one and {proposals:.1f} of the other), so the bridge did "
            "not converge and the mcse is infinite: try another proposal ('mixture' or 'warp'), "
            "or sample more draws."
        )
    elif ess < MIN_ESS:
        alarms.append(
            f"The posterior draws are worth only {ess:.1f} independent ones, so the mcse is "
            "infinite: the chains hardly moved, or each sits in a mode of its own; sample longer, "
            "or with pymc_tempering.sample."
        )
    worst = min(bridges, key=lambda one: one.log_chance)
    if worst.log_chance < MIN_LOG_CHANCE:
        alarms.append(
            f"{worst.n_unvisited} draws of the proposal lie where the posterior has mass, and no "
            f"posterior draw does (a chance of {np.exp(worst.log_chance):.1g}), so the mcse is "
            "infinite: the sampler missed a mode or a tail; sample with pymc_tempering.sample."
        )
    return alarms


def halves_warning(difference: float, error: float) -> list[str]:
    """Warn if the two halves of the draws disagree."""
    if not abs(difference) > MAX_HALVES_Z * error:
        return []
    return [
        f"The first and the second half of the draws differ by {difference:+.2f} nats in log Z, "
        f"{error:.2g} expected, so the mcse is at least that: the chains had not settled "
        "(discard more of their beginning, sample longer), or they change modes rarely."
    ]


def lost_warnings(lost: float) -> list[str]:
    """Warn if the model's density is NaN at too many draws of the proposal."""
    if lost <= MAX_LOST_SHARE:
        return []
    return [
        f"The model's log density is not a number at {lost:.1%} of the draws of the proposal, "
        "which were given zero density: make it -inf where it is not defined, or numerically "
        "stable where it is."
    ]


def judge_bridges(
    bridges: tuple[Bridge, Bridge], ratios: tuple[np.ndarray, np.ndarray], messages: list[str]
) -> tuple[str, float]:
    """Return verdict and error of the mean of two bridges.

    Any entry of `messages` is an alarm, so that no error is stated. New warnings are appended.
    """
    if messages or not all(np.isfinite(one.variance) for one in bridges):
        return "unchecked", np.inf
    own = sum(one.variance for one in bridges)
    both = (
        2.0
        * fit_correlation(bridges, ratios)
        * np.sqrt(np.prod([one.variance - one.proposal_variance for one in bridges]))
    )
    verdict, mcse = "ok", float(np.sqrt(own + both) / 2.0)
    chains = chain_estimates(bridges)
    df = np.full(chains.size, sum(one.ess for one in bridges) / chains.size - 1.0)
    # Chains of equal length have the same error, so the mean over chains is less noisy.
    error = np.full(chains.size, np.sqrt(chain_variances(bridges).mean()))
    pvalue = homogeneity_pvalue(chains, error, df)
    if pvalue < MAX_PVALUE:
        verdict = "disagreed"
        messages.append(disagreement_warning(pvalue))
        mcse = max(mcse, float(chains.std(ddof=1) / np.sqrt(chains.size)))
    difference = bridges[1].log_z - bridges[0].log_z
    if apart := halves_warning(difference, float(np.sqrt(own))):
        verdict = "disagreed"
        messages += apart
        mcse = max(mcse, abs(difference))  # both may be off in the same direction
    return verdict, mcse


def chain_estimates(bridges: tuple[Bridge, Bridge]) -> np.ndarray:
    """Return each chain's log Z by two bridges, shape (chain,)."""
    return (bridges[0].per_chain + bridges[1].per_chain) / 2.0


def chain_variances(bridges: tuple[Bridge, Bridge]) -> np.ndarray:
    """Return the part of their variance that comes from the chain's own draws, shape (chain,)."""
    return np.asarray(sum(one.per_chain_variance for one in bridges) / 4.0)
