"""Exact posterior draws of test systems, as DataTrees: what a perfect sampler would return."""

from functools import cache

import numpy as np
import xarray as xr
from scipy import stats

from pymc_tempering import testsystems
from pymc_tempering.bridge.target import Target
from pymc_tempering.model.path import compile_path
from support.compiled_systems import prior, system


def with_log_density(tree, log_density):
    """Put the log density of the draws, shape (chain, draw), where samplers store it."""
    tree["sample_stats"] = xr.DataTree(xr.Dataset({"lp": (("chain", "draw"), log_density)}))
    return tree


def with_density_of(tree, model):
    """The same of a model whose variables have no transforms, by PyMC."""
    log_density, values = model.compile_logp(), tree["posterior"].to_dataset()
    names = [rv.name for rv in model.free_RVs]
    shape = tuple(values.sizes[dim] for dim in ("chain", "draw"))
    points = ({n: values[n].values[at] for n in names} for at in np.ndindex(shape))
    return with_log_density(tree, np.reshape([log_density(point) for point in points], shape))


def posterior_tree(**variables):
    """A DataTree with a posterior alone, of arrays of shape (chain, draw, ...)."""
    data = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(np.ndim(x) - 2))), x)
        for name, x in variables.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data)})


def plain_target(path):
    return Target(path, 1)


@cache
def target(name):
    return plain_target(prior(name).path)


def autoregressive(rng, shape, rho):
    """Standard normal chains, shape (chain, draw, d), of autocorrelation rho^lag."""
    x = rng.standard_normal(shape)
    for i in range(1, shape[1]):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1.0 - rho**2) * x[:, i]
    return x


def gaussian_draws(name, rng, shape, rho=0.0):
    """Posterior draws, shape (chain, draw, d), of a system with independent normals."""
    ((mean, variance),) = system(name).moments(1.0).values()
    return mean + np.sqrt(variance) * autoregressive(rng, (*shape, mean.size), rho)


def beta_draws(rng, shape, rho=0.0):
    """Logits of the posterior Beta draws of the beta-binomial system: skewed on both scales."""
    uniform = stats.norm.cdf(autoregressive(rng, (*shape, 1), rho))
    p = stats.beta(1.5 + 14.0, 4.0 + 6.0).ppf(uniform)
    return np.log(p) - np.log1p(-p)


@cache
def two_modes():
    """System and target of two normal modes in the plane, with shares 0.65 and 0.35."""
    system = testsystems.gaussian_mixture(dim=2, separation=16.0)
    return system, plain_target(compile_path(system.model))


def mode_draws(rng, which):
    """Draws of the two modes, shape (chain, draw, 2), from ``which`` of them each is."""
    system, _ = two_modes()
    sd = (1.0 / 5.0**2 + 1.0 / 0.5**2) ** -0.5
    return system.mode_centers[which] + sd * rng.standard_normal((*which.shape, 2))
