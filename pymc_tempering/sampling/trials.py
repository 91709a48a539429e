"""Fit a reference to side runs from the prior, try it out, and fit it again to the trial's draws.

A pilot from the prior has to find the modes. A precise fit needs many draws, and these come
cheaper from a trial run, since its path is short. So a pilot must have enough tours, and a fit
enough draws.
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
"""Chains of the trial run that a fit is judged by, and draws of each."""

MAX_TRIALS = 3
"""Fits to the same side runs from the prior; each fit but the first also uses the last trial."""

NUMBER_DRAWS = 10
"""A mixture needs this many draws for each of its parameters; else it is fitted again."""

TOUR_DRAWS = 10
"""Draws of a tour from the prior that a fit uses at most: draws of one tour are much alike."""


def fit_pilot(
    pilot: SideRun, rng: np.random.Generator, *, max_draws: int, cores: int
) -> tuple[SideRun, Mixture]:
    """Fit a mixture to a pilot; lengthen the pilot until it has enough tours for the components.

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
    side_runs: list[SideRun],
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
    side_runs : list of SideRun
        Runs from the prior whose draws are used in every fit; may be empty.
    draws : array, shape (n, d), optional
        Posterior draws of an earlier run from a fitted reference, used in every fit too.

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
        parts = [
            side_run.posterior_sample(TOUR_DRAWS * side_run.n_tours, rng) for side_run in side_runs
        ]
        parts.append(trial.posterior_sample(MAX_FIT_DRAWS, rng))
        components = fit_mixture(np.concatenate([*parts, draws]), rng, components)
        independent = sum(map(len, parts)) + len(draws)
    return warmup, trial, steps


def draws_needed(components: Mixture) -> int:
    """Draws that a fit of this many components needs."""
    dim = components.means.shape[1]
    numbers = components.n_components * (dim + 1) * (dim + 2) // 2
    return min(NUMBER_DRAWS * numbers, 2000)
