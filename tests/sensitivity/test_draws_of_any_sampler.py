"""Prior sensitivity of the draws of any sampler against exact answers, and what is refused.

Single values are checked at |z| < 4.5; with 14 of them a false alarm in 1 of 10,000 seeds.
"""

import numpy as np
import pytest
import xarray as xr
from support.exact_posteriors import autoregressive, posterior_tree
from support.scaled_priors import scaled_regression

import pymc_tempering as pmt

FACTORS = np.array([0.1, 0.5, 1.0, 3.0, 10.0])
QUIET = {"quiet": True, "progressbar": False}
MAX_Z = 4.5


@pytest.fixture(scope="module")
def regression():
    return scaled_regression(dim=2, n=20)


def exact_draws(system, draws=500, rho=0.5, seed=1):
    """Four chains from the posterior of `regression`, as a DataTree without statistics."""
    y = system.model.rvs_to_values[system.model["y"]].data
    X = np.random.default_rng(1).normal(size=(20, 2))  # as the system draws it
    covariance = np.linalg.inv(X.T @ X + np.eye(2) / 4.0)
    x = autoregressive(np.random.default_rng(seed), (4, draws, 2), rho)
    coef = covariance @ X.T @ y + x @ np.linalg.cholesky(covariance).T
    return posterior_tree(coef=coef)


@pytest.fixture(scope="module")
def draws(regression):
    return exact_draws(regression)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore:.*come without their log density")
def test_curve_of_a_regression_is_the_exact_one(regression, draws):
    """Without any statistic of a sampler; a fresh run where the scale is far."""
    exact = np.array([regression.log_z(c) for c in FACTORS])
    other = pmt.evidence.Evidence(exact[2] - 1.0, 0.0, "exact", "ok")
    found = pmt.prior_sensitivity(
        draws, regression.model, {"coef": FACTORS}, var_names=["coef"], against=other,
        random_seed=1, **QUIET,
    )  # fmt: skip
    curve = found["coef"]
    assert np.all(np.abs(curve.log_z - exact) < MAX_Z * curve.mcse)
    assert np.all(curve.mcse < 0.1)
    assert curve.source == ("rerun", *["reweighted"] * 4)
    off = np.abs(curve.log_bf - (exact - exact[2]))[[0, 1, 3, 4]]
    assert np.all(off < MAX_Z * curve.log_bf_mcse[[0, 1, 3, 4]])
    size = np.abs(curve.posterior["coef"].sel(metric="mean")).sum("coef_0").values
    assert np.all(np.diff(size) > 0.0)
    [doubt] = found.warnings
    assert "come without their log density" in doubt
    evidence = pmt.bridge_sampling(draws, regression.model, random_seed=2, progressbar=False)
    assert abs(found.log_z - evidence.log_z) < 6.0 * evidence.mcse  # of other proposal draws
    assert found.against_of(curve)[0][2] == pytest.approx(found.log_z - exact[2] + 1.0)


def test_the_same_seed_gives_the_same_curve(regression, draws):
    one, two, other = (
        pmt.prior_sensitivity(
            draws, regression.model, {"coef": [0.5, 2.0]}, random_seed=seed, **QUIET
        )["coef"]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.log_z, two.log_z)
    np.testing.assert_array_equal(one.log_bf, other.log_bf)  # it is of the draws alone
    assert np.all(one.log_z != other.log_z)


def test_autocorrelation_widens_the_error(regression, draws):
    """Draws of rho = 0.9 are worth a twentieth of independent ones, and less for their squares."""
    sticky = exact_draws(regression, rho=0.9)
    errors = [
        pmt.prior_sensitivity(tree, regression.model, {"coef": [2.0]}, random_seed=1, **QUIET)
        for tree in (exact_draws(regression, rho=0.0), sticky)
    ]
    independent, correlated = (found["coef"].log_bf_mcse[0] for found in errors)
    assert 2.0 < correlated / independent < 6.0


def test_the_log_density_that_a_sampler_stored_is_compared(regression, draws):
    y = regression.model.rvs_to_values[regression.model["y"]].data
    X = np.random.default_rng(1).normal(size=(20, 2))
    coef = draws["posterior"]["coef"].values
    prior_sd = 2.0
    lp = -0.5 * ((y - coef @ X.T) ** 2).sum(-1) - 0.5 * (coef**2).sum(-1) / prior_sd**2
    tree = draws.copy()
    tree["sample_stats"] = xr.DataTree(xr.Dataset({"lp": (("chain", "draw"), lp - 3.0)}))
    found = pmt.prior_sensitivity(tree, regression.model, {"coef": [2.0]}, random_seed=1, **QUIET)
    alone = pmt.prior_sensitivity(draws, regression.model, {"coef": [2.0]}, random_seed=1, **QUIET)
    np.testing.assert_array_equal(found["coef"].mcse, alone["coef"].mcse)
    tree["sample_stats"]["lp"] = tree["sample_stats"]["lp"] * 1.1
    with pytest.raises(
        pmt.exceptions.DataMismatchError, match="log density and the model's differ"
    ):
        pmt.prior_sensitivity(tree, regression.model, {"coef": [2.0]}, **QUIET)


def test_chains_that_have_not_mixed_have_no_error(regression, draws):
    """Planted: two chains far from where the posterior is."""
    posterior = draws["posterior"].to_dataset()
    moved = posterior["coef"] + xr.DataArray([0.0, 0.0, 0.0, 3.0], dims="chain")
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"coef": moved})})
    with pytest.warns(pmt.TemperingWarning, match="The default run: "):
        found = pmt.prior_sensitivity(
            tree, regression.model, {"coef": [2.0]}, rerun=False, progressbar=False, random_seed=1
        )
    assert found.verdict != "ok"
    exact = regression.log_z(2.0)
    assert abs(found["coef"].log_z[0] - exact) < MAX_Z * found["coef"].mcse[0]


def test_a_free_variable_that_is_not_there_is_named(regression, draws):
    tree = xr.DataTree.from_dict(
        {"posterior": draws["posterior"].to_dataset().rename(coef="other")}
    )
    with pytest.raises(pmt.exceptions.DataMismatchError, match="coef"):
        pmt.prior_sensitivity(tree, regression.model, {"coef": [2.0]}, **QUIET)


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (3.0, "a float holds none"),
        (xr.DataTree(), r"no 'posterior' \(it has nothing\)"),
        (
            xr.DataTree.from_dict({"posterior": xr.Dataset(), "variational": xr.Dataset()}),
            "of an approximation, not of the posterior",
        ),
    ],
)
def test_what_holds_no_draws_is_refused_with_what_to_do(regression, thing, sentence):
    with pytest.raises(pmt.exceptions.NotTemperedError, match=sentence + r".*draws of pm\.sample"):
        pmt.prior_sensitivity(thing, regression.model, {"coef": [2.0]}, **QUIET)
