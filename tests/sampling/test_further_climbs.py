"""Modes that no scout from the prior meets: inside of known regions, far out, at crossings."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import cauchy, norm, t

import pymc_tempering as pmt
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.sampling import climbs, regions, search
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.evaluated import Evaluated

DIM, NARROW = 10, 0.1


def spike_in_a_slab():
    """Nine tenths of the evidence lie in the middle of a slab, ten times narrower."""
    sds, shares = np.array([1.0, NARROW]), np.log([0.1, 0.9])
    constants = shares - DIM * np.log(sds * np.sqrt(2 * np.pi)) + DIM * np.log(10.0)
    with pm.Model(coords={"axis": range(DIM)}) as model:
        x = pm.Uniform("x", -5, 5, dims="axis")
        r = -0.5 * pt.sum(x**2)
        pm.Potential(
            "parts", pt.logaddexp(*(c + r / sd**2 for c, sd in zip(constants, sds, strict=True)))
        )
    inside = DIM * np.log(np.diff(norm.cdf([-5, 5]))[0])
    return model, float(np.logaddexp(shares[0] + inside, shares[1]))


def far(law, dim, at, build):
    """A prior against as heavy a likelihood far away: each coordinate near one of them."""
    with pm.Model(coords={"axis": range(dim)}) as model:
        build(np.full(dim, at))
    grid = np.sinh(np.linspace(-18, 18, 1_000_001)) / 50
    grid = np.unique(np.concatenate([grid, at + grid]))
    log_p = law(grid) + law(at - grid)
    return model, float(dim * logsumexp(log_p + np.log(np.gradient(grid))))


def two_places():
    def build(y):
        x = pm.Cauchy("x", 0, 1, dims="axis")
        pm.Cauchy("y", x, 1, observed=y, dims="axis")

    return far(cauchy.logpdf, 1, 20_000.0, build)


def eight_places():
    def build(y):
        x = pm.StudentT("x", nu=2, mu=0, sigma=1, dims="axis")
        pm.StudentT("y", nu=2, mu=x, sigma=1, observed=y, dims="axis")

    return far(lambda x: t.logpdf(x, 2), 3, 200.0, build)


def found(model, seed=1):
    idata = pmt.sample(model=model, random_seed=seed, cores=1, quiet=True, progressbar=False)
    return pmt.log_marginal_likelihood(idata)


@pytest.mark.parametrize(
    "build",
    [
        spike_in_a_slab,
        pytest.param(two_places, marks=pytest.mark.slow("compiles models of its own")),
        pytest.param(eight_places, marks=pytest.mark.slow("compiles models of its own")),
    ],
)
def test_all_modes_are_found(build):
    model, exact = build()
    evidence = found(model)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - exact) < max(4.0 * evidence.mcse, 0.02)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(("build", "lost"), [(spike_in_a_slab, 2.0), (eight_places, 0.1)])
def test_without_further_climbs_modes_are_lost(monkeypatch, build, lost):
    """Planted: the scouts from the prior are all that climbs."""
    none = Evaluated(np.zeros((0, DIM)), np.zeros(0), np.zeros(0))
    monkeypatch.setattr(
        search,
        "climb_further",
        lambda job, *args: (
            none.at(slice(0))
            if job.prior.path.dim == DIM
            else Evaluated(np.zeros((0, 3)), *np.zeros((2, 0)))
        ),
    )
    model, exact = build()
    assert min(found(model, seed).log_z for seed in (1, 2, 3)) < exact - lost


def ends_of_likelihoods(n=30, steps=climbs.FAR_STEPS):
    """How many climbs up t-likelihoods of four data, some far out, come near all of them."""
    data = np.array([3e4, -500.0, 120.0, -25.0])
    with pm.Model() as model:
        x = pm.StudentT("x", nu=2, mu=0, sigma=1, shape=4)
        pm.StudentT("y", nu=2, mu=x, sigma=1, observed=data)
    prior = compile_model(model, check=False)
    starts = np.random.default_rng(1).standard_t(2, size=(n, 4))
    nowhere = lambda states: (np.zeros(states.n, bool), np.full(states.n, np.inf))  # noqa: E731
    ends, _ = climbs.ascend(prior.path, starts, np.ones(4), nowhere, steps, likelihood=True)
    return (np.abs(ends.xs - data) < 3.0).all(axis=1).mean()


def test_climbs_of_a_likelihood_come_to_data_of_any_distance():
    """Planted: half as many steps, in which none comes to all four."""
    assert ends_of_likelihoods() > 0.3
    assert ends_of_likelihoods(steps=climbs.FURTHER_STEPS) < 0.1


def reaches_the_other_line(**options):
    """Climbs from far out that end where four of seven data lie on a line far from the prior."""
    depth = np.arange(-3.0, 4.0)
    data = np.where(np.arange(7) % 2 == 0, 110.0 + 2.0 * depth, 0.3)
    with pm.Model(coords={"gauge": range(7)}) as model:
        base = pm.StudentT("base", nu=3, mu=0, sigma=1)
        slope = pm.StudentT("slope", nu=3, mu=0, sigma=1)
        pm.StudentT("y", nu=3, mu=base + slope * depth, sigma=0.5, observed=data, dims="gauge")
    prior, rng = compile_model(model, check=False), np.random.default_rng(1)
    starts = 10.0 ** rng.uniform(0, climbs.WIDEST, (1000, 1)) * rng.standard_t(3, size=(1000, 2))
    nowhere = lambda states: (np.zeros(states.n, bool), np.full(states.n, np.inf))  # noqa: E731
    ends, _ = climbs.ascend(prior.path, starts, np.ones(2), nowhere, climbs.FAR_STEPS, **options)
    return int((np.abs(ends.xs - [110.0, 2.0]) < 1.0).all(axis=1).sum())


def test_a_mode_far_from_the_prior_is_met_from_farther_out():
    """Planted: steps that are no longer than those of scouts."""
    assert reaches_the_other_line(longest=np.inf) >= 10
    assert reaches_the_other_line() < 10


SCALE = 0.1


def cusp(x):
    return pt.sum(-pt.abs(x) / SCALE) - x.shape[0] * np.log(2 * SCALE)


def wall(x):
    return pt.sum(pt.switch(x > 0, -x / SCALE, -np.inf)) - x.shape[0] * np.log(SCALE)


def ridge(x):
    return pm.logp(pm.MvNormal.dist(np.zeros(3), 0.99 + 0.01 * np.eye(3)), x)


def pierced(x):
    """A normal of sd `SCALE` with a spike of a thousandth of its mass on top."""
    one = pm.logp(pm.Normal.dist(0, SCALE), x).sum()
    return pt.logaddexp(one, pm.logp(pm.Normal.dist(0, SCALE / 500), x).sum() + np.log(1e-3))


def weighed(density, start):
    """Log masses of the regions around a place, under a wide uniform prior."""
    with pm.Model() as model:
        x = pm.Uniform("x", -10, 10, shape=3, default_transform=None)
        pm.Potential("density", density(x) + 3 * np.log(20.0))
    prior = compile_model(model, check=False)
    job = Job(prior, on_all(HMC(), 3), Options(), np.random.default_rng(1))
    return [region.log_mass for region, _ in regions.regions_around(job, None, np.array(start))]


@pytest.mark.parametrize(
    ("density", "start", "masses"),
    [
        (cusp, [1e-4, -1e-5, 2e-4], [0.0]),
        (wall, [1e-3, 1e-4, 1e-3], [0.0]),
        pytest.param(ridge, [0.0, 0.0, 0.0], [0.0], marks=pytest.mark.slow("as the others")),
        (pierced, [0.0, 0.0, 0.0], [np.log(1e-3), 0.0]),
    ],
)
def test_walkers_tell_the_mass_of_a_region_whatever_its_shape(density, start, masses):
    """The curvature at a cusp or behind a wall tells nothing, and that of a spike the spike's.

    Behind walls the normal of the walkers reaches too far, and overrates the mass.
    """
    off = np.array(weighed(density, start)) - masses
    assert (off > -0.4).all()
    assert (off < (1.0 if density is wall else 0.4)).all()
