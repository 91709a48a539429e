"""Chains of equal length on a plan, for tests that need no search before them."""

from types import SimpleNamespace

from pymc_tempering.chain.chains import run_chains, start_runs
from pymc_tempering.evidence.rts import rts
from pymc_tempering.sampling.recorded import cycles_of, steps_of


def run_beside(plan, rng, *, n_chains, n_draws, cores):
    """Chains, statistics of their cycles, the RTS estimate from these, and evaluations."""
    runs = start_runs(plan, n_draws, rng.spawn(n_chains), False)
    run_chains(plan, runs, n_draws, cores=cores)
    cycles = cycles_of(plan, runs)
    return SimpleNamespace(runs=runs, cycles=cycles, evidence=rts(cycles), n_steps=steps_of(runs))
