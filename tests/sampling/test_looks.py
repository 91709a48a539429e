"""Looks: weights of annealed importance sampling, independent, whatever threads take them."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from support.compiled_systems import prior, system

from pymc_tempering.core.weighting import log_mean, log_mean_error
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.sampling import looks as looks_module
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.evaluated import evaluate_states
from pymc_tempering.sampling.looks import BLOCK, add_looks, take_looks
from pymc_tempering.warmup.annealed_pass import anneal

WALL = 0.5


@cache
def walled():
    """A standard normal and a potential that is 0 below a wall and minus infinity above it."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("wall", pt.switch(x > WALL, -np.inf, 0.0))
    return compile_model(model)


@cache
def annealed(name):
    of = walled() if name == "walled" else prior(name)
    kernel = on_all(HMC(), of.path.dim)
    return of, kernel, anneal(of, kernel, np.random.default_rng(0), n_particles=256)


def looks(name, n=200, seed=1, cores=1, **finer):
    of, kernel, path = annealed(name)
    job = Job(of, kernel, Options(), np.random.default_rng(seed), cores)
    return take_looks(job, path, n, **finer)


@pytest.mark.parametrize("finer", [1, 2, 4])
@pytest.mark.parametrize("name", ["gaussian", "beta_binomial"])
def test_the_mean_weight_is_the_evidence(name, finer):
    """|z| < 4 in three seeds each (false alarm 6e-4)."""
    for seed in range(3):
        log_w = looks(name, seed=seed, finer=finer).log_w
        assert log_mean_error(log_w) < 0.2
        off = log_mean(log_w) - system(name).log_evidence
        assert abs(off) < 4 * log_mean_error(log_w)


@pytest.mark.parametrize("betas", [[0.0, 1.0], [0.0, 1e-4, 1.0], [0.0, 0.01, 0.2, 0.3, 1.0]])
def test_a_finer_path_has_steps_of_the_log_between_its_stages(betas):
    betas = np.array(betas)
    fine = looks_module._finer(betas, 4)
    assert fine.size == 4 * (betas.size - 1) + 1
    assert (fine[0], fine[-1]) == (0.0, 1.0)
    assert (np.diff(fine) > 0).all()
    np.testing.assert_allclose(fine[::4], betas, rtol=1e-12)
    np.testing.assert_allclose(np.diff(fine[:5]), betas[1] / 4)
    if betas.size > 2:
        np.testing.assert_allclose(np.diff(np.log(fine[4:9])), np.log(betas[2] / betas[1]) / 4)
    assert looks_module._finer(betas, 1) is betas


def test_weights_of_a_finer_path_vary_less_at_the_cost_of_its_stages():
    """In the limit of slow looks the variance of the log weights goes with one over the stages."""
    coarse, fine = (looks("gaussian", 1000, finer=n) for n in (1, 4))
    assert fine.log_w.var() < 0.7 * coarse.log_w.var()
    assert 2.5 < fine.n_evaluations / coarse.n_evaluations < 5.0


def test_a_finer_path_that_lacks_its_beginning_is_seen(monkeypatch):
    """Planted bug: the first step of the path, from the prior, has no weight."""
    original = looks_module._finer
    monkeypatch.setattr(looks_module, "_finer", lambda betas, n: original(betas, n)[1:])
    log_w = looks("gaussian", 1000, finer=4).log_w
    assert abs(log_mean(log_w) - system("gaussian").log_evidence) > 4 * log_mean_error(log_w)


def test_weights_of_another_path_are_seen(monkeypatch):
    """Planted bug: the weights of half the way."""
    original = looks_module.carry

    def half(particles, betas, params, begin, end, log_w, sums):
        before = log_w.copy()
        original(particles, betas, params, begin, end, log_w, sums)
        log_w[:] = 0.5 * (before + log_w)

    monkeypatch.setattr(looks_module, "carry", half)
    log_w = looks("gaussian").log_w
    assert abs(log_mean(log_w) - system("gaussian").log_evidence) > 4 * log_mean_error(log_w)


