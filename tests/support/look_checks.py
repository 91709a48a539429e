"""A run that is "ok" by itself, and what looks and annealed passes could say of it."""

from functools import cache

from pymc_tempering.core.cycles import FreshLooks
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.reference_check import compare_looks, with_check
from pymc_tempering.evidence.rts import rts
from support.synthetic import gaussian_run


@cache
def leg():
    """Evidence of a run, and its verdict is "ok"."""
    evidence = rts(read_cycles(gaussian_run(draws=400, random_seed=3)))
    assert evidence.verdict == "ok"
    return evidence


def looks(difference=0.0, mcse=0.05, n=100, strange=0, needed=100, arrived=60, **of_passes):
    """Looks whose log Z is higher than that of the run by a difference; three passes agree."""
    passes = {"n_passes": 3.0, "n_home_passes": 3.0, "pass_mcse": 0.1} | of_passes
    passes.setdefault("pass_log_z", leg().log_z)
    return FreshLooks(
        leg().log_z + difference, mcse, float(n), float(needed), float(strange),
        float(min(arrived, n)), **passes,
    )  # fmt: skip


def stats_of(fresh):
    """Statistics of each draw that tell a check, by name."""
    return {f"check_{name}": value for name, value in vars(fresh).items()}


def checked(fresh, evidence=None):
    """Evidence with the check."""
    evidence = evidence or leg()
    return with_check(evidence, compare_looks(evidence, fresh))
