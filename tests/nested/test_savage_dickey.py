"""The density ratio at a null against exact Bayes factors, its error, and what it refuses."""

import importlib
from functools import cache

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats
from support.exact_posteriors import autoregressive, posterior_tree
from support.nested_nulls import (
    jzs_draws,
    jzs_log_bf,
    jzs_model,
    regression,
    scaled_regression,
)

import pymc_tempering as pmt
from pymc_tempering.exceptions import DataMismatchError, NullError, TemperingWarning

# The function hides its module.
front = importlib.import_module("pymc_tempering.nested.savage_dickey")
null_prior = importlib.import_module("pymc_tempering.nested.null")

pytestmark = [
    pytest.mark.filterwarnings("ignore:R-hat is:pymc_tempering.TemperingWarning"),
    # Most draws here are exact, of no sampler.
    pytest.mark.filterwarnings("ignore:The draws come without their log density"),
]

REPEATS = 40
COVERED = 0.8
"""Least coverage of 95 % intervals in 40 runs: a sound error falls short once in 4,000 times."""


@cache
def scaled():
    return scaled_regression()


@cache
def plain(*elements):
    return regression(elements=elements or (1,))


def run(known, seed=1, length=500, **options):
    idata = known.draw(np.random.default_rng(seed), 4, length)
    options = {"null": known.null, "cores": 1, "random_seed": 1} | options
    return pmt.savage_dickey(idata, known.model, **options)


def coverage(known):
    """Share of the 95 % intervals that hold the exact value; all draws are used."""
    found = [run(known, [2, seed], length=250) for seed in range(REPEATS)]
    return np.mean([abs(one.log_bf - known.log_bf) < 1.96 * one.mcse for one in found])


def test_regression_has_its_closed_form():
    known = plain()
    found = run(known)
    assert abs(found.log_bf - known.log_bf) < 4.0 * found.mcse < 0.25  # false alarm 6e-5
    assert found.log_prior == pytest.approx(stats.norm.logpdf(0.0))  # exact
    assert found.log_correction == 0.0
    assert found.log_bf == pytest.approx(found.log_prior - found.log_posterior)
    assert found.mcse == found.log_posterior_mcse
    assert found.words.endswith("in favor of the null")
    assert found.reverse().log_bf == -found.log_bf
    assert "b[1] = 0" in repr(found)
    assert "correction" in found._repr_html_()


@pytest.mark.slow("compiles models of its own")
def test_several_parameters_are_held_one_after_another():
    known = plain(1, 3)
    found = run(known)
    assert abs(found.log_bf - known.log_bf) < 4.0 * found.mcse < 0.25
    everything = plain(0, 1, 2)
    with pytest.raises(NullError, match="out of reach"):  # a null with log BF10 = 10
        run(everything)


@pytest.mark.slow("compiles models of its own")
def test_a_prior_that_depends_on_other_parameters_is_corrected():
    known = scaled()
    found = run(known)
    assert abs(found.log_bf - known.log_bf) < 4.0 * found.mcse < 0.25
    # coef / 2 is a t of 2 degrees of freedom: N(0, sigma2) with sigma2 ~ InverseGamma(1, 1)
    assert found.log_prior == pytest.approx(stats.t(2.0).logpdf(0.0) - np.log(2.0), abs=0.1)
    plain_ratio = found.log_prior - found.log_posterior
    assert found.log_bf == pytest.approx(plain_ratio - found.log_correction)
    assert abs(plain_ratio - known.log_bf) > 4.0 * found.mcse + 0.1  # it does matter here


@pytest.mark.slow("compiles models of its own")
def test_jzs_t_test_is_that_of_rouder_and_of_two_evidences():
    y = np.random.default_rng(5).normal(0.4, 1.0, 25)
    exact, rng = jzs_log_bf(y), np.random.default_rng(6)
    full = pmt.compile(jzs_model(25), progressbar=False).with_data(y=y)
    idata = jzs_draws(y, rng, 4, 1000)
    found = pmt.savage_dickey(idata, full, null={"delta": 0.0})
    assert abs(found.log_bf - exact) < 4.0 * found.mcse < 0.05
    with pm.Model() as null:
        sigma = pm.math.exp(pm.Uniform("log_sigma", -10.0, 10.0))
        pm.Normal("y", 0.0, sigma, observed=y)
    checked = pmt.savage_dickey(idata, full, null={"delta": 0.0}, null_model=null)
    assert checked.log_correction == 0.0
    assert checked.log_bf == pytest.approx(found.log_bf, abs=1e-5)
    variance = 0.5 * (y**2).sum() / rng.gamma(0.5 * y.size, size=(4, 1000))
    under_null = posterior_tree(log_sigma=0.5 * np.log(variance))
    factor = pmt.bayes_factor(
        pmt.bridge_sampling(idata, full, random_seed=1),
        pmt.bridge_sampling(under_null, null, random_seed=1),
    )
    assert abs(factor.log_bf - exact) < 4.0 * factor.mcse < 0.05


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("known", [plain, scaled])
def test_the_stated_error_is_the_real_one(known):
    assert coverage(known()) >= COVERED


