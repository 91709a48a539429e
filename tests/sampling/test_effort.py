"""What a run does where a value of the density is dear."""

import json
from dataclasses import replace
from math import ceil
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy.stats import multivariate_normal

import pymc_tempering as pmt
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.kernels.assign import compile_with_kernels
from pymc_tempering.model.path import CHEAP_WORK, Path
from pymc_tempering.references import compiled_mixture
from pymc_tempering.references.prior import evaluate_draws
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.choose_plan import choose_plan
from pymc_tempering.sampling.effort import (
    DEFAULT_MCSE,
    DRAWN_MCSE,
    SHORT_MCSE,
    WIDE_MCSE,
    Effort,
    effort_of,
    is_wide,
)
from pymc_tempering.sampling.evaluated import evaluate_states, slopes_at
from pymc_tempering.sampling.reference_draws import N_TRIAL, begin_beside, draw_beside

MEAN = np.array([1.0, -0.5, 0.5])
COVARIANCE = 0.25 * (0.3 * np.eye(3) + 0.7)
EXACT = multivariate_normal(cov=COVARIANCE + 9.0 * np.eye(3)).logpdf(MEAN)
PRECISION = np.linalg.inv(COVARIANCE)
HEIGHT = multivariate_normal(MEAN, COVARIANCE).logpdf(MEAN)
MOST_EVALUATIONS = 40_000


class BlackBox(Op):
    """A normal log density in Python, without gradient."""

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        away = inputs[0] - MEAN
        outputs[0][0] = np.asarray(HEIGHT - 0.5 * away @ PRECISION @ away)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 3, shape=3)
        pm.Potential("y", BlackBox()(x))
    return model


def path_of(work, dim=3, n_white=0):
    dear = work > CHEAP_WORK
    return SimpleNamespace(work=work, dim=dim, n_white=n_white, dear=dear)


def test_a_cheap_density_gets_all():
    assert effort_of(path_of(CHEAP_WORK)) == Effort()


def test_a_dearer_density_never_gets_more():
    works = np.geomspace(1e3, 1e10, 50)
    numbers = [np.array(list(flat(effort_of(path_of(work))))) for work in works]
    assert (np.diff(numbers, axis=0) <= 0).all()
    assert list(numbers[-1]) == [32, 32, 256, 250, 2000, 250, 50]
    errors = [effort_of(path_of(work)).mcse for work in works]
    assert errors[0] == errors[-1] == DEFAULT_MCSE
    assert min(errors) == effort_of(path_of(2 * CHEAP_WORK)).mcse == SHORT_MCSE


def test_chains_of_many_values_are_not_so_short_that_r_hat_is_large_by_chance():
    assert effort_of(path_of(1e9, dim=100)).draws == 250
    assert effort_of(path_of(1e9, dim=101)).draws == 500


def flat(effort):
    for value in vars(effort).values():
        yield from value if isinstance(value, tuple) else [value] if value >= 1 else []


def test_particles_are_enough_for_a_fit_in_their_dimensions():
    assert effort_of(path_of(1e9, dim=60)).particles == 120
    assert effort_of(path_of(1e9, dim=200)).particles == 256
    assert effort_of(path_of(1e9, dim=1000, n_white=997)).particles == 32


def test_a_value_in_many_dimensions_counts_more():
    """Above `WIDE_DIM` fits are of low rank, and do with few particles; white ones do not count."""
    path = path_of(2 * CHEAP_WORK, dim=2000)
    wide, dear = effort_of(path), effort_of(path_of(20 * CHEAP_WORK))
    assert is_wide(path)
    assert (wide.particles, wide.trial_particles) == (64, (32, 64))
    assert (wide.proposed, wide.looks, wide.mcse) == (dear.proposed, dear.looks, dear.mcse)
    assert effort_of(path_of(1e9, dim=2000)).mcse == WIDE_MCSE
    for narrow in (path_of(2 * CHEAP_WORK, 200), path_of(2 * CHEAP_WORK, 2000, n_white=1800)):
        assert not is_wide(narrow)
        assert effort_of(narrow).mcse == SHORT_MCSE


def test_a_far_reference_has_all_particles_but_where_most_of_it_is_white_or_of_low_rank():
    """The tuning of chains rests on them."""
    far = [effort_of(path_of(1e9, *path)).trial_particles[1] for path in [(9,), (200,), (201,)]]
    assert far == [256, 256, 64]
    assert effort_of(path_of(1e9, 1000, n_white=997)).trial_particles[1] == 64


