"""Jobs, annealed passes and fits of small systems, for tests of the search; made once."""

from functools import cache

import numpy as np

from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.sampling import fit_reference as fitting
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.evaluated import evaluate_states
from pymc_tempering.warmup.annealed_pass import anneal
from support.compiled_systems import prior


def job_of(name, seed=1, **options):
    """A job with all variables under HMC."""
    of = prior(name)
    return Job(of, on_all(HMC(), of.path.dim), Options(), np.random.default_rng(seed), **options)


@cache
def annealed(name):
    """An annealed pass from the prior."""
    job = job_of(name)
    return anneal(job.prior, job.kernel, job.rng, n_particles=256)


@cache
def fit_of(name):
    """A reference fitted to the particles of that pass."""
    job, xs = job_of(name, 2), annealed(name).particles
    return fitting.fit_reference(job, fitting.fit_to(job, xs, rough=True), xs)


def region(inside, distance=None):
    """Where states are home, and how far others are from it; equally far by default."""
    far = lambda states: np.full(states.n, np.inf)  # noqa: E731
    return lambda states: (inside(states), (distance or far)(states))


def nowhere(states):
    """No state is home."""
    return np.zeros(states.n, dtype=bool), np.full(states.n, np.inf)


def no_scouts(job, *rest):
    """In the place of `send_scouts`."""
    return evaluate_states(job.prior, np.empty((0, job.prior.path.dim)))