def as_if_independent(values):
    return float(values.size)


@pytest.mark.slow("repeats")
def test_an_error_without_autocorrelation_is_seen(monkeypatch):
    """Planted: 1,000 draws of autocorrelation 0.6 taken as independent."""
    monkeypatch.setattr(front, "effective_size", as_if_independent)
    monkeypatch.setattr(front, "rank_alarms", lambda *_: [])
    assert coverage(plain()) < COVERED


def positive():
    """One positive parameter: tau ~ Gamma(2, 1), y ~ Poisson(tau); the null is tau = 3."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2.0, 1.0)
        pm.Poisson("y", tau, observed=[4, 2, 5])
    posterior = stats.gamma(2.0 + 11, scale=1.0 / 4.0)
    log_bf = stats.gamma(2.0).logpdf(3.0) - posterior.logpdf(3.0)
    draws = posterior.rvs((4, 200), random_state=np.random.default_rng(1))
    return model, posterior_tree(tau=draws), float(log_bf), posterior


@pytest.mark.slow("repeats")
def test_a_model_of_one_parameter_is_answered_without_error():
    model, idata, log_bf, _ = positive()
    found = pmt.savage_dickey(idata, model, null={"tau": 3.0})
    assert found.log_bf == pytest.approx(log_bf, abs=1e-6)
    assert found.mcse < 1e-6
    # the densities are those of log tau: tau times those of tau
    assert found.log_prior == pytest.approx(stats.gamma(2.0).logpdf(3.0) + np.log(3.0))


@pytest.mark.slow("compiles models of its own")
def test_a_forgotten_jacobian_is_seen(monkeypatch):
    """Planted: the prior density of tau in place of that of log tau."""
    model, idata, log_bf, _ = positive()
    original = null_prior._compile_own_prior

    def without(model, null, often):
        own = original(model, null, often)
        return lambda point: own(point) - np.log(3.0)

    monkeypatch.setattr(null_prior, "_compile_own_prior", without)
    found = pmt.savage_dickey(idata, model, null={"tau": 3.0})
    assert abs(found.log_bf - log_bf) > 1.0


@pytest.mark.slow("compiles models of its own")
def test_an_inverted_correction_is_seen(monkeypatch):
    original = null_prior.implied_prior

    def inverted(*args):
        prior = original(*args)
        weight = 2.0 * -prior.log_prior - prior.log_weight
        return null_prior.NullPrior(weight, prior.log_prior, False)

    monkeypatch.setattr(front, "implied_prior", inverted)
    known = scaled()
    found = run(known)
    assert abs(found.log_bf - known.log_bf) > 10.0 * found.mcse


def two_normals(prior_sd=1.0, shift=0.0, noise=1.0, upper=None):
    """y ~ N(mu + delta, noise); without delta it is the null."""
    with pm.Model() as null:
        mu = pm.Normal("mu", 0.0, prior_sd) if upper is None else pm.Uniform("mu", -upper, upper)
        pm.Normal("y", mu + shift, noise, observed=[0.5, 1.0])
    return null


@cache
def with_delta(slope=0.0):
    """The same with delta; mu depends on it with a slope."""
    with pm.Model() as model:
        delta = pm.Normal("delta")
        mu = pm.Normal("mu", slope * delta, 1.0)
        pm.Normal("y", mu + delta, 1.0, observed=[0.5, 1.0])
    X = np.array([[1.0, 1.0]] * 2)
    prior = np.linalg.inv(np.array([[1.0, slope], [slope, 1.0 + slope**2]]))
    covariance = np.linalg.inv(prior + X.T @ X)
    mean = covariance @ X.T @ [0.5, 1.0]
    rng = np.random.default_rng(7)
    x = mean + autoregressive(rng, (4, 500, 2), 0.3) @ np.linalg.cholesky(covariance).T
    return model, posterior_tree(delta=x[..., 0], mu=x[..., 1])


def normal_evidence(cov):
    return stats.multivariate_normal.logpdf([0.5, 1.0], np.zeros(2), np.eye(2) + cov)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("prior_sd", [1.0, 2.0])
@pytest.mark.parametrize("slope", [0.0, 0.7])
def test_a_null_model_of_its_own_is_checked_or_corrected(slope, prior_sd):
    model, idata = with_delta(slope)
    found = pmt.savage_dickey(
        idata, model, null={"delta": 0.0}, null_model=two_normals(prior_sd), random_seed=1
    )
    full = normal_evidence(1.0 + (1.0 + slope) ** 2)
    exact = full - normal_evidence(prior_sd**2)
    assert abs(found.log_bf - exact) < 4.0 * found.mcse < 0.2
    assert (found.log_correction == 0.0) == (prior_sd == 1.0)
    assert np.isnan(found.log_prior) == (prior_sd != 1.0)


def test_by_default_the_null_is_the_model_with_the_value_put_in():
    model, idata = with_delta(0.7)
    found = pmt.savage_dickey(idata, model, null={"delta": 0.5})
    exact = normal_evidence(1.0 + 1.7**2) - stats.multivariate_normal.logpdf(
        [0.5, 1.0], 0.5 * 1.7 * np.ones(2), np.eye(2) + 1.0
    )
    assert abs(found.log_bf - exact) < 4.0 * found.mcse < 0.2


@pytest.mark.slow("compiles models of its own", quick=["null3-It lacks .* and has .*delta"])
@pytest.mark.parametrize(
    ("null", "message"),
    [
        (two_normals(shift=0.1), "is not the model at the null: .* differ by up to"),
        (two_normals(noise=2.0), "is not the model at the null"),
        (two_normals(upper=9.0), "has .*mu_interval__"),
        (with_delta()[0], "It lacks .* and has .*delta"),
    ],
)
def test_a_null_model_that_is_not_nested_is_refused(null, message):
    model, idata = with_delta()
    with pytest.raises(NullError, match=message):
        pmt.savage_dickey(idata, model, null={"delta": 0.0}, null_model=null)


def test_a_null_model_beside_a_null_of_some_elements_is_refused():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("b", shape=2), 1.0, observed=[0.5, 0.1])
    idata = posterior_tree(b=np.random.default_rng(3).normal(size=(4, 200, 2)) / 2**0.5)
    with pytest.raises(NullError, match=r"some elements of \['b'\]: .*leave null_model out"):
        pmt.savage_dickey(idata, model, null={"b[0]": 0.0}, null_model=with_delta()[0])


@pytest.mark.slow("compiles models of its own")
def test_other_bounds_are_refused():
    def build(upper, with_delta):
        with pm.Model() as model:
            mu = pm.Uniform("mu", -upper, upper)
            delta = pm.Normal("delta") if with_delta else 0.0
            pm.Normal("y", mu + delta, 1.0, observed=0.5)
        return model

    rng = np.random.default_rng(8)
    mu = rng.uniform(-1.0, 1.0, (4, 200))
    idata = posterior_tree(mu=mu, delta=0.5 * (0.5 - mu) + rng.normal(size=(4, 200)) / 2**0.5)
    with pytest.raises(NullError, match="supports of \\['mu'\\] differ"):
        pmt.savage_dickey(
            idata, build(1.0, True), null={"delta": 0.0}, null_model=build(2.0, False)
        )


def test_a_null_out_of_reach_is_refused_with_its_effective_size():
    far = regression(effect=2.5)
    with pytest.raises(NullError, match=r"outside of their range: b\[1\].*worth .*bayes_factor"):
        run(far)
    # within reach of the conditional densities, though outside of the range of the draws
    model, idata, _, posterior = positive()
    found = pmt.savage_dickey(idata, model, null={"tau": 12.0})
    assert found.log_bf == pytest.approx(
        stats.gamma(2.0).logpdf(12.0) - posterior.logpdf(12.0), abs=1e-5
    )


def test_draws_of_another_model_are_seen():
    """Draws with half of the spread: every conditional rank is off, and no error is stated."""
    model, idata = with_delta()
    narrow = idata["posterior"].to_dataset()
    narrow["delta"] = narrow["delta"].mean() + 0.5 * (narrow["delta"] - narrow["delta"].mean())
    tree = posterior_tree(**{name: narrow[name].values for name in ("delta", "mu")})
    with pytest.warns(TemperingWarning, match="do not follow the model's conditional density"):
        found = pmt.savage_dickey(tree, model, null={"delta": 0.0})
    assert found.mcse == np.inf
    assert found.words.startswith("nothing can be said")


@pytest.mark.slow("compiles models of its own")
def test_a_null_of_all_elements_of_an_ordered_prior_counts_their_orders():
    y = np.array([-0.3, 0.6])
    with pm.Model() as model:
        x = pm.Normal("x", shape=2, transform=pm.distributions.transforms.ordered)
        pm.Normal("y", x, 1.0, observed=y)
    rng = np.random.default_rng(11)
    x = 0.5 * y + np.sqrt(0.5) * rng.normal(size=(20_000, 2))
    x = x[x[:, 0] < x[:, 1]][:8000].reshape(4, 2000, 2)
    found = pmt.savage_dickey(posterior_tree(x=x), model, null={"x": [-0.5, 0.2]})
    log_z = np.log(2.0 * stats.norm.cdf(0.45)) + stats.norm.logpdf(y, 0.0, 2.0**0.5).sum()
    exact = log_z - stats.norm.logpdf(y, [-0.5, 0.2]).sum()
    assert abs(found.log_bf - exact) < 4.0 * found.mcse < 0.2


@pytest.mark.slow("compiles models of its own")
def test_a_variable_that_is_held_in_part_may_be_a_parent_of_another():
    """a ~ N(0, 1) twice, b ~ N(a_0 + a_1, 1), y ~ N(a_0 + a_1 + b, 1); the null is a_0 = b = 0."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        b = pm.Normal("b", a.sum())
        pm.Normal("y", a.sum() + b, 1.0, observed=0.5)
    slope, row = np.array([1.0, 1.0, -1.0]), np.ones(3)
    covariance = np.linalg.inv(
        np.diag([1.0, 1.0, 0.0]) + np.outer(slope, slope) + np.outer(row, row)
    )
    rng = np.random.default_rng(13)
    x = covariance @ row * 0.5 + rng.normal(size=(4, 500, 3)) @ np.linalg.cholesky(covariance).T
    idata = posterior_tree(a=x[..., :2], b=x[..., 2])
    found = pmt.savage_dickey(idata, model, null={"a[0]": 0.0, "b": 0.0}, random_seed=1)
    exact = stats.norm.logpdf(0.5, 0.0, 10.0**0.5) - stats.norm.logpdf(0.5, 0.0, 2.0**0.5)
    assert abs(found.log_bf - exact) < 4.0 * found.mcse < 0.2


