"""Small runs and estimates that the pictures of the explanations are drawn of, with fixed seeds."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from support.synthetic import gaussian_run

import pymc_tempering as pmt

DIM, WIDTH = 5, 0.1
"""Of the target to which particles are annealed, from a standard normal: N(1, WIDTH^2)."""

EXACT_ANNEALED = DIM * float(np.log(np.sqrt(2.0 * np.pi) * WIDTH))
"""log Z of that target, whose density lacks its constant (nats)."""

EXACT_BRIDGED = float(np.log(0.5))
"""log Z of the model with two modes of 0.65 and 0.35 (nats)."""


def bridged() -> dict[str, pmt.Evidence]:
    """Return what the bridge says to exact draws of two modes, and to those of one of them."""
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        x = pm.Uniform("x", -10, 10)
        modes = [pm.logp(pm.Normal.dist(at, 0.5), x) for at in (-4.0, 4.0)]
        weights = np.log([0.65, 0.35]) + np.log(0.5 * 20.0)
        pm.Potential("two", pm.math.logaddexp(modes[0] + weights[0], modes[1] + weights[1]))
    found = {}
    for name, share in (("draws of both modes", 0.35), ("draws of one mode", 0.0)):
        at = np.where(rng.random((4, 500)) < share, 4.0, -4.0)
        draws = xr.Dataset({"x": (("chain", "draw"), at + 0.5 * rng.normal(size=at.shape))})
        tree = xr.DataTree.from_dict({"posterior": draws})
        found[name] = pmt.bridge_sampling(tree, model, random_seed=1, quiet=True)
    return found


def annealed() -> dict[str, pmt.Evidence]:
    """Return annealed estimates from both sides, on few rungs and on more."""

    def reference_draw(n: int, rng: np.random.Generator) -> Any:
        return rng.normal(size=(n, DIM))

    def log_ratio(x: Any) -> Any:
        return np.sum(0.5 * x**2 + 0.5 * np.log(2 * np.pi) - 0.5 * ((x - 1) / WIDTH) ** 2, axis=1)

    def move(x: Any, beta: Any, rng: np.random.Generator) -> Any:
        precision = (1.0 - beta + beta / WIDTH**2)[:, None]
        mean = beta[:, None] / WIDTH**2 / precision
        return mean + 0.5 * (x - mean) + (0.75 / precision) ** 0.5 * rng.normal(size=x.shape)

    density = pmt.arrays.ArrayDensity(reference_draw, log_ratio, move, reversible=True)
    exact = 1.0 + WIDTH * np.random.default_rng(1).normal(size=(2000, DIM))
    chain = np.repeat(np.arange(4), 500)
    found = {}
    for rungs in (100, 30, 10):
        ways = pmt.arrays.annealing(density, rungs, random_seed=1)
        found[f"ais, {rungs} rungs"] = ways.ais(2000, random_seed=2)
        found[f"reverse_ais, {rungs} rungs"] = ways.reverse_ais(exact, chain, random_seed=3)
    return found


def slow_kernels() -> dict[str, xr.DataTree]:
    """Return runs of one length whose kernels forget where they were at once, and slowly."""
    betas = np.linspace(0.0, 1.0, 5) ** 2
    return {
        f"autocorrelation {rho:g}": gaussian_run(400, betas=betas, rho=rho, random_seed=2)
        for rho in (0.0, 0.9, 0.99)
    }