def evaluations(model):
    idata = pmt.sample(model=model, random_seed=1, progressbar=False, quiet=True)
    spent = sum(json.loads(idata["tempering"].attrs["evaluations"]).values())
    return idata, spent + int(idata["sample_stats"]["n_steps"].sum())


def test_a_black_box_is_asked_seldom_and_its_evidence_is_right(model):
    idata, spent = evaluations(model)
    found = pmt.log_marginal_likelihood(idata)
    assert found.verdict == "ok"
    assert abs(found.log_z - EXACT) < 4.0 * found.mcse < 0.08
    assert spent < MOST_EVALUATIONS
    assert idata.posterior.sizes["draw"] < 1000
    assert found.check.n_looks == 50


@pytest.mark.slow("compiles models of its own")
def test_a_cost_that_is_read_as_zero_is_seen(model, monkeypatch):
    monkeypatch.setattr(Path, "dear", False)
    _, spent = evaluations(model)
    assert spent > MOST_EVALUATIONS


def test_who_asks_for_draws_gets_them(model):
    idata = pmt.sample(
        300, reference_draws=500, check_looks=60, model=model, random_seed=1, progressbar=False,
        quiet=True,
    )  # fmt: skip
    assert pmt.log_marginal_likelihood(idata).check.n_looks == 60
    assert idata.posterior.sizes["draw"] == 300
    assert json.loads(idata["tempering"].attrs["evaluations"])["reference_draws"] == 500


def test_the_draws_that_count_are_not_those_that_tell_their_number(model):
    prior, kernel = compile_with_kernels(model, None, 0.8)
    job = Job(prior, kernel, Options(), np.random.default_rng(2))
    plan = choose_plan(job).plan
    trial, _ = np.random.default_rng(3).spawn(2)
    beside = begin_beside(plan, None, 30_000, np.random.default_rng(3))
    reference = plan.reference
    xs = reference.draw(N_TRIAL, reference.spawn(trial))
    _, log_ratio = evaluate_draws(reference.path, xs, reference.mixture)
    variance = N_TRIAL / effective_number(log_ratio) - 1.0
    assert beside.fixed == max(N_TRIAL, ceil(variance / DRAWN_MCSE**2))
    drawn, _ = draw_beside(job, replace(beside, fixed=N_TRIAL), 0)
    assert not np.isin(drawn.log_ratio, log_ratio).any()


def test_values_of_a_dear_density_are_shared_by_all_cores(monkeypatch):
    with pm.Model() as rows:
        pm.Normal("y", pm.Normal("x", 0, 1, shape=2).sum(), 1, observed=np.zeros(CHEAP_WORK))
    prior, kernel = compile_with_kernels(rows, None, 0.8)
    job = Job(prior, kernel, Options(), np.random.default_rng(1), cores=3)
    assert job.value_cores == 3
    xs, sizes = prior.draw(100, prior.spawn(job.rng)), []
    original = compiled_mixture.call_loop

    def spy(*args):
        sizes.append(len(args[2]))
        return original(*args)

    monkeypatch.setattr(compiled_mixture, "call_loop", spy)
    alone = evaluate_states(prior, xs)
    together = evaluate_states(prior, xs, job.value_cores)
    assert sorted(sizes) == [33, 33, 34, 100]
    np.testing.assert_array_equal(alone.log_target, together.log_target)
    slopes = [slopes_at(prior.path, xs, np.ones(2), cores)[1] for cores in (1, 3)]
    np.testing.assert_array_equal(*slopes)


def test_a_cheap_density_and_one_in_python_stay_on_one_core(model, monkeypatch):
    with pm.Model() as small:
        pm.Normal("y", pm.Normal("x"), 1, observed=1.0)
    prior, kernel = compile_with_kernels(small, None, 0.8)
    job = Job(prior, kernel, Options(), np.random.default_rng(1), cores=3)
    assert job.value_cores == 1
    dear, _ = compile_with_kernels(model, None, 0.8)
    monkeypatch.setattr(compiled_mixture, "run_all", None)
    xs = dear.draw(10, dear.spawn(job.rng))
    assert evaluate_states(dear, xs, 3).n == 10