def test_another_stored_density_leaves_no_error():
    model, idata = with_delta()
    tree = idata.copy()
    lp = np.random.default_rng(14).normal(size=(4, 500))
    tree["sample_stats"] = xr.DataTree(xr.Dataset({"lp": (("chain", "draw"), lp)}))
    with pytest.warns(TemperingWarning, match="differ by .* nats from draw to draw"):
        assert pmt.savage_dickey(tree, model, null={"delta": 0.0}).mcse == np.inf


@pytest.mark.slow("compiles models of its own")
def test_a_prior_without_its_constant_is_refused():
    with pm.Model() as model:
        x = pm.CAR("x", np.zeros(3), W=np.ones((3, 3)) - np.eye(3), alpha=0.5, tau=1.0)
        pm.Normal("y", x, 1.0, observed=np.zeros(3))
    draws = np.random.default_rng(12).normal(size=(2, 50, 3))
    with pytest.raises(NullError, match="'x' is known only up to a constant"):
        pmt.savage_dickey(posterior_tree(x=draws), model, null={"x": 0.0})


def wide_model():
    with pm.Model(coords={"k": ["age", "sex"]}) as model:
        pm.Normal("b", dims="k")
        pm.Exponential("tau", 1.0)
        pm.Uniform("p", 0.0, model["tau"])
        pm.MvNormal("m", np.zeros(2), np.eye(2))
        pm.VonMises("angle", 0.0, 1.0)
        pm.Deterministic("double", 2.0 * model["tau"])
        pm.Normal("y", model["b"].sum() + model["m"].sum() + model["tau"], observed=0.0)
    return model


