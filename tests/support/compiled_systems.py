"""Exact systems with their compiled paths, compiled once for all test files of a process."""

from functools import cache, partial

from pymc_tempering import testsystems
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.prior import compile_prior

SYSTEMS = {
    "gaussian": testsystems.gaussian,
    "beta_binomial": testsystems.beta_binomial,
    "unidentifiable_binomial": testsystems.unidentifiable_binomial,
    "long_path": partial(testsystems.gaussian_posterior, dim=10),
    "two_modes": testsystems.gaussian_mixture,
}
"""Systems that are small enough to run in many tests, by the name that tests use."""


@cache
def system(name):
    return SYSTEMS[name]()


@cache
def prior(name):
    return compile_prior(compile_path(system(name).model))
