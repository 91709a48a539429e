"""What a fit begins with: the checks of model and starts, and the first approximation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.variational.opvi import Approximation

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import DiscreteVariableError, ModelError
from pymc_tempering.model.check import improper_priors
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.exactly import ALONE
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.references.prior import forward_graph
from pymc_tempering.variational.objective import FAMILIES

type Start = tuple[dict[str, Any] | None, int | None]
"""Initial values of variables and the seed of a fit, which may be left open."""


def first_approximation(
    model: pm.Model,
    approx: str,
    start: dict[str, Any] | None,
    start_sigma: dict[str, Any] | None,
    random_seed: int | None,
) -> Approximation:
    """Check the arguments of an approximation, and make it."""
    if start_sigma is not None and approx != "meanfield":
        raise ValueError(f'start_sigma is for approx="meanfield", not {approx!r}')
    check_choice("approx", approx, FAMILIES)
    _check_start(model, start)
    options = {} if start_sigma is None else {"start_sigma": start_sigma}
    return FAMILIES[approx](model=model, random_seed=random_seed, start=start, **options)


def check_fittable(model: pm.Model) -> None:
    """Raise an error for a model that has nothing to fit, or discrete variables."""
    if not model.free_RVs:
        raise ModelError("The model has no free variables to fit.")
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "The model has no observed data and no potential: its posterior is its prior. Pass "
            "`observed=` to a variable, or add a pm.Potential."
        )
    discrete = [rv.name for rv in model.free_RVs if rv.dtype not in pm.vartypes.continuous_types]
    if discrete:
        raise DiscreteVariableError(
            f"Discrete free variables cannot be fitted: {', '.join(discrete)}. Marginalize them "
            "(pm.Mixture, or pmx.marginalize of pymc-extras)."
        )


def fit_starts(
    model: pm.Model, start: dict[str, Any] | None, restarts: int, seed: int | None
) -> list[Start]:
    """Return start and seed of each fit: the user's first, then draws from the prior."""
    fits: list[Start] = [(start, seed)]
    if restarts > 1:
        # One more than is used: of a single draw PyMC drops the first dimension.
        with ALONE:
            draws = pm.draw(model.free_RVs, draws=restarts, random_seed=seed, mode=python_mode())
        names = [rv.name for rv in model.free_RVs]
        for place in range(restarts - 1):
            own = None
            if seed is not None:
                own = int(np.random.SeedSequence([seed, place + 1]).generate_state(1)[0])
            drawn = (np.asarray(draw)[place] for draw in draws)
            fits.append((dict(zip(names, drawn, strict=True)), own))
    return fits


def prior_locations(approx: Approximation, count: int, seed: int | None) -> list[FloatArray]:
    """Draws from the prior as means of an approximation; none where it cannot be drawn from."""
    model = approx.model
    if count < 1 or improper_priors(model.free_RVs):
        return []
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    place = int(np.random.SeedSequence(seed).spawn(3)[2].generate_state(1)[0])
    graph = freeze_shared(forward_graph(model))
    with ALONE:
        # One more than is used: of a single draw PyMC drops the first dimension.
        draws = pm.draw(graph, draws=count + 1, random_seed=place, mode=python_mode())
    by_name = dict(zip(names, draws, strict=True))
    order = list(approx.groups[0].ordering)
    return [np.concatenate([np.ravel(by_name[name][i]) for name in order]) for i in range(count)]


def best_of(fits: list[Approximation], asked: int) -> Approximation:
    """Return the fit with the highest final ELBO; with several, all of them are kept in it."""
    if asked == 1:
        return fits[0]
    elbo = np.array([fit.tempering.elbo for fit in fits])
    best = fits[int(np.argmax(np.where(np.isnan(elbo), -np.inf, elbo)))]
    best.restarts = tuple(fits)
    if len(fits) < asked:
        sentence = (
            f"{asked - len(fits)} of {asked} fits are missing: the ELBO was not finite at their "
            "first iteration, or the run was interrupted."
        )
        best.tempering = replace(best.tempering, warnings=(*best.tempering.warnings, sentence))
    return best


def _check_start(model: pm.Model, start: dict[str, Any] | None) -> None:
    known = {rv.name for rv in model.free_RVs} | {value.name for value in model.value_vars}
    if unknown := sorted(set(start or {}) - known):
        raise ValueError(f"start names variables that are not free: {unknown}")
