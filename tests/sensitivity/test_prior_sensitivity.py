"""Prior sensitivity of real runs against exact answers, and what is refused.

Single values are checked at |z| < 4.5; with about 60 of them a false alarm in 1 of 2,000 seeds.
"""

import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from support.scaled_priors import jzs_t_test, scaled_regression

import pymc_tempering as pmt
from pymc_tempering.sensitivity import curve as curve_module

FACTORS = np.array([0.1, 0.5, 1.0, 3.0, 10.0])
QUIET = {"quiet": True, "progressbar": False}
MAX_Z = 4.5


@pytest.fixture(scope="module")
def regression():
    return scaled_regression(dim=2, n=20)


@pytest.fixture(scope="module")
def run(regression):
    return pmt.sample(500, model=regression.model, random_seed=1, keep="states", quiet=True)


def without_states(idata):
    bare = idata.copy()
    del bare["tempering_states"]
    return bare


def z_of(curve, exact):
    return (curve.log_z - exact) / curve.mcse


def test_curve_of_a_regression_is_the_exact_one(regression, run):
    """Reweighted in the middle, with a fresh run where the scale is far."""
    exact = np.array([regression.log_z(c) for c in FACTORS])
    for idata in (run, without_states(run)):
        found = pmt.prior_sensitivity(
            idata, regression.model, {"coef": FACTORS}, var_names=["coef"], random_seed=1, **QUIET
        )
        curve = found["coef"]
        assert np.all(np.abs(z_of(curve, exact)) < MAX_Z)
        assert curve.source == ("rerun", *["reweighted"] * 4)
        assert curve.khat[0] > curve.khat_limit > curve.khat[1:].max()
        bf = (curve.log_bf - (exact - exact[2]))[[0, 1, 3, 4]] / curve.log_bf_mcse[[0, 1, 3, 4]]
        assert np.all(np.abs(bf) < MAX_Z)
        assert (curve.log_bf[2], curve.log_bf_mcse[2]) == (0.0, 0.0)
        # a small scale shrinks to 0, in fresh runs and in reweighted draws
        size = np.abs(curve.posterior["coef"].sel(metric="mean")).sum("coef_dim_0").values
        assert np.all(np.diff(size) > 0.0)
        assert not found.warnings


@pytest.mark.slow("repeats")
def test_at_the_default_there_is_one_error(regression):
    """That of log Z in the header; the tours alone, without reference draws, have three times it.

    Away from it errors are right or too large: 2 x 20 values of z in two sums of squares below 45
    (20 degrees of freedom, false alarm 2 x 1e-3).
    """
    factors, z = [0.6, 0.999, 1.0, 1.6], []
    exact = np.array([regression.log_z(c) for c in factors])
    for seed in range(20):
        idata = pmt.sample(150, model=regression.model, random_seed=seed, quiet=True)
        found = pmt.prior_sensitivity(
            idata, regression.model, {"coef": factors}, rerun=False, random_seed=1, **QUIET
        )
        curve = found["coef"]
        assert curve.mcse[2] == found.mcse == pmt.log_marginal_likelihood(idata).mcse
        assert curve.mcse[1] < 1.1 * found.mcse
        z.append(z_of(curve, exact)[[0, 3]])
    assert np.all(np.square(z).sum(axis=0) < 45.0)


@pytest.mark.slow("compiles models of its own")
def test_the_same_seed_gives_the_same_curve_however_many_are_fresh(regression, run):
    some = pmt.prior_sensitivity(
        run, regression.model, {"coef": [0.1, 0.5]}, random_seed=3, **QUIET
    )
    again = pmt.prior_sensitivity(
        run, regression.model, {"coef": [0.1, 0.15]}, random_seed=3, **QUIET
    )
    assert some["coef"].log_z[0] == again["coef"].log_z[0]


