"""Repeated tempering runs of the Gaussian toy with exact draws, and bugs to plant in them."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import xarray as xr
from scipy.special import gammaln

from pymc_tempering.datatree import read_cycles
from pymc_tempering.evidence import read_run
from pymc_tempering.synthetic import GaussianToy, cycle_sums, simulate, to_datatree

TOY = GaussianToy()
BETAS = np.array([0.0, 0.03, 0.12, 0.4, 1.0])
# Neither uniform nor exact: a sign error or a dropped term would hide in a perfect ladder.
LOG_WEIGHT = np.log(np.array([3.0, 1.0, 2.0, 1.5, 2.5]) / 10.0)
LOG_Z_LADDER = TOY.log_z(BETAS) + np.array([0.0, 0.2, -0.3, 0.25, -0.2])
EXACT = float(TOY.log_z(1.0))


@dataclass(frozen=True)
class GammaToy:
    """x ~ Exponential(1) and a gamma likelihood x^shape exp(-rate x): a gamma law at every beta."""

    shape: float = 3.0
    rate: float = 4.0
    y: float = 0.0

    def log_ratio(self, x):
        return self.shape * np.log(x) - self.rate * x

    def log_z(self, beta):
        a = 1.0 + self.shape * beta
        return gammaln(a) - a * np.log1p(self.rate * beta)

    def reference_draw(self, n, rng):
        return rng.standard_exponential(n)

    def explore(self, x, beta, rho, rng):
        return rng.gamma(1.0 + self.shape * beta) / (1.0 + self.rate * beta)


@dataclass(frozen=True)
class CutToy:
    """x ~ Uniform(0, 1) and exp(-rate x) below a cut, zero likelihood above it."""

    cut: float = 0.6
    rate: float = 6.0
    y: float = 0.0

    def log_ratio(self, x):
        return np.where(x < self.cut, -self.rate * x, -np.inf)

    def log_z(self, beta):
        scale = np.maximum(self.rate * np.asarray(beta), 1e-12)
        return np.where(scale > 1e-9, np.log(-np.expm1(-scale * self.cut) / scale), 0.0)

    def reference_draw(self, n, rng):
        return rng.random(n)

    def explore(self, x, beta, rho, rng):
        u, scale = rng.random(x.size), np.maximum(self.rate * beta, 1e-12)
        truncated = -np.log1p(u * np.expm1(-scale * self.cut)) / scale
        return np.where(beta == 0.0, u, truncated)


TOYS = {"gauss": TOY, "gamma": GammaToy(), "cut": CutToy()}


@cache
def repeats(n, *, toy="gauss", draws=150, chains=4, rho=0.0, ladder_move="gibbs", seed=0):
    """Return n independent runs, each as ``CycleStats``."""
    return [run.stats for run in repeated_runs(n, toy, draws, chains, rho, ladder_move, seed)]


@cache
def repeated_runs(
    n, toy="gauss", draws=150, chains=4, rho=0.0, ladder_move="gibbs", seed=0, betas=None
):
    """Return n independent runs, each with its flat trace; ladders are neither even nor exact."""
    toy = TOYS[toy]
    betas = BETAS if betas is None else np.array(betas)
    shift = 0.3 * np.sin(2.0 * np.arange(betas.size))
    weight = LOG_WEIGHT if betas is BETAS else np.full(betas.size, -np.log(betas.size))
    ladder = (betas, LOG_Z_LADDER if toy is TOY and betas is BETAS else toy.log_z(betas) + shift)
    ladder += (weight,)
    trace = simulate(
        toy, *ladder, draws=draws, n_chains=n * chains, rho=rho, ladder_move=ladder_move,
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    sums = [cycle_sums(toy, *ladder, trace, chain, draws) for chain in range(n * chains)]
    parts = (sums[i : i + chains] for i in range(0, n * chains, chains))
    return [read_run(to_datatree(toy, *ladder, part)) for part in parts]


def drop_log_weight(stats):
    return replace(stats, log_weight=np.zeros_like(stats.log_weight))


def shift_ladder(stats):
    """Let the rungs k of the stored log Z-hat be those of k - 1."""
    return replace(stats, log_z_ladder=np.append(0.0, stats.log_z_ladder[:-1]))


def ignore_head(stats):
    return replace(stats, rb_weight_head=np.zeros_like(stats.rb_weight_head))


def q_of_trace(idata, chain):
    """Return rungs and q(beta_k | x), equation (7), of every iteration of one chain."""
    trace = idata["tempering_trace"].to_dataset().isel(chain=chain)
    rung = trace["rung"].values
    ratio = trace["log_ratio"].values[rung >= 0]
    stats = read_cycles(idata)
    w = np.exp(stats.log_weight - stats.log_z_ladder + stats.beta * ratio[:, None])
    return rung[rung >= 0], w / w.sum(axis=1, keepdims=True)


def with_stats(idata, **changes):
    """Return a copy with some variables of sample_stats replaced by functions of themselves."""
    result = idata.copy()
    stats = result["sample_stats"].to_dataset()
    for name, change in changes.items():
        stats[name] = (stats[name].dims, change(stats[name].values.copy()))
    result["sample_stats"] = xr.DataTree(stats)
    return result


def join_chains(*runs):
    """Put the chains of runs of equal length side by side, as one run."""
    names = ("posterior", "sample_stats")
    groups = {
        name: xr.concat([run[name].to_dataset() for run in runs], "chain").assign_coords(
            chain=np.arange(sum(run["posterior"].sizes["chain"] for run in runs))
        )
        for name in names
    }
    return xr.DataTree.from_dict(groups | {"observed_data": runs[0]["observed_data"].to_dataset()})
