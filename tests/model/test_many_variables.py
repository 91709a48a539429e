"""Models of many separate variables, as loops write them."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_tempering as pmt
from pymc_tempering.kernels.assign import compile_with_kernels
from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.density_graphs import raveled_graphs
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.terms import find_terms

HALF_LOG_2_PI = 0.5 * np.log(2.0 * np.pi)
RNG = np.random.default_rng(4)
Y, TABLE = RNG.normal(size=45), RNG.normal(size=(12, 20))


def normals(n):
    with pm.Model() as model:
        x = [pm.Normal(f"x{i}") for i in range(n)]
        pm.Normal("y", pm.math.stack(x), 1.0, observed=Y[:n])
    return model


def truths(n):
    with pm.Model() as model:
        x = [pm.Bernoulli(f"x{i}", 0.3) for i in range(n)]
        pm.Normal("y", pm.math.stack(x), 1.0, observed=Y[:n])
    return model


def columns():
    """As many covariates, each an array of its own in the graph."""
    with pm.Model() as model:
        mean = sum(pm.HalfNormal(f"slope{i}") * TABLE[:, i] for i in range(TABLE.shape[1]))
        pm.Normal("y", mean, 1.0, observed=Y[:12])
    return model


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("build", [lambda: normals(45), columns], ids=["normals", "columns"])
def test_density_and_gradient_are_those_of_pymc(build):
    model = build()
    prior, _ = compile_with_kernels(model, None, 0.8)
    x = prior.draw(1, prior.spawn(np.random.default_rng(1)))[0]
    point, place = new_point(x.size), prior.path.layout.unravel(x)
    prior.path.density(x, point.values, point.grads)
    terms = model.compile_logp(sum=False, mode="FAST_COMPILE")(place)
    np.testing.assert_allclose(point.values.sum(), sum(map(np.sum, terms)), rtol=1e-10)
    slopes = [
        (value_at(prior, x + step) - value_at(prior, x - step)) / 2e-5
        for step in 1e-5 * np.eye(x.size)
    ]
    np.testing.assert_allclose(point.grads.sum(axis=0), slopes, rtol=1e-6, atol=1e-6)


def value_at(prior, x):
    point = new_point(x.size)
    prior.path.density(x, point.values, point.grads)
    return point.values.sum()


def test_truths_take_one_pass_through_the_model_together(monkeypatch):
    """One each made the time to compile 60 of them minutes."""
    with pm.Model() as model:
        x = [pm.Bernoulli(f"x{i}", 0.3) for i in range(12)]
        pm.Normal("y", sum(x), 1.0, observed=Y)
    calls, logp = [], pm.Model.logp
    monkeypatch.setattr(pm.Model, "logp", lambda *args, **kw: calls.append(1) or logp(*args, **kw))
    raveled_graphs(model, model_layout(model), find_terms(model), model_layout(model).names)
    assert len(calls) < 5


def exact(build):
    if build is normals:
        return norm.logpdf(Y, 0.0, 2.0**0.5).sum()
    terms = np.log([[0.7], [0.3]]) + norm.logpdf(Y[:35], [[0.0], [1.0]], 1.0)
    return logsumexp(terms, axis=0).sum()


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(("build", "n"), [(normals, 45), (truths, 35)])
def test_log_z_is_exact(build, n):
    """|z| < 4: false alarm 6e-5 each."""
    idata = pmt.sample(300, model=build(n), chains=2, cores=1, random_seed=2, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(evidence.log_z - exact(build)) < 4 * evidence.mcse < 4 * 0.1


@pytest.mark.slow("compiles models of its own")
def test_draws_use_the_generators_that_they_are_given():
    """Variables draw in turn from one; draws that are made in Python as well."""
    with pm.Model() as model:
        pm.CustomDist(
            "python", logp=lambda value: -0.5 * value**2 - HALF_LOG_2_PI, random=draw_in_python
        )
        x = [pm.Normal(f"x{i}") for i in range(3)]
        pm.Normal("y", sum(x), 1.0, observed=0.0)
    prior, _ = compile_with_kernels(model, None, 0.8)
    given = prior.spawn(np.random.default_rng(3))
    draws = prior.draw(2000, given)
    # |z| < 4.5 for 6 correlations of independent normals; false alarm 4e-5, seed fixed
    assert np.abs(np.corrcoef(draws.T) - np.eye(4)).max() < 4.5 / 2000**0.5
    assert not np.array_equal(draws, prior.draw(2000, given))
    again = prior.spawn(np.random.default_rng(3))
    np.testing.assert_array_equal(draws, prior.draw(2000, again))


def draw_in_python(rng, size=None):
    return rng.normal(size=size)


def log_normal(value):
    return -0.5 * value**2 - HALF_LOG_2_PI