def wide_draws():
    rng = np.random.default_rng(9)
    tau = rng.exponential(size=(2, 50))
    return posterior_tree(
        b=rng.normal(size=(2, 50, 2)), tau=tau, p=tau * rng.random((2, 50)),
        m=rng.normal(size=(2, 50, 2)), angle=rng.normal(size=(2, 50)),
    )  # fmt: skip


@pytest.mark.slow("compiles models of its own", every=6)
@pytest.mark.parametrize(
    ("null", "message"),
    [
        ({}, "must be a mapping from names"),
        ("b", "must be a mapping from names"),
        ({"beta": 0.0}, "'beta', which is no free variable of the model; free variables: 'b'"),
        ({"double": 0.0}, "is a Deterministic"),
        ({"y": 0.0}, "no free variable"),
        ({"tau": 0.0}, "outside of the support of the variable or on its edge"),
        ({"tau": -1.0}, "outside of the support"),
        ({"tau": [1.0, 2.0]}, r"must be numbers of the shape \(\)"),
        ({"tau": "zero"}, "must be numbers"),
        ({"tau": np.nan}, "must be finite"),
        ({"p": 0.1}, "support of 'p' depends on 'tau'"),
        ({"b[2]": 0.0}, r"'2' is no element of 'b'.*or one of \['age', 'sex'\]"),
        ({"b[height]": 0.0}, "is no element of 'b'"),
        ({"b[0, 1]": 0.0}, r"has the shape \(2,\)"),
        ({"m[0]": 0.0}, "have one joint prior"),
        ({"b": 0.0, "b[age]": 0.0}, r"names b\[0\] twice"),
        ({"angle": 0.0}, "is an angle"),
    ],
)
def test_a_null_that_is_none_is_refused(null, message):
    with pytest.raises(NullError, match=message):
        pmt.savage_dickey(wide_draws(), _wide(), null=null)


