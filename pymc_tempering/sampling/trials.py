"""A reference fitted to legs from the prior, tried out, and fitted again to what the trial found.

A pilot from the prior has to meet the modes; the draws that a precise fit needs come cheaper from
the trial, whose path is short. So the pilot is measured in tours, and the fit in draws.
"""

import numpy as np

from pymc_tempering.kernels import Compound
from pymc_tempering.references.fitted import Fitted
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.mixture_fit import MAX_FIT_DRAWS, fit_mixture
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.setup import Options
from pymc_tempering.sampling.side_runs import SideRun, lengthen, run_beside
from pymc_tempering.warmup.warm_up import Warmup, warm_up

COMPONENT_TOURS = 10
"""Tours of a pilot for each component that the fit finds: fewer may have missed one."""

N_TRIAL_CHAINS, TRIAL_DRAWS = 4, 500
"""Chains of the trial leg that a fit is judged by, and draws of each."""

MAX_TRIALS = 3
"""Fits to the same legs from the prior, each with what the trial of the one before found."""

NUMBER_DRAWS = 10
"""A fit to fewer draws than this for each number in it is repeated with draws of its trial."""

TOUR_DRAWS = 10
"""Draws of a tour from the prior that count beside those of a trial: they are much alike."""


def fit_pilot(
    pilot: SideRun, rng: np.random.Generator, *, max_draws: int, cores: int
) -> tuple[SideRun, Mixture]:
    """Fit a mixture to a pilot, which goes on until it has tours enough for the components.

    Parameters
    ----------
    max_draws : int
        Draws of each chain at which the pilot stops all the same.
    """
    components = fit_mixture(pilot.posterior_sample(MAX_FIT_DRAWS, rng), rng)
    while True:
        needed = COMPONENT_TOURS * components.n_components
        if pilot.n_tours >= needed or pilot.cycles.n_draws >= max_draws:
            return pilot, components
        pilot = lengthen(pilot, min_tours=needed, max_draws=max_draws, cores=cores)
        components = fit_mixture(pilot.posterior_sample(MAX_FIT_DRAWS, rng), rng, components)


def try_fit(
    prior: Prior,
    kernel: Compound,
    components: Mixture,
    legs: list[SideRun],
    options: Options,
    rng: np.random.Generator,
    cores: int,
    draws: np.ndarray | None = None,
) -> tuple[Warmup, SideRun, int]:
    """Warm up a fitted reference and try it out; fit it again while its trial can improve it.

    Parameters
    ----------
    components : Mixture
        Of the first fit.
    legs : list of SideRun
        Tours from the prior that it stands on; none if it stands on something else.
    draws : array, shape (n, d), optional
        Posterior draws of an earlier run from a fitted reference, that it stands on too.

    Returns
    -------
    warmup : Warmup
    trial : SideRun
    steps : int
        Density evaluations of all warm-ups and trials.
    """
    steps = 0
    draws = np.empty((0, prior.path.dim)) if draws is None else draws
    independent = len(draws)
    for attempt in range(1, MAX_TRIALS + 1):
        warmup = warm_up(
            Fitted(prior, components), kernel, rng,
            ladder_move=options.ladder_move, weight_adaptation=options.weight_adaptation,
            rungs_per_barrier=options.rungs_per_barrier, cores=cores, n_particles=256,
        )  # fmt: skip
        trial = run_beside(
            warmup.plan, rng, n_chains=N_TRIAL_CHAINS, n_draws=TRIAL_DRAWS, cores=cores,
            keep_states=True,
        )  # fmt: skip
        steps += warmup.annealed.n_evaluations + trial.n_steps
        sound = np.isfinite(trial.evidence.mcse)
        if attempt == MAX_TRIALS or (sound and independent >= draws_needed(components)):
            break
        parts = [leg.posterior_sample(TOUR_DRAWS * leg.n_tours, rng) for leg in legs]
        parts.append(trial.posterior_sample(MAX_FIT_DRAWS, rng))
        components = fit_mixture(np.concatenate([*parts, draws]), rng, components)
        independent = sum(map(len, parts)) + len(draws)
    return warmup, trial, steps


def draws_needed(components: Mixture) -> int:
    """Draws that determine a mixture, up to what a fit takes."""
    dim = components.means.shape[1]
    numbers = components.n_components * (dim + 1) * (dim + 2) // 2
    return min(NUMBER_DRAWS * numbers, 2000)
