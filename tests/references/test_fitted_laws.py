"""Tempering from a fitted reference keeps the laws that quadrature gives: every rung, every sum."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp
from support.side_runs import run_beside

from pymc_tempering import testsystems
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.mixture import FullScales, LowRankScales, Mixture
from pymc_tempering.references.prior import Fitted, evaluate_draws
from pymc_tempering.warmup.warm_up import warm_up

BETAS = np.array([0.0, 0.3, 0.7, 1.0])
FULL = Mixture(
    weights=np.array([0.7, 0.3]),
    means=np.array([[1.0, -2.0], [-3.0, 0.5]]),
    scales=FullScales(np.array([[[0.8, 0.0], [0.5, 1.1]], [[0.4, 0.0], [-0.3, 0.6]]])),
    dofs=np.array([5.0, 5.0]),
    prior_share=0.1,
)
LOW_RANK = replace(
    FULL,
    scales=LowRankScales(
        np.array([[0.6, 0.9], [0.5, 0.4]]), np.array([[[0.7], [-0.5]], [[0.2], [0.6]]])
    ),
)
MIXTURES = {
    "full": replace(FULL, prior_share=0.4),
    "low rank": LOW_RANK,
    "with hull": FULL.with_hull(0.05, 3.0),
}


@cache
def prior():
    return compile_model(testsystems.gaussian().model)


@cache
def exact(name):
    """log Z at each rung, mean and variance of log_ratio there, and mean of x, by quadrature."""
    axis = np.linspace(-60.0, 60.0, 1201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_reference, log_ratio = evaluate_draws(
        prior().path, grid, Fitted(prior(), MIXTURES[name]).mixture
    )
    step = 2 * np.log(axis[1] - axis[0])
    log_zs, means, variances = [], [], []
    for beta in BETAS:
        log_p = log_reference + beta * log_ratio
        log_zs.append(logsumexp(log_p) + step)
        p = np.exp(log_p + step - log_zs[-1])
        means.append(p @ log_ratio)
        variances.append(p @ (log_ratio - means[-1]) ** 2)
    return np.array(log_zs), np.array(means), np.array(variances), p @ grid


@dataclass(frozen=True)
class NeverFromPrior(Fitted):
    """Planted bug: the density has a share of the prior, the draws do not."""

    def draw(self, n, rngs):
        return self.components.draw(n, rngs[0])


@dataclass(frozen=True)
class FirstOnly(Fitted):
    """Planted bug: the density has two components, the draws have one."""

    def draw(self, n, rngs):
        one = Mixture(
            np.ones(1),
            self.components.means[:1],
            self.components.scales.first(1),
            self.components.dofs[:1],
            self.components.prior_share,
        )
        return Fitted(self.prior, one).draw(n, rngs)


def scores(name, kind=Fitted, seed=1):
    """Largest |z| of a leg's estimates against quadrature: log Z, mean log_ratio, draws."""
    log_zs, means, _, mean_x = exact(name)
    rng = np.random.default_rng(seed)
    kernel = on_all(HMC(), prior().path.dim)
    plan = warm_up(
        kind(prior(), MIXTURES[name]), kernel, rng, ladder_move="metropolized_gibbs", betas=BETAS
    ).plan
    plan = plan.with_ladder(Ladder(BETAS, log_zs, np.zeros(BETAS.size)))
    leg = run_beside(plan, rng, n_chains=4, n_draws=3000, cores=1)
    curve = (leg.evidence.log_z_curve - log_zs)[1:] / leg.evidence.log_z_curve_mcse[1:]
    cycles = leg.cycles
    xs = np.array([run.record.x[:3000] for run in leg.runs])

    def ratio_z(numerator, denominator, expected):
        """Of a ratio of sums over cycles, by batches of 100 draws."""
        top, bottom = (
            v.reshape(4, 30, 100, -1).sum(axis=2).reshape(120, -1) for v in (numerator, denominator)
        )
        ratio = top.sum(axis=0) / bottom.sum(axis=0)
        influence = (top - ratio * bottom) / bottom.mean(axis=0)
        return (ratio - expected) / (influence.std(axis=0, ddof=1) / np.sqrt(120))

    at_rungs = ratio_z(cycles.rb_log_ratio_sum, cycles.rb_weight, means)
    visited = ratio_z(cycles.log_ratio_sum, cycles.visits, means)
    draws = ratio_z(xs, np.ones_like(xs), mean_x)
    steps = cycles.tempering_steps[..., None]
    shares = ratio_z(cycles.visits, np.repeat(steps, BETAS.size, axis=2), 1 / BETAS.size)
    found = {
        "log Z": curve,
        "log_ratio": np.append(at_rungs, visited),
        "draws": draws,
        "shares": shares,
    }
    return {part: float(np.abs(z).max()) for part, z in found.items()}


@pytest.mark.parametrize("name", MIXTURES)
def test_quadrature_knows_that_the_reference_is_normalized(name):
    log_zs, _, _, _ = exact(name)
    assert log_zs[0] == pytest.approx(0.0, abs=2e-3)  # the t's tails beyond the grid
    assert log_zs[-1] == pytest.approx(testsystems.gaussian().log_evidence, abs=1e-6)


@pytest.mark.parametrize("name", MIXTURES)
def test_every_rung_has_its_law(name):
    """17 scores |z| < 4.5: false alarm 1e-4 a case, seed fixed."""
    assert max(scores(name).values()) < 4.5


@pytest.mark.parametrize("kind", [NeverFromPrior, FirstOnly])
def test_draws_that_are_not_those_of_the_density_are_seen(kind):
    found = scores("full", kind)
    assert max(found["log Z"], found["log_ratio"], found["shares"]) > 8