@pytest.mark.slow("compiles models of its own")
def test_zero_likelihood_counts():
    """The weights are 0 and 1; |z| < 4 of a share of 1000."""
    found = looks("walled", 1000)
    alive = stats.norm.cdf(WALL)
    assert set(np.exp(found.log_w)) == {0.0, 1.0}
    assert found.ends.n == found.n == 1000
    share = np.mean(found.log_w == 0.0)
    assert abs(share - alive) < 4 * np.sqrt(alive * (1 - alive) / 1000)
    assert (found.ends.xs[found.log_w == 0.0, 0] < WALL).all()
    assert (found.ends.log_target[found.log_w == -np.inf] == -np.inf).all()


def test_same_seed_same_looks_whatever_the_cores_and_the_number():
    one, two = (looks("gaussian", 60, cores=cores) for cores in (1, 2))
    fewer, other = looks("gaussian", 2 * BLOCK), looks("gaussian", 60, seed=2)
    for name in ("xs", "log_prior", "log_likelihood"):
        np.testing.assert_array_equal(getattr(one.ends, name), getattr(two.ends, name))
    np.testing.assert_array_equal(one.log_w, two.log_w)
    assert one.n_evaluations == two.n_evaluations
    np.testing.assert_array_equal(one.log_w[: 2 * BLOCK], fewer.log_w)
    assert not np.isin(one.log_w, other.log_w).any()


def test_the_terms_of_the_ends_are_those_of_the_model():
    found = looks("gaussian", 30)
    again = evaluate_states(annealed("gaussian")[0], found.ends.xs)
    np.testing.assert_allclose(found.ends.log_prior, again.log_prior, rtol=1e-12)
    np.testing.assert_allclose(found.ends.log_likelihood, again.log_likelihood, rtol=1e-12)


def spread_of_blocks():
    """Variance of the means of blocks over that of independent looks, for weights and states."""
    found = looks("gaussian", 40 * BLOCK)
    columns = np.column_stack([found.log_w, found.ends.xs])
    means = columns.reshape(40, BLOCK, -1).mean(axis=1)
    return BLOCK * means.var(axis=0, ddof=1) / columns.var(axis=0, ddof=1)


def test_looks_are_independent():
    """Ratios of variances with 39 degrees of freedom: sd 0.23, and 4 of them, in three columns."""
    ratios = spread_of_blocks()
    assert ratios.max() < 1.9
    assert ratios.min() > 0.35


def test_looks_that_were_resampled_are_seen(monkeypatch):
    original = looks_module.carry

    def resampled(particles, betas, params, begin, end, log_w, sums):
        middle = (begin + end) // 2
        original(particles, betas, params, begin, middle, log_w, sums)
        copies = np.repeat(np.arange(particles.n // 5), 5)[: particles.n]
        particles.select(copies)
        log_w[:] = log_w[copies]
        original(particles, betas, params, middle, end, log_w, sums)

    monkeypatch.setattr(looks_module, "carry", resampled)
    assert spread_of_blocks().max() > 2.5


def test_looks_end_in_the_posterior_and_cost_one_way():
    """Of the exact law but for the weights; a few moves, so within a broad bound alone."""
    _, _, path = annealed("gaussian")
    found = looks("gaussian", 500)
    [(mean, variance)] = system("gaussian").moments(1.0).values()
    w = np.exp(found.log_w - found.log_w.max())[:, None]
    off = (w * found.ends.xs).sum(axis=0) / w.sum() - mean
    assert (np.abs(off) < 0.5 * np.sqrt(variance)).all()
    moves = 500 * (path.betas.size - 1)
    assert 500 + moves <= found.n_evaluations < 500 + 40 * moves


def test_sets_of_looks_are_put_together():
    one, two = looks("gaussian", 30), looks("gaussian", 40, seed=2)
    both = add_looks(one, two)
    assert both.n == 70
    np.testing.assert_array_equal(both.log_w, np.append(one.log_w, two.log_w))
    assert both.n_evaluations == one.n_evaluations + two.n_evaluations


def test_an_interrupt_goes_through(monkeypatch):
    monkeypatch.setattr(looks_module, "run_work", lambda *args: ([], True))
    with pytest.raises(KeyboardInterrupt, match="looks"):
        looks("gaussian")