def test_without_fresh_runs_a_far_value_has_no_error_and_a_warning(regression, run):
    with pytest.warns(pmt.TemperingWarning, match=r"do not reach coef at 0\.1 .*rerun=True"):
        found = pmt.prior_sensitivity(
            run, regression.model, {"coef": [0.1, 0.5]}, rerun=False, progressbar=False,
            var_names="coef",
        )  # fmt: skip
    moments = found["coef"].posterior["coef"]
    assert np.isnan(moments).all(["metric", "coef_dim_0"]).values.tolist() == [True, False]
    assert np.isinf(found["coef"].mcse).tolist() == [True, False]
    assert np.isinf(found["coef"].log_bf_mcse).tolist() == [True, False]


@pytest.mark.slow("compiles models of its own")
def test_a_khat_without_finite_variance_is_a_warning():
    system = jzs_t_test()
    idata = pmt.sample(300, model=system.model, random_seed=5, quiet=True)
    found = pmt.prior_sensitivity(idata, system.model, {"delta": np.geomspace(0.1, 1, 9)}, **QUIET)
    curve = found["delta"]
    rough = (curve.khat > 0.5) & (np.array(curve.source) == "reweighted")
    assert rough.any()
    [sentence] = [text for text in found.warnings if "rough" in text]
    assert all(f"{value:.3g}" in sentence for value in curve.values[rough])


def test_a_khat_that_is_ignored_is_found(regression, run, monkeypatch):
    """Planted: reweighted draws are used however uneven their weights are."""
    reweight = curve_module.reweight

    def careless(draws, change, evidence):
        found = reweight(draws, change, evidence)
        some = np.full(found.khat.shape, 0.1)
        return replace(found, khat=some, mcse=some, log_ratio_mcse=some)

    monkeypatch.setattr(curve_module, "reweight", careless)
    found = pmt.prior_sensitivity(run, regression.model, {"coef": [0.05]}, **QUIET)
    assert abs(found["coef"].log_z[0] - regression.log_z(0.05)) > 10.0 * found["coef"].mcse[0]


@pytest.mark.slow("compiles models of its own")
def test_jzs_t_test_is_that_of_quadrature():
    system = jzs_t_test()
    idata = pmt.sample(500, model=system.model, random_seed=2, quiet=True)
    factors = np.array([0.5, 1.0, 2.0])
    # the other model: delta = 0, by quadrature over log sigma
    y = system.model.rvs_to_values[system.model["y"]].data
    log_sigma = np.linspace(-4.0, 4.0, 4001)
    terms = stats.norm.logpdf(y[:, None], 0.0, np.exp(log_sigma)).sum(axis=0) + stats.norm.logpdf(
        log_sigma
    )
    log_z_null = float(np.logaddexp.reduce(terms) + np.log(log_sigma[1] - log_sigma[0]))
    other = pmt.evidence.Evidence(log_z_null, 0.0, "quadrature", "ok")
    found = pmt.prior_sensitivity(idata, system.model, {"delta": factors}, against=other, **QUIET)
    exact = np.array([system.log_z(c) for c in factors])
    assert np.all(np.abs(z_of(found["delta"], exact)) < MAX_Z)
    factor, error = found.against_of(found["delta"])
    np.testing.assert_array_less(np.abs(factor - (exact - log_z_null)), MAX_Z * error)


def conditional(sigma_b=1.5, top=3.0):
    """log Z in closed form given sigma_b; a not-centered prior, and a uniform one."""
    y = np.array([1.2, 0.3, 2.0, 1.5])
    with pm.Model() as model:
        scale = pm.Data("sigma_b", sigma_b)
        bound = pm.Data("top", top)
        z = pm.Normal("z")
        u = pm.Uniform("u", 0.0, bound)
        pm.Normal("y", z * scale, 1.0, observed=y)
        pm.Normal("w", u, 0.5, observed=1.0)
    return model, y


