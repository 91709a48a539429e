"""Repeated tempering runs of the Gaussian toy with exact draws, and bugs to plant in them."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import xarray as xr
from scipy.special import digamma, gammaln, polygamma

from pymc_tempering.core.cycles import LADDER_STATS, FlatTrace
from pymc_tempering.evidence import read_run
from pymc_tempering.evidence.datatree import Run, read_cycles
from support.synthetic import GaussianToy, cycle_sums, simulate, synthetic_datatree

GAUSSIAN_TOY = GaussianToy()
BETAS = np.array([0.0, 0.03, 0.12, 0.4, 1.0])
# Neither uniform nor exact: a sign error or a dropped term would hide in a perfect ladder.
LOG_WEIGHT = np.log(np.array([3.0, 1.0, 2.0, 1.5, 2.5]) / 10.0)
LOG_Z_LADDER = GAUSSIAN_TOY.log_z(BETAS) + np.array([0.0, 0.2, -0.3, 0.25, -0.2])
EXACT = float(GAUSSIAN_TOY.log_z(1.0))


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

    def ratio_moments(self, beta):
        a, rate = 1.0 + self.shape * beta, 1.0 + self.rate * beta
        mean = self.shape * (digamma(a) - np.log(rate)) - self.rate * a / rate
        variance = self.shape**2 * polygamma(1, a) + self.rate**2 * a / rate**2
        return mean, variance - 2.0 * self.shape * self.rate / rate

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

    def ratio_moments(self, beta):
        """Mean and variance over the part with positive likelihood."""
        s = np.maximum(self.rate * beta, 1e-3)  # below it the limits, to 1e-7
        grown = np.expm1(s * self.cut)
        mean = np.where(beta > 0.0, 1.0 / s - self.cut / grown, self.cut / 2.0)
        variance = 1.0 / s**2 - self.cut**2 * (grown + 1.0) / grown**2
        variance = np.where(beta > 0.0, variance, self.cut**2 / 12.0)
        return -self.rate * mean, self.rate**2 * variance

    def reference_draw(self, n, rng):
        return rng.random(n)

    def explore(self, x, beta, rho, rng):
        u, scale = rng.random(x.size), np.maximum(self.rate * beta, 1e-12)
        truncated = -np.log1p(u * np.expm1(-scale * self.cut)) / scale
        return np.where(beta == 0.0, u, truncated)


def ratio_moments(toy, beta):
    """Exact mean and variance of log_ratio under pi_beta."""
    if not isinstance(toy, GaussianToy):
        return toy.ratio_moments(beta)
    mean, sd = toy.moments(beta)
    off, constant = mean - toy.y, toy.log_ratio(np.array(toy.y))
    variance = (0.5 * sd**4 + off**2 * sd**2) / toy.sigma**4
    return constant - 0.5 * (off**2 + sd**2) / toy.sigma**2, variance


TOYS = {"gauss": GAUSSIAN_TOY, "gamma": GammaToy(), "cut": CutToy()}


@cache
def repeats(n, *, toy="gauss", draws=150, chains=4, rho=0.0, ladder_move="gibbs", seed=0):
    """Return n independent runs, each as ``CycleStats``."""
    return [run.stats for run in repeated_runs(n, toy, draws, chains, rho, ladder_move, seed)]


@cache
def repeated_runs(
    n, toy="gauss", draws=150, chains=4, rho=0.0, ladder_move="gibbs", seed=0, off=None
):
    """Return n independent runs with their flat traces; ``off`` as for ``repeated_trees``."""
    law, ladder, sums = _simulated(n, toy, draws, chains, rho, ladder_move, seed, off)
    return _split(read_run(synthetic_datatree(law, *ladder, sums)), n)


@cache
def repeated_trees(
    n, toy="gauss", draws=150, chains=4, rho=0.0, ladder_move="gibbs", seed=0, off=None
):
    """Return n independent runs as DataTrees; ``off`` is log Z-hat less log Z, by rung."""
    law, ladder, sums = _simulated(n, toy, draws, chains, rho, ladder_move, seed, off)
    parts = (sums[i : i + chains] for i in range(0, n * chains, chains))
    return [synthetic_datatree(law, *ladder, part) for part in parts]


def _simulated(n, toy, draws, chains, rho, ladder_move, seed, off):
    """The path, its ladder, and the sums of the cycles of all chains of n runs."""
    log_z = LOG_Z_LADDER
    if toy != "gauss" or off is not None:
        off = (0.0, 0.2, -0.3, 0.25, -0.2) if off is None else off
        log_z = TOYS[toy].log_z(BETAS) + np.array(off)
    law, ladder = TOYS[toy], (BETAS, log_z, LOG_WEIGHT)
    trace = simulate(
        law,
        *ladder,
        draws=draws,
        n_chains=n * chains,
        rho=rho,
        ladder_move=ladder_move,
        rng=np.random.default_rng(seed),
    )
    return law, ladder, [cycle_sums(law, *ladder, trace, c, draws) for c in range(n * chains)]


def _split(run, n):
    """Cut a run into n of equal numbers of chains: quicker than a DataTree for each."""
    stats, trace = run.stats, run.trace
    by_chain = {k: v for k, v in vars(stats).items() if k not in LADDER_STATS and v is not None}
    cycles = np.linspace(0, stats.n_chains * stats.n_draws, n + 1).astype(int)
    edges = np.searchsorted(trace.cycle, cycles)
    parts = {k: np.split(v, n) for k, v in by_chain.items()}
    flat = {k: np.split(v, edges[1:-1]) for k, v in vars(trace).items()}
    flat["cycle"] = [part - first for part, first in zip(flat["cycle"], cycles, strict=False)]
    return [
        Run(
            replace(stats, **{k: v[i] for k, v in parts.items()}),
            FlatTrace(**{k: v[i] for k, v in flat.items()}),
        )
        for i in range(n)
    ]


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


def calibration_faults(found, exact, repeats):
    """Sentences about z-scores that are not standard normal.

    With R standard normal z-scores the standard errors are 1 / sqrt(R) of the mean, that over
    sqrt(2) of the sd, and 0.22 / sqrt(R) of the coverage. Each may be off by 4 of them: 2e-4 of
    false alarms a method and path. The mean has room for the bias of a ratio, of order
    1 / sqrt(tours).
    """
    z = np.array([(e.log_z - exact) / e.mcse for e in found if np.isfinite(e.mcse)])
    coverage = np.mean(np.abs(z) < 1.96)
    if z.size < 0.97 * repeats:
        yield f"{repeats - z.size} errors are infinite"
    if abs(z.mean()) > 4.0 / np.sqrt(repeats) + 0.1:
        yield f"mean of z-scores {z.mean():.2f}"
    if abs(z.std() - 1.0) > 4.0 / np.sqrt(2.0 * repeats):
        yield f"sd of z-scores {z.std():.2f}"
    if abs(coverage - 0.95) > 4.0 * 0.22 / np.sqrt(repeats):
        yield f"coverage {coverage:.3f}"
