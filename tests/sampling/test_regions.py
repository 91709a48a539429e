"""Regions where chains stay: their mass, and what is let go."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from support.compiled_systems import prior, system

from pymc_tempering.core.deadline import PAST
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.model.path import Path
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.labels import all_labelings
from pymc_tempering.sampling import regions
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.fit_reference import fit_to
from pymc_tempering.warmup.annealed_pass import anneal

MANY = 10**9
"""Evaluations that are no bound."""


@pytest.fixture(scope="module")
def stuck():
    """A job on two modes with .65 and .35 of the evidence, and ten states of its posterior."""
    return job_of("two_modes")


def job_of(name):
    of, rng = prior(name), np.random.default_rng(1)
    job = Job(of, on_all(HMC(), of.path.dim), Options(), rng)
    annealed = anneal(of, job.kernel, rng, n_particles=256)
    return job, annealed, annealed.particles[:10]


@pytest.mark.parametrize("name", ["gaussian", "two_modes"])
def test_chains_tell_the_mass_of_the_mode_that_they_stay_in(name):
    """For a normal mode the mean of q / target hardly varies; of two halves the larger counts."""
    job, annealed, starts = job_of(name)
    exact = system(name).log_evidence
    found = [regions.region_around(job, annealed, x)[0] for x in starts]
    log_share = np.zeros(10)
    if name == "two_modes":
        first = [peak.holds(system(name).mode_centers[:1])[0] for peak in found]
        log_share = np.log(np.where(first, 0.65, 0.35))
        assert 0 < sum(first) < 10
    errors = np.array([peak.log_mass for peak in found]) - exact - log_share
    assert np.abs(errors).max() < 0.5
    assert all(peak.holds(x[None])[0] for peak, x in zip(found, starts, strict=True))


@pytest.fixture(scope="module")
def exchangeable():
    """A mixture of two levels that overlap, its job, and its evidence on a grid."""
    y = np.array([-0.9, 0.2, 0.7, 1.1])
    with pm.Model() as model:
        level = pm.Normal("level", 0, 1, shape=2)
        law = pm.Normal.dist(level, 1, shape=2)
        pm.Mixture("y", [0.5, 0.5], law, observed=y)
    of = compile_model(model, check=False)
    grid = np.linspace(-6, 6, 401)
    a, b = np.meshgrid(grid, grid)
    log_p = (
        norm.logpdf(a)
        + norm.logpdf(b)
        + sum(np.logaddexp(norm.logpdf(each, a), norm.logpdf(each, b)) - np.log(2) for each in y)
    )
    exact = logsumexp(log_p) + 2 * np.log(grid[1] - grid[0])
    return Job(of, on_all(HMC(), 2), Options(), np.random.default_rng(1)), exact


def test_where_labels_can_be_exchanged_the_mass_is_that_of_one_labeling(exchangeable):
    """Walkers go through both. Planted: nobody brings them to one."""
    job, exact = exchangeable
    assert len(job.prior.labelings) == 2
    xs = job.prior.draw(400, job.prior.spawn(job.rng))
    first = replace(fit_to(job, xs, rough=True), means=np.array([[0.5, -0.2]]))
    fit = SimpleNamespace(components=all_labelings(first, job.prior.labelings))
    found = [regions.region_around(job, None, np.array([0.5, -0.2]), fit)[0] for _ in range(5)]
    np.testing.assert_allclose([peak.log_mass for peak in found], exact - np.log(2), atol=0.35)
    alone = [regions.region_around(job, None, np.array([0.5, -0.2]))[0] for _ in range(5)]
    assert min(peak.log_mass for peak in alone) > exact - 0.2


def test_what_walkers_go_through_and_the_fit_hardly_covers_is_a_region_of_its_own():
    """A ridge leads from a known mode to another, and walkers go through both.

    Planted: a fit that covers both, or none, has no such part.
    """
    with pm.Model() as model:
        x = pm.Uniform("x", -20, 20, shape=2, default_transform=None)
        known, other = pm.MvNormal.dist([0, 0], np.eye(2)), pm.MvNormal.dist([5, 0], np.eye(2))
        between = pm.MvNormal.dist([2.5, 0], np.diag([9.0, 1.0]))
        parts = [
            np.log(w) + pm.logp(law, x) for w, law in ((0.45, known), (0.45, other), (0.1, between))
        ]
        pm.Potential("density", pm.math.logaddexp(*parts) + 2 * np.log(40.0))
    of = compile_model(model, check=False)
    job = Job(of, on_all(HMC(), 2), Options(), np.random.default_rng(1))

    def found(covers):
        fit = SimpleNamespace(
            components=SimpleNamespace(labelings=None), suspects=lambda s: ~covers(s.xs[:, 0])
        )
        return [region for region, _ in regions.regions_around(job, None, np.zeros(2), fit)]

    first, *rest = found(lambda x: x < 2.5)
    assert first.log_mass == pytest.approx(0.0, abs=0.3)
    apart = max(rest, key=lambda peak: peak.mean[0])
    assert apart.mean == pytest.approx([5.0, 0.0], abs=0.7)
    assert apart.log_mass == pytest.approx(np.log(0.5), abs=0.5)
    alone = [*found(lambda x: x > -99), *found(lambda x: x < -99)]
    assert max(abs(peak.mean[0] - 2.5) for peak in alone) < 1.0


def weigh_regions(job, *args):
    before = job.tally.work["fit"]
    heavy, light, explained = regions.weigh_regions(job, *args)
    cost = job.tally.work["fit"] - before
    return SimpleNamespace(heavy=heavy, light=light, explained=explained, n_evaluations=cost)


def test_each_region_is_weighed_once(stuck):
    job, annealed, xs = stuck
    found = weigh_regions(job, annealed, xs, system("two_modes").log_evidence, MANY, 0.0)
    assert (len(found.heavy), found.light, found.explained.any()) == (2, [], False)
    _, each = regions.region_around(job, annealed, xs[0])
    assert found.n_evaluations == pytest.approx(2 * each, rel=0.2)


def test_light_ones_are_let_go_as_long_as_they_hold_little_together(stuck):
    """Beside e^9 times as much evidence the two modes hold .80e-4 and .43e-4 of all."""
    job, annealed, xs = stuck
    log_z = system("two_modes").log_evidence + 9.0
    found = weigh_regions(job, annealed, xs, log_z, MANY, 0.0)
    assert (found.heavy, len(found.light), found.explained.all()) == ([], 2, True)
    assert sum(region.share(log_z) for region in found.light) == pytest.approx(np.exp(-9), rel=0.1)
    found = weigh_regions(job, annealed, xs, log_z, MANY, 0.00495)
    assert len(found.light) == 1
    assert 0 < found.explained.sum() < 10


@pytest.mark.parametrize("why", ["bound", "deadline", "dimensions"])
def test_what_was_not_weighed_is_not_explained(stuck, monkeypatch, why):
    job, annealed, xs = stuck
    if why == "dimensions":
        monkeypatch.setattr(regions, "MAX_WEIGHED_DIM", 9)
    if why == "deadline":
        job = Job(job.prior, job.kernel, job.options, job.rng, deadline=PAST)
    bound = 0 if why == "bound" else MANY
    found = weigh_regions(job, annealed, xs, 100.0, bound, 0.0)
    assert len(found.light) == (1 if why == "bound" else 0)
    assert not found.explained.all()


WHITE, CORRELATION = 60, 0.95


def beside_white(monkeypatch, n_white):
    """Masses of a region (1 in all) of three correlated variables beside white ones, if known as
    such, and whether it is let go beside e^12 times as much evidence."""
    covariance = (1.0 - CORRELATION) * np.eye(3) + CORRELATION
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Normal("u", shape=WHITE)
        law = pm.logp(pm.MvNormal.dist(np.zeros(3), covariance), x)
        pm.Potential("correlated", law - pm.logp(pm.Normal.dist(), x).sum())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "n_white", n_white)
        of, rng = compile_model(model), np.random.default_rng(1)
        job = Job(of, on_all(HMC(), of.path.dim), Options(), rng)
        annealed = anneal(of, job.kernel, rng, n_particles=64)
        starts = annealed.particles[:5]
        found = [regions.region_around(job, annealed, x)[0].log_mass for x in starts]
        light = weigh_regions(job, annealed, starts[:1], 12.0, MANY, 0.0).light
    return np.array(found), len(light)


@pytest.mark.slow("compiles models of its own")
def test_white_dimensions_are_not_those_of_a_region(monkeypatch):
    masses, n_light = beside_white(monkeypatch, WHITE)
    assert np.abs(masses).max() < 0.3
    assert n_light == 1
    masses, n_light = beside_white(monkeypatch, 0)  # planted: they count as others do
    assert masses.min() > 0.6
    assert n_light == 0