def exact_of(y, sigma_b, top):
    covariance = np.eye(y.size) + sigma_b**2
    inside = stats.norm.cdf([0.0, top], 1.0, 0.5)
    uniform = np.log(inside[1] - inside[0]) - np.log(top)
    return stats.multivariate_normal.logpdf(y, np.zeros(y.size), covariance) + uniform


@pytest.mark.slow("compiles models of its own")
def test_data_of_the_model_are_set_and_a_moving_range_is_sampled_anew():
    """A larger bound lets in what draws under the smaller one never see."""
    model, y = conditional()
    idata = pmt.sample(400, model=model, random_seed=12, quiet=True)
    values = {"sigma_b": [1.0, 1.5, 3.0], "top": [1.5, 3.0, 6.0]}
    found = pmt.prior_sensitivity(idata, model, data=values, random_seed=1, **QUIET)
    exact = [exact_of(y, value, 3.0) for value in values["sigma_b"]]
    assert np.all(np.abs(z_of(found["sigma_b"], exact)) < MAX_Z)
    assert set(found["sigma_b"].source) == {"reweighted"}
    exact = [exact_of(y, 1.5, value) for value in values["top"]]
    assert np.all(np.abs(z_of(found["top"], exact)) < MAX_Z)
    assert found["top"].source == ("rerun", "reweighted", "rerun")
    assert found["top"].default == 3.0
    alone = pmt.prior_sensitivity(idata, model, data=values, rerun=False, **QUIET)["top"]
    assert np.isnan(alone.log_z).tolist() == [True, False, True]
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"density of z is zero with the value .*-1"
    ):
        pmt.prior_sensitivity(idata, conditional_scale(), data={"s": [-1.0]}, **QUIET)


def conditional_scale():
    """A stand-in for a wrong value: the model has the same variables, and s as a scale."""
    y = np.array([1.2, 0.3, 2.0, 1.5])
    with pm.Model() as model:
        s = pm.Data("s", 1.0)
        sigma_b, top = pm.Data("sigma_b", 1.5), pm.Data("top", 3.0)
        z = pm.Normal("z", 0.0, s)
        u = pm.Uniform("u", 0.0, top)
        pm.Normal("y", z * sigma_b, 1.0, observed=y)
        pm.Normal("w", u, 0.5, observed=1.0)
    return model


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "Nothing to change"),
        ({"scale": {"coef": [1.0, -2.0]}}, ValueError, "holds -2: a factor must be positive"),
        ({"scale": {"coef": [np.inf]}}, ValueError, "holds inf"),
        ({"scale": {"coef": []}}, ValueError, "list of factors"),
        ({"scale": {"coef": ["wide"]}}, ValueError, "positive numbers"),
        ({"scale": {"b": [1.0]}}, pmt.exceptions.ModelError, "no variable named 'b'"),
        ({"data": {"sigma": [1.0]}}, pmt.exceptions.DataMismatchError, "no pm.Data named 'sigma'"),
        ({"scale": {"coef": [2.0]}, "var_names": ["x"]}, ValueError, "'x' are not among"),
        (
            {"scale": {"coef": [2.0]}, "sample_kwargs": {"model": None}},
            ValueError,
            "may not hold model",
        ),
    ],
)
def test_bad_arguments_are_refused_before_any_work(regression, run, arguments, error, message):
    with pytest.raises(error, match=message):
        pmt.prior_sensitivity(run, regression.model, **arguments, **QUIET)


@pytest.mark.slow("compiles models of its own")
def test_shapes_of_data_are_those_of_the_model():
    model, _ = conditional()
    idata = pmt.sample(100, model=model, random_seed=3, quiet=True)
    with pytest.raises(pmt.exceptions.DataMismatchError, match=r"list of values of shape \(\)"):
        pmt.prior_sensitivity(idata, model, data={"sigma_b": np.ones((2, 3))}, **QUIET)


