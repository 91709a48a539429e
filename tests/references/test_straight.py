"""The prior in coordinates in which effects do not depend on their scales: the same path."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

from pymc_tempering.kernels.contract import on_all
from pymc_tempering.kernels.hmc import HMC
from pymc_tempering.references.compile import compile_model
from pymc_tempering.sampling import evaluated
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.warmup.annealed_pass import anneal

N_GROUPS = 8
Y = np.random.default_rng(3).normal(0.5, 1.2, size=(N_GROUPS, 3))


def hierarchy():
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1)
        tau = pm.HalfNormal("tau", 1)
        effect = pm.Normal("effect", mean, tau, shape=N_GROUPS)
        pm.Normal("y", effect[:, None], 0.5, observed=Y)
    return model


@pytest.fixture(scope="module")
def prior():
    return compile_model(hierarchy())


def evaluate(path, xs):
    values, grads = np.empty((len(xs), 2)), np.empty((len(xs), 2, xs.shape[1]))
    for x, value, grad in zip(xs, values, grads, strict=True):
        path.density(x, value, grad)
    return values, grads


@pytest.mark.slow("compiles models of its own")
def test_effects_are_standard_normal(prior):
    straight = prior.straight
    assert straight.warp.index.size == N_GROUPS
    us = straight.draw(4000, straight.spawn(np.random.default_rng(1)))[:, -N_GROUPS:]
    assert abs(us.mean()) < 4 / np.sqrt(us.size)
    assert abs((us**2).mean() - 1) < 0.05  # the sample that shows the prior has an error too


def test_it_is_the_same_density(prior):
    straight = prior.straight
    xs = prior.draw(50, prior.spawn(np.random.default_rng(2)))
    us, log_det = straight.warp.forward(xs)
    np.testing.assert_allclose(straight.outer(us), xs, rtol=1e-9, atol=1e-9)
    of_x, of_u = evaluate(prior.path, xs)[0], evaluate(straight.path, us)[0]
    np.testing.assert_allclose(of_u[:, 0], of_x[:, 0] - log_det, rtol=1e-9)
    np.testing.assert_allclose(of_u[:, 1], of_x[:, 1], rtol=1e-9)


def test_gradients_are_its_slopes(prior):
    straight = prior.straight
    us = 0.5 * np.random.default_rng(3).normal(size=(5, prior.path.dim))
    _, grads = evaluate(straight.path, us)
    for j in range(us.shape[1]):
        step = np.zeros(us.shape[1])
        step[j] = 1e-6
        up, down = (evaluate(straight.path, us + sign * step)[0] for sign in (1, -1))
        np.testing.assert_allclose(grads[:, :, j], (up - down) / 2e-6, rtol=1e-4, atol=1e-4)


def exact_log_z():
    """Log evidence by quadrature over log tau; the rest is normal."""
    logs = np.linspace(-9, 3, 4001)
    same = np.kron(np.eye(N_GROUPS), np.ones((3, 3)))
    terms = []
    for s in logs:
        cov = 0.25 * np.eye(Y.size) + np.exp(2 * s) * same + np.ones((Y.size, Y.size))
        density = np.log(2 / np.sqrt(2 * np.pi)) - 0.5 * np.exp(2 * s) + s
        terms.append(multivariate_normal.logpdf(Y.ravel(), np.zeros(Y.size), cov) + density)
    return np.logaddexp.reduce(terms) + np.log(logs[1] - logs[0])


@pytest.mark.slow("compiles models of its own")
def test_annealed_passes_have_the_evidence(prior):
    """A pass of 256 particles has an error of some .1 nats; four of them are within .3."""
    found = [
        anneal(prior.straight, on_all(HMC(), prior.path.dim), np.random.default_rng(seed),
               n_particles=256).log_z[-1]
        for seed in range(4)
    ]  # fmt: skip
    assert np.mean(found) == pytest.approx(exact_log_z(), abs=0.3)


@pytest.mark.slow("compiles models of its own")
def test_without_effects_it_is_itself():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", shape=3), 1, observed=np.zeros(3))
    prior = compile_model(model)
    assert prior.straight is prior


@pytest.mark.slow("compiles models of its own")
def test_effects_whose_shape_changes_with_their_scale_stay():
    """Passes of logits of a beta had three times the evaluations when these were divided by it."""
    with hierarchy() as model:
        size = pm.Pareto("size", alpha=1.5, m=1)
        rate = pm.Beta("rate", 0.2 * size, 0.8 * size, shape=N_GROUPS)
        pm.Binomial("hits", 20, rate, observed=np.arange(N_GROUPS))
    prior = compile_model(model)
    assert len(prior.screened.effects) > N_GROUPS
    normal = prior.path.layout.slices[[rv.name for rv in model.free_RVs].index("effect")]
    assert set(prior.straight.warp.index) == set(range(normal.start, normal.stop))


@pytest.mark.slow("compiles models of its own", quick=["9-True"])
@pytest.mark.parametrize(("dim", "is_straight"), [(9, True), (10, False)])
def test_passes_divide_effects_by_their_scales_above_some_dimensions(
    prior, monkeypatch, dim, is_straight
):
    monkeypatch.setattr(evaluated, "STRAIGHT_DIM", dim)
    job = Job(prior, on_all(HMC(), prior.path.dim), Options(), np.random.default_rng(1))
    assert evaluated.way_of(job) is (prior.straight if is_straight else prior)
