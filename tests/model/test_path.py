"""The path of a model against PyMC's own density, and reference draws against its own prior."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from pymc.distributions import transforms
from scipy import stats
from scipy.special import expit, gammaln, logsumexp
from support.small_models import X, all_transforms, covariance, downstream, mean_only

from pymc_tempering import TemperingWarning
from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.layout import Layout
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.compile import check_reference
from pymc_tempering.references.prior import compile_prior, evaluate_draws

MODELS = {"all transforms": all_transforms, "covariance": covariance, "downstream": downstream}
LOG_ORDERINGS = {"all transforms": gammaln(4.0), "covariance": 0.0, "downstream": 0.0}

every_model = pytest.mark.parametrize("name", MODELS)


@cache
def compiled(name):
    model = MODELS[name]()
    prior = compile_prior(compile_path(model))
    return model, prior.path, prior


@cache
def drawn(name, n=4000):
    _, _, prior = compiled(name)
    return prior.draw(n, prior.spawn(np.random.default_rng(1)))


def value_and_gradients(path, x):
    point = new_point(path.dim)
    path.density(x, point.values, point.grads)
    return point.values, point.grads


@pytest.mark.slow("compiles models of its own", quick=["downstream"])
@every_model
def test_log_reference_and_log_ratio_are_the_parts_of_pymcs_density(name):
    model, path, _ = compiled(name)
    prior_part = model.compile_logp(vars=model.free_RVs, mode="FAST_COMPILE")
    rest = model.compile_logp(vars=model.observed_RVs + model.potentials, mode="FAST_COMPILE")
    whole = model.compile_logp(mode="FAST_COMPILE")
    for x in drawn(name)[:20]:
        point = path.layout.unravel(x)
        log_reference, log_ratio = value_and_gradients(path, x)[0]
        expected = prior_part(point) + LOG_ORDERINGS[name]
        np.testing.assert_allclose(log_reference, expected, rtol=1e-10)
        np.testing.assert_allclose(log_ratio, rest(point), rtol=1e-10)
        np.testing.assert_allclose(
            log_reference + log_ratio, whole(point) + LOG_ORDERINGS[name], rtol=1e-10
        )


@pytest.mark.slow("compiles models of its own", quick=["downstream"])
@every_model
def test_gradients_are_those_of_pymc_and_of_differences(name):
    model, path, _ = compiled(name)
    gradient = model.compile_dlogp(mode="FAST_COMPILE")
    for x in drawn(name)[:5]:
        grads = value_and_gradients(path, x)[1]
        both = gradient(path.layout.unravel(x))
        np.testing.assert_allclose(grads.sum(axis=0), both, rtol=1e-8, atol=1e-8)
        for i in range(path.dim):
            step = np.zeros(path.dim)
            step[i] = 1e-5
            high, low = (value_and_gradients(path, x + s * step)[0] for s in (1, -1))
            np.testing.assert_allclose((high - low) / 2e-5, grads[:, i], rtol=2e-4, atol=2e-4)


@pytest.mark.slow("compiles models of its own", quick=["downstream"])
@every_model
def test_ravel_and_unravel_are_inverse_and_labels_name_elements(name):
    model, path, _ = compiled(name)
    x = np.arange(path.dim, dtype=float)
    point = path.layout.unravel(x)
    assert list(point) == [value.name for value in model.value_vars]
    np.testing.assert_array_equal(path.layout.ravel(point), x)
    labels = [path.layout.label(i) for i in range(path.dim)]
    assert len(set(labels)) == path.dim
    with pytest.raises(IndexError):
        path.layout.label(path.dim)


def test_labels_say_which_element_of_a_matrix_it_is():
    layout = Layout(("a", "b"), ((), (2, 3)), ("float64", "float64"))
    assert layout.label(0) == "a"
    assert layout.label(6) == "b[1, 2]"


def constrained(name, n=1500):
    """Reference draws in the constrained space, by variable."""
    model, path, _ = compiled(name)
    names = [rv.name for rv in model.free_RVs]
    values = [v for v in model.unobserved_value_vars if v.name in names]
    back = model.compile_fn(values, inputs=model.value_vars, mode="FAST_COMPILE")
    rows = [back(path.layout.unravel(x)) for x in drawn(name)[:n]]
    return {v.name: np.array([row[i] for row in rows]) for i, v in enumerate(values)}


@pytest.mark.slow("repeats")
def test_reference_draws_have_the_law_of_the_prior():
    # KS p > 1e-4 in some 16 tests: false alarm 2e-3, seed fixed
    model = compiled("all transforms")[0]
    ours = constrained("all transforms")
    theirs = pm.draw(model.free_RVs, 1500, random_seed=2, mode="FAST_COMPILE")
    for rv, expected in zip(model.free_RVs, theirs, strict=True):
        variable = rv.name
        draws = ours[variable]
        if variable == "cuts":
            expected = np.sort(expected, axis=-1)
            assert (np.diff(draws, axis=-1) > 0).all()
        assert draws.shape == expected.shape
        for mine, other in zip(
            draws.reshape(len(draws), -1).T, expected.reshape(len(expected), -1).T, strict=True
        ):
            assert stats.ks_2samp(mine, other).pvalue > 1e-4, variable


@pytest.mark.slow("repeats")
def test_reference_draws_of_a_covariance_matrix_have_the_law_of_the_prior():
    # KS p > 1e-4 in three tests: false alarm 3e-4, seed fixed
    first, cross, second = constrained("covariance")["packed"].T
    sd = np.hypot(cross, second)
    assert stats.kstest(first, "halfnorm").pvalue > 1e-4
    assert stats.kstest(sd, "halfnorm").pvalue > 1e-4
    assert stats.kstest(0.5 + 0.5 * cross / sd, "beta", args=(2.0, 2.0)).pvalue > 1e-4


def overlap(name, n=4000):
    """z-score of E[q(x) / reference(x)] = 1, a normalized q: the draws have the stated density.

    q shrinks the draws' own Gaussian fit, from other draws than those that it is tried on.
    """
    _, path, _ = compiled(name)
    draws = drawn(name)
    fit = draws[: n // 2]
    q = stats.multivariate_normal(fit.mean(axis=0), 0.5 * np.cov(fit, rowvar=False))
    log_reference, _ = evaluate_draws(path, draws[n // 2 :])
    weights = np.exp(q.logpdf(draws[n // 2 :]) - log_reference)
    return weights.mean(), weights.std() / np.sqrt(len(weights))


@pytest.mark.slow("compiles models of its own", quick=["downstream"])
@every_model
def test_reference_draws_have_the_density_that_the_path_states(name):
    # |z| < 4: false alarm 6e-5 a model, seed fixed
    mean, error = overlap(name)
    assert error < 0.15
    assert abs(mean - 1.0) < 4.0 * error
    if LOG_ORDERINGS[name]:  # the planted bug: log k! forgotten
        assert abs(mean * np.exp(LOG_ORDERINGS[name]) - 1.0) > 4.0 * error * 6.0


def test_a_variable_downstream_of_an_observed_one_gets_the_observed_value():
    # |z| < 4 for mean, variance and evidence: false alarm 2e-4, seed fixed
    _, path, _ = compiled("downstream")
    draws = drawn("downstream")
    b = (draws[:, 1] - 2.0) / 0.7
    assert abs(b.mean()) * np.sqrt(len(b)) < 4.0
    assert abs(b.var() - 1.0) * np.sqrt(len(b) / 2) < 4.0
    exact = stats.norm.logpdf(2.0, 0.0, np.hypot(1.0, 0.5))
    exact += stats.norm.logpdf(1.2, 2.0, np.hypot(0.7, 0.4))
    weights = np.exp(evaluate_draws(path, draws)[1])
    error = weights.std() / weights.mean() / np.sqrt(len(weights))
    assert abs(np.log(weights.mean()) - exact) < 4.0 * error


def test_an_ordered_iid_prior_has_the_evidence_of_all_orderings():
    # |z| < 4: false alarm 6e-5, seed fixed; y depends on the sum, which the order does not touch
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=3, transform=transforms.ordered)
        pm.Normal("y", x.sum(), 0.5, observed=1.0)
    prior = compile_prior(compile_path(model))
    draws = prior.draw(4000, prior.spawn(np.random.default_rng(3)))
    _, log_ratio = evaluate_draws(prior.path, draws)
    exact = stats.norm.logpdf(1.0, 0.0, np.sqrt(3.25))
    weights = np.exp(log_ratio - exact)
    assert abs(weights.mean() - 1.0) < 4.0 * weights.std() / np.sqrt(4000)
    # By importance sampling from elsewhere, where a missing log k! is off by 1.79
    q = stats.multivariate_normal([-0.5, 0.0, 0.0], np.diag([1.0, 0.7, 0.7]))
    points = q.rvs(4000, random_state=4)
    terms = np.array(evaluate_draws(prior.path, points)).sum(axis=0) - q.logpdf(points)
    value = logsumexp(terms) - np.log(4000)
    weights = np.exp(terms - terms.max())
    error = weights.std() / weights.mean() / np.sqrt(4000)
    assert error < 0.1
    assert abs(value - exact) < 4.0 * error < 1.79


def test_circular_coordinates_are_told_and_wrapped():
    _, path, _ = compiled("all transforms")
    assert [path.layout.label(i) for i in path.circular] == ["angle_circular__"]
    angle = drawn("all transforms")[:, path.circular[0]]
    assert np.abs(angle).max() <= np.pi


@pytest.mark.slow("compiles models of its own")
def test_an_initval_never_matters():
    _, path, prior = compiled("all transforms")
    other = compile_prior(
        compile_path(
            all_transforms(half=55.0, cuts=[100.0, 200.0, 300.0], matrix=np.full((2, 2), 1e6))
        )
    )
    draws = other.draw(50, other.spawn(np.random.default_rng(1)))
    np.testing.assert_array_equal(draws, prior.draw(50, prior.spawn(np.random.default_rng(1))))
    np.testing.assert_array_equal(evaluate_draws(other.path, draws), evaluate_draws(path, draws))


@pytest.mark.slow("compiles models of its own")
def test_the_data_are_those_of_when_the_path_was_compiled():
    model, path, _ = compiled("all transforms")
    x = drawn("all transforms")[0]
    before = value_and_gradients(path, x)[0].copy()
    with model:
        pm.set_data({"x": X + 1.0})
    changed = compile_path(model)
    np.testing.assert_array_equal(value_and_gradients(path, x)[0], before)
    assert value_and_gradients(changed, x)[0][1] != before[1]
    with model:
        pm.set_data({"x": X})


def test_reference_draws_are_fresh_and_reproducible():
    _, _, prior = compiled("downstream")
    rngs = prior.spawn(np.random.default_rng(5))
    first, second = prior.draw(10, rngs), prior.draw(10, rngs)
    assert not np.isin(first, second).any()
    again = prior.draw(20, prior.spawn(np.random.default_rng(5)))
    np.testing.assert_array_equal(np.concatenate([first, second]), again)


@pytest.mark.slow("compiles models of its own")
def test_checking_the_reference_says_nothing_about_sound_models():
    for name in MODELS:
        check_reference(compiled(name)[2])


def test_a_size_that_only_pymc_can_tell_is_found():
    with pm.Model() as model:
        n = pm.Data("n", np.array(3))
        x = pm.Normal("x", 0.0, 1.0, shape=(n,))
        pm.Normal("y", x.sum(), 1.0, observed=0.3)
    path = compile_path(model)
    assert path.dim == 3
    np.testing.assert_allclose(
        value_and_gradients(path, np.ones(3))[0],
        [3 * stats.norm.logpdf(1.0), stats.norm.logpdf(0.3, 3.0, 1.0)],
    )


@pytest.mark.slow("compiles models of its own")
def test_gradients_far_out_under_a_wide_prior_are_finite_and_right(monkeypatch):
    """Of log(sigmoid) as it is written they are NaN from |x| of 37 on (the planted fault)."""
    rng = np.random.default_rng(3)
    table = np.column_stack([np.ones(60), rng.normal(size=(60, 2))])
    y = rng.random(60) < 0.5

    def build():
        with pm.Model() as model:
            coef = pm.Normal("coef", 0.0, 30.0, shape=3)
            pm.Bernoulli("y", logit_p=table @ coef, observed=y.astype(int))
        return model

    draws = 30.0 * rng.normal(size=(50, 3))
    expected = np.array([table.T @ (y - expit(table @ x)) for x in draws])
    path = compile_path(build())
    found = np.array([value_and_gradients(path, x)[1][1] for x in draws])
    np.testing.assert_allclose(found, expected, atol=1e-9)
    monkeypatch.setattr("pymc_tempering.model.density_graphs.stabilize", lambda outputs: outputs)
    path = compile_path(build())
    found = np.array([value_and_gradients(path, x)[1][1] for x in draws])
    assert np.isnan(found).any(axis=1).mean() > 0.5
    with pytest.warns(TemperingWarning, match=r"gradient .* not a number at .*worst: coef\["):
        check_reference(compile_prior(path))


def test_the_smallest_model_is_a_path_too():
    path = compile_path(mean_only())
    np.testing.assert_allclose(
        value_and_gradients(path, np.array([0.5]))[0],
        [stats.norm.logpdf(0.5, 0, 2), stats.norm.logpdf([1.0, 2.5], 0.5).sum()],
    )