@pytest.mark.slow("compiles models of its own")
def test_another_model_than_the_one_of_the_run_is_refused(run):
    """Same variables and data, another prior: the run's log density says so."""
    other = scaled_regression(dim=2, n=20, prior_sd=3.0)
    with pytest.raises(pmt.exceptions.DataMismatchError, match=r"observed data|differ by"):
        pmt.prior_sensitivity(run, other.model, {"coef": [2.0]}, **QUIET)
    model, _ = conditional()
    idata = pmt.sample(100, model=model, random_seed=3, quiet=True)
    with pytest.raises(
        pmt.exceptions.DataMismatchError, match=r"pm\.Data 'sigma_b' has other values"
    ):
        pmt.prior_sensitivity(idata, conditional(sigma_b=2.0)[0], {"z": [2.0]}, **QUIET)


def test_a_run_with_another_prior_alone_is_refused():
    def model_of(sd):
        with pm.Model() as model:
            b = pm.Normal("b", 0.0, sd)
            pm.Normal("y", b, 1.0, observed=[1.0, 2.0])
        return model

    idata = pmt.sample(100, model=model_of(1.0), random_seed=3, quiet=True)
    with pytest.raises(
        pmt.exceptions.DataMismatchError, match="log density and the model's differ"
    ):
        pmt.prior_sensitivity(idata, model_of(2.0), {"b": [2.0]}, **QUIET)


@pytest.mark.slow("compiles models of its own")
def test_a_run_over_a_constant_of_its_prior_is_refused():
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Normal("first", b, 1.0, observed=1.0)
        pm.Normal("second", b, 1.0, observed=2.0)
    idata = pmt.sample(300, model=model, tempered=["second"], random_seed=1, quiet=True)
    with pytest.raises(pmt.exceptions.ModelError, match="normalizing constant of its prior"):
        pmt.prior_sensitivity(idata, model, {"b": [2.0]}, **QUIET)


def test_the_default_is_passed_as_a_handle_or_on_the_context_stack(regression, run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handle = pmt.compile(regression.model, progressbar=False)
        one = pmt.prior_sensitivity(run, handle, {"coef": [2.0]}, **QUIET)
        with regression.model:
            two = pmt.prior_sensitivity(run, scale={"coef": [2.0]}, **QUIET)
    np.testing.assert_array_equal(one["coef"].log_z, two["coef"].log_z)


@pytest.mark.slow("compiles models of its own")
def test_discrete_variables_and_hidden_variables_are_no_hindrance():
    """Only the variable and what its prior depends on must be in the posterior."""
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.4)
        b = pm.Normal("b", 0.0, 1.0)
        pm.Normal("y", b + 2.0 * k, 1.0, observed=[1.0, 2.0])
    idata = pmt.sample(400, model=model, var_names=["b"], random_seed=1, quiet=True)
    found = pmt.prior_sensitivity(idata, model, {"b": [0.5, 2.0]}, rerun=False, **QUIET)["b"]
    y = np.array([1.0, 2.0])

    def exact(c):
        covariance = np.eye(2) + c**2
        parts = [
            stats.multivariate_normal.logpdf(y - 2.0 * k, np.zeros(2), covariance) for k in (0, 1)
        ]
        return np.logaddexp(parts[0] + np.log(0.6), parts[1] + np.log(0.4))

    assert np.all(np.abs(z_of(found, [exact(0.5), exact(2.0)])) < MAX_Z)


@pytest.mark.slow("compiles models of its own")
def test_warnings_of_the_runs_are_in_the_result(regression, run):
    """A short default run has no error, and a short other run neither; quiet says so there."""
    short = pmt.sample(10, model=regression.model, random_seed=1, chains=2, **QUIET)
    found = pmt.prior_sensitivity(
        short, regression.model, {"coef": [2.0]}, against=short, rerun=False, **QUIET
    )
    assert np.isinf(found.mcse)
    assert np.isinf(found["coef"].mcse).all()
    starts = {sentence.split(":")[0] for sentence in found.warnings}
    assert {"The default run", "Model 'against'"} <= starts
