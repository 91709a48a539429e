"""The plan that a run is made with: from the prior, or from a fitted and checked reference.

A pilot from the prior carries draws between the modes; the reference is fitted to those; fresh
tours from the prior, which the fit never saw, then say whether it missed something. Where they
say so it is fitted again to all that was seen, with fresh tours again, and at last given up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pymc as pm

from pymc_tempering.chains import Plan
from pymc_tempering.cycles import ColdDraws, FreshTours
from pymc_tempering.evidence.legs import compare_legs, summarize
from pymc_tempering.fitted import MAX_FIT_DRAWS, Fitted, fit_mixture, nearest_component
from pymc_tempering.kernels import Kernel
from pymc_tempering.legs import Leg, run_leg
from pymc_tempering.prepare import Options, warm_up_prior
from pymc_tempering.references import Prior, evaluate
from pymc_tempering.warmup import Warmup, warm_up

N_CHAINS = 4
"""Chains of the pilot, of the trial and of the check."""

PILOT_DRAWS = 200
"""Draws of each chain of a pilot or a check, at first; more until it has its tours."""

TRIAL_DRAWS = 500
"""Draws of each chain of the trial leg that the fit is judged by before the run."""

LEG_BOUND = 20
"""Legs from the prior stop at this many times the work of the run itself, tours or not."""

MAX_FITS = 3

REFIT_DRAWS = 50
"""A fit to fewer draws than this per dimension is repeated with draws of its own trial."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A frozen plan, and how it came about.

    Attributes
    ----------
    plan : Plan
        What the run is made with.
    warmup : Warmup
        Of that plan.
    fresh : FreshTours, optional
        What fresh tours from the prior say; only with a fitted reference that was checked.
    check : Leg, optional
        Those tours.
    fits : int
        Fits that were tried.
    work : dict
        Density evaluations of each stage.
    """

    plan: Plan
    warmup: Warmup
    fresh: FreshTours | None = None
    check: Leg | None = None
    fits: int = 0
    work: dict[str, int] = field(default_factory=dict)

    @property
    def fitted(self) -> Fitted | None:
        """The fitted reference, if that is what the run is made with."""
        reference = self.plan.reference
        return reference if isinstance(reference, Fitted) else None


def prepare(
    model: pm.Model,
    kernel: Kernel,
    options: Options,
    rng: np.random.Generator,
    *,
    cores: int,
    n_draws: int = 4000,
    report: Callable[[str], None] = lambda line: None,
) -> Prepared:
    """Compile and check a model, and find the plan for a run of `n_draws` draws in all.

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model cannot be tempered; see their messages.
    """
    warmup = warm_up_prior(model, kernel, options, rng, cores=cores, report=report)
    prior = warmup.plan.reference
    assert isinstance(prior, Prior)
    work = {"prior_warmup": warmup.annealed.n_evaluations}
    if options.reference == "prior" or prior.path.circular.size:
        return Prepared(warmup.plan, warmup, work=work)
    report("Pilot: tours from the prior")
    bound = max(PILOT_DRAWS, LEG_BOUND * n_draws // N_CHAINS)
    pilot = run_leg(
        warmup.plan, rng, n_chains=N_CHAINS, n_draws=PILOT_DRAWS, cores=cores,
        min_tours=options.check_tours, max_draws=bound, keep_states=True,
    )  # fmt: skip
    work["pilot"] = pilot.n_steps
    seen = [pilot]
    for fit in range(1, MAX_FITS + 1):
        report(f"Fitting the reference to {len(seen)} leg(s) from the prior")
        fitted, trial, steps = _fit(prior, warmup.plan, seen, options, rng, cores)
        work["fit"] = work.get("fit", 0) + steps
        if options.reference == "fitted":
            return Prepared(fitted.plan, fitted, fits=fit, work=work)
        report("Check: fresh tours from the prior")
        # A third of the work at least, whatever error the tours state.
        share = max(1.0, 0.5 * n_draws / N_CHAINS / TRIAL_DRAWS * trial.n_steps / pilot.n_steps)
        first = int(np.ceil(share * pilot.cycles.n_draws))
        check = run_leg(
            pilot.refined_plan(), rng, n_chains=N_CHAINS, n_draws=min(first, bound), cores=cores,
            min_tours=options.check_tours, max_draws=bound, keep_states=True,
        )  # fmt: skip
        work["check"] = work.get("check", 0) + check.n_steps
        reference = fitted.plan.reference
        assert isinstance(reference, Fitted)
        n = reference.components.n_components
        fresh = summarize(check.evidence, cold_draws(reference, check), n, options.check_tours)
        verdict = compare_legs(trial.evidence, cold_draws(reference, trial), fresh).verdict
        if verdict != "disagreed":
            return Prepared(fitted.plan, fitted, fresh, check, fit, work)
        seen.append(check)
    report("The fits missed something: staying with the prior")
    return Prepared(check.refined_plan(), warmup, fits=MAX_FITS, work=work)


def _fit(
    prior: Prior,
    plan: Plan,
    seen: list[Leg],
    options: Options,
    rng: np.random.Generator,
    cores: int,
) -> tuple[Warmup, Leg, int]:
    """Fit a reference to legs from the prior, warm it up and try it out."""
    each = MAX_FIT_DRAWS // len(seen)
    draws = np.concatenate([leg.posterior_sample(each, rng) for leg in seen])
    n_components, steps = None, 0
    while True:
        components = fit_mixture(draws, rng, n_components)
        warmup = warm_up(
            Fitted(prior, components), plan.kernel, rng,
            ladder_move=options.ladder_move, rungs_per_barrier=options.rungs_per_barrier,
            cores=cores, n_particles=256,
        )  # fmt: skip
        trial = run_leg(
            warmup.plan, rng, n_chains=N_CHAINS, n_draws=TRIAL_DRAWS, cores=cores, keep_states=True
        )
        steps += warmup.annealed.n_evaluations + trial.n_steps
        if n_components is not None or len(draws) >= REFIT_DRAWS * prior.path.dim:
            return warmup, trial, steps
        n_components = components.n_components
        draws = trial.posterior_sample(MAX_FIT_DRAWS, rng)


def cold_draws(reference: Fitted, leg: Leg) -> ColdDraws:
    """Read the draws of any leg in the terms of a fitted reference."""
    shape = leg.x.shape[:2]
    flat = leg.x.reshape(-1, leg.x.shape[2])
    log_ratio = evaluate(reference.path, flat, reference.mixture)[1]
    component = nearest_component(reference.components, flat)
    return ColdDraws(
        log_ratio.reshape(shape), component.reshape(shape).astype(float), leg.cycles.tour_start
    )
