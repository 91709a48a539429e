"""The plan that a run is made with: from the prior, or from a fitted and checked reference.

A pilot from the prior carries draws between the modes, and the reference is fitted to its draws.
Then fresh tours from the prior, which the fit never saw, show whether it missed something. If it
did, it is fitted again to all tours so far and checked by new ones. After `MAX_FITS` fits the run
stays with the prior.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from pymc_tempering.chain.draw_statistics import Schema
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.cycles import ColdDraws, FreshTours
from pymc_tempering.evidence.reference_check import compare_legs, no_fresh_tours, summarize
from pymc_tempering.exceptions import StuckChainError, TemperingWarning
from pymc_tempering.kernels import Compound
from pymc_tempering.references.fitted import Fitted
from pymc_tempering.references.mixture import Mixture, nearest_component
from pymc_tempering.references.mixture_fit import MAX_FIT_DRAWS, fit_mixture
from pymc_tempering.references.prior import Prior, evaluate_draws
from pymc_tempering.sampling.setup import Options, warm_up_prior
from pymc_tempering.sampling.side_runs import SideRun, run_beside
from pymc_tempering.sampling.trials import TOUR_DRAWS, fit_pilot, try_fit
from pymc_tempering.warmup.warm_up import Warmup

N_CHAINS = 4
"""Chains of the pilot and of the check."""

PILOT_DRAWS = 200
"""Draws of each chain of a pilot or a check, at first; more until it has its tours."""

PILOT_TOURS = 50
"""Tours of a pilot, unless the fit asks for more."""

MAX_SIDE_DRAWS = 10
"""Side runs from the prior stop at this many times the draws of the main run, tours or not."""

MAX_FITS = 3
"""Fits of a reference that the check may find wanting."""


@dataclass(frozen=True, eq=False)
class ChosenPlan:
    """A frozen plan, and how it came about.

    Attributes
    ----------
    plan : Plan
        What the run is made with.
    warmup : Warmup
        Of that plan.
    fresh : FreshTours, optional
        What fresh tours from the prior say; only with a fitted reference that was checked.
    check : SideRun, optional
        Those tours.
    pilot : SideRun, optional
        The tours from the prior that the first fit used.
    fits : int
        Fits that were tried.
    work : dict
        Density evaluations of each stage.
    """

    plan: Plan
    warmup: Warmup
    fresh: FreshTours | None = None
    check: SideRun | None = None
    pilot: SideRun | None = None
    fits: int = 0
    work: dict[str, int] = field(default_factory=dict)

    @property
    def fitted(self) -> Fitted | None:
        """The fitted reference, if that is what the run is made with."""
        reference = self.plan.reference
        return reference if isinstance(reference, Fitted) else None

    @property
    def schema(self) -> Schema:
        """Statistics of the draws of the run."""
        fitted = self.fitted
        components = None if fitted is None else fitted.components
        return Schema(self.plan.ladder, components, self.fresh, self.plan.reference.prior_constant)


def choose_plan(
    prior: Prior,
    kernel: Compound,
    options: Options,
    rng: np.random.Generator,
    *,
    cores: int,
    n_draws: int = 4000,
    report: Callable[[str], None] = lambda line: None,
) -> ChosenPlan:
    """Find the plan for a run of `n_draws` draws in all, of a compiled model."""
    warmup = warm_up_prior(prior, kernel, options, rng, cores=cores, report=report)
    work = {"prior_warmup": warmup.annealed.n_evaluations}
    if options.reference == "fitted" and not can_fit(prior, kernel):
        raise ValueError(
            "reference='fitted' is not for this model: "
            + (
                f"the kernel {kernel.name!r} only knows the path from the prior."
                if kernel.prior_only
                else "it has discrete or circular variables, for which no mixture of t's is fitted."
            )
            + " Use reference='prior', or 'auto'."
        )
    if options.reference == "prior" or not can_fit(prior, kernel):
        return ChosenPlan(warmup.plan, warmup, work=work)
    report("Pilot: tours from the prior")
    try:
        pilot = _tours(warmup.plan, PILOT_DRAWS, PILOT_TOURS, rng, cores, n_draws)
    except StuckChainError:
        # No tour comes back: fit to the particles of the annealed pass, without a check.
        components = fit_mixture(warmup.annealed.particles, rng)
        return _unchecked(prior, warmup, components, [], options, rng, cores, work)
    report("Fitting the reference to the pilot")
    pilot, components = fit_pilot(pilot, rng, max_draws=_bound(n_draws), cores=cores)
    work["pilot"] = pilot.n_steps
    if options.reference == "fitted":
        return _unchecked(prior, warmup, components, [pilot], options, rng, cores, work)
    start = ChosenPlan(warmup.plan, warmup, pilot=pilot, work=work)
    return fit_and_check(
        start, [pilot], options, rng, cores=cores, n_draws=n_draws, report=report, first=components
    )


def can_fit(prior: Prior, kernel: Compound) -> bool:
    """Whether a fitted reference may stand in for the prior."""
    return prior.path.fittable and not kernel.prior_only


def fit_and_check(
    chosen: ChosenPlan,
    seen: list[SideRun],
    options: Options,
    rng: np.random.Generator,
    *,
    cores: int,
    n_draws: int,
    report: Callable[[str], None] = lambda line: None,
    first: Mixture | None = None,
) -> ChosenPlan:
    """Fit a reference to side runs from the prior until fresh tours agree with it.

    After `MAX_FITS` fits the run stays with the prior, and a warning says so. `first` is the
    mixture of the first fit, if it was made already.
    """
    pilot, work = chosen.pilot, dict(chosen.work)
    assert pilot is not None
    prior, kernel = pilot.plan.reference, pilot.plan.kernel
    assert isinstance(prior, Prior)
    seen = list(seen)
    for fit in range(1, MAX_FITS + 1):
        report(f"Fitting the reference to {len(seen)} side run(s) from the prior")
        components = first if first is not None and fit == 1 else _fit_to(seen, rng)
        fitted, trial, steps = try_fit(prior, kernel, components, seen, options, rng, cores)
        work["fit"] = work.get("fit", 0) + steps
        if _cost(pilot) <= _cost(trial):  # the prior is as good: no fit, no check
            return replace(chosen, plan=pilot.refined_plan(), fits=fit, work=work)
        report("Check: fresh tours from the prior")
        # The check takes about a third of the work, whatever the error of its tours.
        run_steps = n_draws / trial.x[..., 0].size * trial.n_steps
        share = max(1.0, 0.6 * run_steps / pilot.n_steps)
        length = int(np.ceil(share * pilot.cycles.n_draws))
        try:
            check = _tours(pilot.refined_plan(), length, options.check_tours, rng, cores, n_draws)
        except StuckChainError:
            n = fitted_of(fitted.plan).components.n_components
            fresh = no_fresh_tours(n, options.check_tours)
            return replace(chosen, plan=fitted.plan, warmup=fitted, fresh=fresh, work=work)
        work["check"] = work.get("check", 0) + check.n_steps
        reference = fitted_of(fitted.plan)
        fresh = summary_of(reference, check, options)
        verdict = compare_legs(trial.evidence, cold_draws(reference, trial), fresh).verdict
        if verdict != "disagreed":
            return ChosenPlan(fitted.plan, fitted, fresh, check, pilot, fit, work)
        seen.append(check)
    warnings.warn(
        f"In {MAX_FITS} fits the fitted reference and fresh tours from the prior disagreed, so the "
        "run uses the prior as reference, and its error is larger: the prior's tours find some "
        "mode too rarely to fit it; sample more draws.",
        TemperingWarning,
        stacklevel=4,
    )
    return ChosenPlan(check.refined_plan(), chosen.warmup, fits=MAX_FITS, work=work)


def fit_again(
    chosen: ChosenPlan, draws: np.ndarray, options: Options, rng: np.random.Generator, cores: int
) -> ChosenPlan:
    """Fit the reference again, with the draws (n, d) of a run from it; the check stays fresh."""
    pilot, check, old = chosen.pilot, chosen.check, fitted_of(chosen.plan)
    assert pilot is not None
    assert check is not None
    parts = [pilot.posterior_sample(TOUR_DRAWS * pilot.n_tours, rng), draws]
    components = fit_mixture(np.concatenate(parts), rng, old.components)
    fitted, _, steps = try_fit(
        old.prior, pilot.plan.kernel, components, [pilot], options, rng, cores, draws
    )
    return replace(
        chosen,
        plan=fitted.plan,
        warmup=fitted,
        fresh=summary_of(fitted_of(fitted.plan), check, options),
        fits=chosen.fits + 1,
        work=chosen.work | {"fit": chosen.work["fit"] + steps},
    )


def _fit_to(side_runs: list[SideRun], rng: np.random.Generator) -> Mixture:
    """Fit a mixture to the draws of all side runs from the prior."""
    draws = [side_run.posterior_sample(MAX_FIT_DRAWS, rng) for side_run in side_runs]
    return fit_mixture(np.concatenate(draws), rng)


def _cost(side_run: SideRun) -> float:
    """Squared error of log Z times density evaluations: the price of precision."""
    return side_run.evidence.mcse**2 * side_run.n_steps


def _tours(
    plan: Plan, first: int, min_tours: int, rng: np.random.Generator, cores: int, n_draws: int
) -> SideRun:
    """Run tours from the prior, `first` draws a chain and more until there are enough."""
    bound = _bound(n_draws)
    return run_beside(
        plan, rng, n_chains=N_CHAINS, n_draws=min(first, bound), cores=cores,
        min_tours=min_tours, max_draws=bound, keep_states=True,
    )  # fmt: skip


def _bound(n_draws: int) -> int:
    """Draws of a chain at which a side run stops, for a main run of `n_draws` in all."""
    return max(PILOT_DRAWS, MAX_SIDE_DRAWS * n_draws // N_CHAINS)


def summary_of(reference: Fitted, check: SideRun, options: Options) -> FreshTours:
    """Summarize fresh tours as a check of a fitted reference."""
    n = reference.components.n_components
    return summarize(check.evidence, cold_draws(reference, check), n, options.check_tours)


def fitted_of(plan: Plan) -> Fitted:
    """Return the reference of a plan that is known to be fitted."""
    assert isinstance(plan.reference, Fitted)
    return plan.reference


def _unchecked(
    prior: Prior,
    warmup: Warmup,
    components: Mixture,
    side_runs: list[SideRun],
    options: Options,
    rng: np.random.Generator,
    cores: int,
    work: dict[str, int],
) -> ChosenPlan:
    """Fit a reference without a check; the summary says that there was none."""
    fitted, _, steps = try_fit(
        prior, warmup.plan.kernel, components, side_runs, options, rng, cores
    )
    n = fitted_of(fitted.plan).components.n_components
    fresh = no_fresh_tours(n, options.check_tours)
    return ChosenPlan(fitted.plan, fitted, fresh, fits=1, work=work | {"fit": steps})


def cold_draws(reference: Fitted, side_run: SideRun) -> ColdDraws:
    """Log ratio and component of draws as a fitted reference sees them, whatever they came from."""
    shape = side_run.x.shape[:2]
    flat = side_run.x.reshape(-1, side_run.x.shape[2])
    log_ratio = evaluate_draws(reference.path, flat, reference.mixture)[1]
    component = nearest_component(reference.components, flat)
    return ColdDraws(
        log_ratio.reshape(shape), component.reshape(shape).astype(float), side_run.cycles.tour_start
    )