@cache
def _wide():
    return wide_model()


def test_elements_are_named_by_place_or_label():
    point = importlib.import_module("pymc_tempering.nested.null").find_null
    layout = pmt.model.path.model_layout(_wide())
    for key in ("b[1]", "b[-1]", "b[sex]", "b['sex']"):
        found = point(_wide(), layout, {key: 0.5})
        assert found.labels == ("b[1]",)
        assert found.value == [0.5]
    both = point(_wide(), layout, {"b[age]": 0.5, "b[sex]": 1.0, "tau": np.e})
    assert both.value.tolist() == pytest.approx([0.5, 1.0, 1.0])  # log tau
    assert point(_wide(), layout, {"b": [0.5, 1.0]}).value.tolist() == [0.5, 1.0]


def test_other_bad_input_is_refused():
    model, idata = with_delta()
    with pytest.raises(ValueError, match="draws must be a whole number of at least 20"):
        pmt.savage_dickey(idata, model, null={"delta": 0.0}, draws=5)
    with pytest.raises(ValueError, match="scale"):
        pmt.savage_dickey(idata, model, null={"delta": 0.0}, scale="words")
    with pytest.raises(DataMismatchError, match="lacks \\['mu'\\]"):
        pmt.savage_dickey(posterior_tree(delta=np.zeros((2, 50))), model, null={"delta": 0.0})
    assert (
        pmt.savage_dickey(idata, model, null={"delta": 0.0}, scale="jeffreys").scale == "jeffreys"
    )


@pytest.mark.slow("compiles models of its own")
def test_a_discrete_null_is_refused():
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5)
        pm.Normal("y", k, observed=0.0)
    point = importlib.import_module("pymc_tempering.nested.null").find_null
    with pytest.raises(NullError, match="'k' is discrete"):
        point(model, pmt.model.path.model_layout(model), {"k": 0})


@pytest.mark.slow("compiles models of its own")
def test_no_draws_and_few_terms_are_told():
    terms = front.average_terms(np.full((2, 50), -np.inf))
    assert terms.mcse == np.inf
    with pytest.raises(NullError, match=r"draws=1000"):
        front.check_terms(terms, 100, 1000, "")
    rough = front.Average(0.0, 0.1, 30.0, 0.2)
    assert "rough" in front.check_terms(rough, 100, 100, "")[0]
    with pytest.raises(NullError, match="sample more draws"):
        front.check_terms(rough, 100, 100, " (outside of their range: b)")
