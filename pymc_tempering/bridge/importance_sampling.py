"""Importance sampling: the evidence from draws of a density fitted to posterior draws."""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import xarray as xr

from pymc_tempering.arguments import RandomSeed, rng_of
from pymc_tempering.bridge.bridge_sampling import check_proposal, lost_warnings
from pymc_tempering.bridge.proposals import find_fit
from pymc_tempering.bridge.target import Target, check_states, find_target
from pymc_tempering.core.weighting import (
    FINITE_VARIANCE_KHAT,
    MAX_KHAT,
    MIN_ESS,
    effective_number,
    log_mean,
    log_mean_error,
    pareto_khat,
)
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings, with_findings
from pymc_tempering.model.bambi import pymc_draws
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.same_model import is_fitted
from pymc_tempering.references.as_written import findings_at

HEAVY_DOFS = (3.0, 5.0, 8.0)
"""Degrees of freedom of a t for importance sampling, where tails must not be too light."""


def importance_sampling(
    idata: xr.DataTree,
    model: ModelLike | None = None,
    *,
    proposal: str = "mixture",
    draws: int = 10_000,
    cores: int | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the evidence by importance sampling from a density fitted to posterior draws.

    The posterior draws are used to fit the proposal and for nothing else. Wrong weights of modes
    and chains that have not mixed do no harm as long as the proposal covers the posterior. A mode
    that all chains missed is missed here too, unless the prior share of the mixture finds it.

    Parameters
    ----------
    idata : DataTree
        With the group ``posterior``. Unconstrained values are rebuilt through the model's
        transforms unless they were saved.
    model : pymc.Model or CompiledModel, optional
        The model that it was drawn from; the one on the context stack by default.
    proposal : {"mixture", "t", "normal", "warp"}, default "mixture"
        A mixture of t's with 5 % prior, which keeps the weights from exploding in the tails; a
        multivariate t with at most 8 degrees of freedom; a normal; a normal to which the posterior
        is made symmetric by its mirror image (warp-III, twice the evaluations).
    draws : int, default 10000
        Draws of the proposal.
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
        In nats. ``ess`` is Kish's effective number of weighted draws. ``mcse`` is infinite
        ("unchecked") where the Pareto k-hat of the weights is above 0.7 or ``ess`` below 10;
        log Z is then likely too low. For draws of a fit (``pymc_extras.fit_laplace``) it is
        "unchecked" with a finite error: a fit does not see the modes that it missed.

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
        Once for each entry of ``Evidence.warnings``: a k-hat above 0.5 or 0.7, weights on few
        draws, a density that differs from the one stored by the sampler.

    Notes
    -----
    Equations (18.44) to (18.46) of Goodfellow et al. (2016); k-hat is that of Vehtari et al.
    (2024), from arviz-stats.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> import xarray as xr
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    ...     y = pm.Normal("y", x, observed=1.0)  # the posterior is N(1/2, 1/2)
    >>> x = np.random.default_rng(1).normal(0.5, 0.5**0.5, size=(4, 500))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw"), x)})})
    >>> evidence = pmt.importance_sampling(idata, model, random_seed=1, progressbar=False)
    >>> exact = -0.5 * (np.log(4 * np.pi) + 0.5)
    >>> bool(abs(evidence.log_z - exact) < 4 * evidence.mcse < 0.05)
    True
    """
    with compiling_status(progressbar and not quiet) as report:
        report("Importance sampling")
        check_proposal(proposal, draws)
        idata = pymc_draws(idata, model)
        target, states = find_target(idata, find_model(model), cores)
        evidence = importance_states(
            target,
            states,
            rng=rng_of(random_seed),
            proposal=proposal,
            draws=draws,
            alarms=check_states(idata, target, states),
            fitted=is_fitted(idata),
        )
    return emit_warnings(evidence)


def importance_states(
    target: Target,
    states: np.ndarray,
    *,
    rng: np.random.Generator,
    proposal: str = "mixture",
    draws: int = 10_000,
    alarms: Sequence[str] = (),
    fitted: bool = False,
) -> Evidence:
    """Estimate the evidence from unconstrained posterior draws, shape (chain, draw, d).

    ``fitted`` says that they are of a fit.
    """
    fit = find_fit(proposal, target, HEAVY_DOFS)
    started = perf_counter()
    flat = states.reshape(-1, states.shape[2])
    density = fit(flat, rng)
    weights, lost = density.log_ratio(target, density.draw(draws, rng))
    ess, khat = effective_number(weights), pareto_khat(weights)
    messages = [*alarms, *_weight_alarms(khat, ess)]
    alarmed = bool(messages)
    if not alarmed and khat > FINITE_VARIANCE_KHAT:
        messages.append(
            f"The Pareto k-hat of the weights is {khat:.2f} (above {FINITE_VARIANCE_KHAT}), so the "
            "mcse is rough: more draws, or proposal='mixture', would help."
        )
    messages += lost_warnings(lost)
    if fitted:
        messages.append(
            "The draws are of a fit, which does not see the modes that it missed, so log Z may be "
            "too low: pymc_tempering.sample looks for them."
        )
    middle = draws // 2
    evidence = Evidence(
        log_z=log_mean(weights),
        mcse=np.inf if alarmed else log_mean_error(weights),
        method="importance_sampling",
        verdict="unchecked" if alarmed or fitted else "ok",
        ess=ess,
        halves=(log_mean(weights[:middle]), log_mean(weights[middle:])),
        warnings=tuple(messages),
        bias_direction="below" if alarmed else "",
        n_evaluations=draws * density.evaluations[0],
        seconds=perf_counter() - started,
    )
    return with_findings(evidence, findings_at(target.path, flat))


def _weight_alarms(khat: float, ess: float) -> list[str]:
    if ess < MIN_ESS:
        return [
            f"The weights rest on {ess:.1f} effective draws of the proposal, so the mcse is "
            "infinite and log Z likely too low: use proposal='mixture', more draws, or "
            "bridge_sampling."
        ]
    if khat > MAX_KHAT:
        return [
            f"The Pareto k-hat of the weights is {khat:.2f} (above {MAX_KHAT}), so the mcse is "
            "infinite and log Z likely too low: the proposal misses tails of the posterior; use "
            "proposal='mixture', more draws, or bridge_sampling."
        ]
    return []
