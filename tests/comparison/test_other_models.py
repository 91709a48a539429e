"""Draws of one model with another: each door refuses, or says that nothing tells."""

import re

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats
from support.exact_posteriors import posterior_tree, with_log_density

import pymc_tempering as pmt
from pymc_tempering.evidence import Evidence
from pymc_tempering.exceptions import DataMismatchError

Y = np.array([0.5, 1.5])
SETTINGS = {"random_seed": 1, "cores": 1, "quiet": True}


def normal_mean(prior_sd=1.0, y=Y, name="mu"):
    with pm.Model() as model:
        mu = pm.Normal(name, 0.0, prior_sd)
        pm.Normal("y", mu, 1.0, observed=y)
    return model


OWN = normal_mean()
OTHERS = {
    "prior": (normal_mean(3.0), "log density and the model's differ by"),
    "data": (normal_mean(y=Y + 1.0), "observed data of .*'y'"),
    "names": (normal_mean(name="nu"), "draws of 'mu', and the model has 'nu' in"),
}


def draws(*, told=True):
    """Independent draws of N(2/3, 1/3), with their log density or without."""
    mu = stats.norm(2.0 / 3.0, 3.0**-0.5).rvs((4, 500), random_state=np.random.default_rng(3))
    tree = posterior_tree(mu=mu)
    tree["observed_data"] = xr.DataTree(xr.Dataset({"y": ("y_dim_0", Y)}))
    density = stats.norm().logpdf(mu) + sum(stats.norm(mu, 1.0).logpdf(y) for y in Y)
    return with_log_density(tree, density) if told else tree


def smc_run():
    """As pm.sample_smc leaves it: its own log Z, and no log density of its draws."""
    tree = draws(told=False)
    log_z = np.tile(-2.0 + 0.001 * np.arange(4.0)[:, None], (1, 500))
    values = {"log_marginal_likelihood": (("chain", "draw"), log_z)}
    tree["sample_stats"] = xr.DataTree(xr.Dataset(values))
    return tree


REFUSING = {
    "cross_check": lambda d, m: pmt.cross_check(d, m, ["bridge_sampling"], **SETTINGS),
    "reverse_ais": lambda d, m: pmt.reverse_ais(d, m, n_particles=100, betas=10, **SETTINGS),
    "sandwich": lambda d, m: pmt.sandwich(d, m, n_particles=100, betas=10, **SETTINGS),
    "prior_sensitivity": lambda d, m: pmt.prior_sensitivity(d, m, {"mu": [1.1]}, **SETTINGS),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("door", REFUSING)
def test_draws_of_another_model_are_refused(door, other):
    model, words = OTHERS[other]
    if (door, other) == ("prior_sensitivity", "names"):
        words = "'mu'"  # has no such prior
    with pytest.raises(pmt.TemperingError, match=words):
        REFUSING[door](draws(), model)


def test_a_cross_check_of_another_model_stores_nothing():
    idata = draws()
    with OTHERS["prior"][0], pytest.raises(DataMismatchError):
        pmt.cross_check(idata, **SETTINGS, extend_inferencedata=True)
    assert "cross_check" not in idata.children


@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_where_nothing_tells_of_the_model_nothing_is_ok():
    told, untold = draws(), draws(told=False)
    words = "come without their log density"
    for idata, verdict in ((told, "ok"), (untold, "unchecked")):
        bound = REFUSING["reverse_ais"](idata, OWN)
        both = REFUSING["sandwich"](idata, OWN)
        ratio = pmt.savage_dickey(idata, OWN, null={"mu": 0.0}, draws=100, **SETTINGS)
        assert {bound.verdict, both.upper.verdict, both.verdict} == {verdict}
        for result in (bound, both.upper, ratio):
            assert bool(re.search(words, " ".join(result.warnings))) == (verdict == "unchecked")
    # Importance sampling is of the model that it is given, whatever fitted its proposal.
    wide = OTHERS["prior"][0]
    found = pmt.importance_sampling(untold, wide, draws=4000, random_seed=1, quiet=True)
    exact = stats.multivariate_normal(np.zeros(2), np.eye(2) + 9.0).logpdf(Y)
    assert found.verdict == "ok"
    assert abs(found.log_z - exact) < 4.0 * found.mcse < 0.2


def test_a_run_of_smc_is_unchecked_beside_a_model_and_refused_with_another():
    run = smc_run()
    assert pmt.log_marginal_likelihood(run).verdict == "ok"
    with pytest.warns(pmt.TemperingWarning, match="come without their log density"):
        assert pmt.log_marginal_likelihood(run, OWN).verdict == "unchecked"
    for other in ("data", "names"):
        model, words = OTHERS[other]
        with pytest.raises(DataMismatchError, match=words):
            pmt.compare({"a": run}, models={"a": model})


class Fit:
    """Stand in for a fit of pmt.fit."""

    elbo, elbo_history = -4.0, np.zeros(1)
    evidence = Evidence(-3.0, 0.1, "psis_vi", "unchecked")
    model = OWN


@pytest.mark.filterwarnings("ignore:The estimate rests on draws around the fit")
def test_a_fit_is_refused_with_another_model_than_its_own():
    for model in (OWN, normal_mean()):
        assert pmt.log_marginal_likelihood(Fit(), model).log_z == -3.0
    for name, words in (("prior", "terms 'mu'"), ("data", "data 'y'"), ("names", "variables")):
        with pytest.raises(DataMismatchError, match=f"The fit is of another model: .*{words}"):
            pmt.log_marginal_likelihood(Fit(), OTHERS[name][0])


def test_a_bayes_factor_says_how_each_side_was_found():
    found = pmt.bayes_factor(Evidence(-1.0, 0.1, "rts", "ok"), Evidence(-3.0, 0.1, "smc", "ok"))
    assert found.methods == ("rts", "smc")
    assert found.reverse().methods == ("smc", "rts")
    assert re.search(r"methods +rts, smc", repr(found))
    assert "methods" not in repr(pmt.evidence.BayesFactor(1.0, 0.1))


def test_dimensions_are_read_by_name():
    """Draws with the dimensions of a variable in another order are the same draws."""
    y = np.arange(4.0).reshape(2, 2)
    with pm.Model(coords={"a": range(2), "b": range(2)}) as model:
        x = pm.Normal("x", np.array([[0.0, 1.0], [2.0, 3.0]]), dims=("a", "b"))
        pm.Normal("y", x, 1.0, observed=y)
    rng = np.random.default_rng(5)
    mean = (np.array([[0.0, 1.0], [2.0, 3.0]]) + y) / 2.0
    values = xr.DataArray(
        rng.normal(mean, 0.5**0.5, (4, 300, 2, 2)), dims=("chain", "draw", "a", "b")
    )
    found = []
    for order in (("a", "b"), ("b", "a")):
        posterior = xr.Dataset({"x": values.transpose("chain", "draw", *order)})
        idata = xr.DataTree.from_dict({"posterior": posterior})
        found.append(pmt.importance_sampling(idata, model, draws=500, **SETTINGS).log_z)
    assert found[0] == found[1]
