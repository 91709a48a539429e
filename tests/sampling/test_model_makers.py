"""Models that other libraries or parts of PyMC make: each is taken, and its log Z is right."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr
from scipy import stats

import pymc_tempering as pmt

Y = np.array([0.3, 1.2, -0.4, 0.9, 2.0])
QUIET = {"chains": 2, "cores": 1, "random_seed": 1, "quiet": True, "progressbar": False}


def normal_mean(observed=True):
    """mu ~ N(0, 2), five observations of sd 1; without data they are free."""
    with pm.Model(coords={"case": range(5)}) as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", mu, sigma, dims="case", observed=Y if observed else None)
    return model


EXACT = float(stats.multivariate_normal(np.zeros(5), np.eye(5) + 4.0).logpdf(Y))
"""With sigma = 1."""


def check(model, **options):
    """|z| < 4: false alarm 6e-5, seeds fixed."""
    idata = pmt.sample(600, model=model, **QUIET | options)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - EXACT) < 4.0 * evidence.mcse < 0.3
    return idata


def bambi_like(model):
    """A stand-in for a Bambi model, which keeps PyMC's as `backend.model` once it is built."""
    return SimpleNamespace(backend=SimpleNamespace(model=model), build=lambda: None)


def done():
    """An intervention makes sigma a constant, which is no free variable any more."""
    return pm.do(normal_mean(), {"sigma": 1.0})


def test_a_bambi_model_is_the_model_inside():
    model = bambi_like(done())
    idata = check(model)
    pmt.compile(model, progressbar=False)
    found = pmt.log_marginal_likelihood(idata, model, method="bridge_sampling", random_seed=1)
    assert abs(found.log_z - EXACT) < 4.0 * found.mcse < 0.3
    stats = idata["sample_stats"].to_dataset()[["lp"]]
    draws = xr.DataTree.from_dict(
        {"posterior": idata["posterior"].to_dataset(), "sample_stats": stats}
    )
    table = pmt.compare({"a": draws}, models={"a": model}, random_seed=1)
    assert table.loc["a", "method"] == "bridge_sampling"


def test_a_bambi_model_that_is_not_built_is_told_so():
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"holds no PyMC model yet: call its build\(\)"
    ):
        pmt.sample(model=bambi_like(None))


@pytest.mark.parametrize("thing", [3.0, "model", {"mu": 0.0}])
def test_what_is_no_model_is_refused_by_type(thing):
    with pytest.raises(
        pmt.exceptions.ModelError, match=rf"pymc\.Model.*not {type(thing).__name__}"
    ):
        pmt.sample(model=thing)


def test_pm_do_takes_a_variable_away():
    assert list(check(done())["posterior"].data_vars) == ["mu"]


def test_pm_observe_adds_data():
    model = pm.observe(pm.do(normal_mean(observed=False), {"sigma": 1.0}), {"y": Y})
    idata = check(model)
    np.testing.assert_array_equal(idata["observed_data"]["y"], Y)


@pytest.mark.filterwarnings("ignore:The `pymc.dims` module is experimental:UserWarning")
def test_pm_dims():
    with pm.Model(coords={"case": range(5)}) as model:
        mu = pmd.Normal("mu", 0.0, 2.0)
        data = pmd.Data("data", Y, dims="case")
        pmd.Normal("y", mu, 1.0, dims="case", observed=data)
    idata = check(model)
    assert idata["posterior"]["mu"].dims == ("chain", "draw")


def test_a_frozen_model():
    optimization = pytest.importorskip("pymc.model.transform.optimization")
    if not hasattr(optimization, "freeze_model"):
        pytest.skip("PyMC knows no frozen models yet")
    frozen = optimization.freeze_model(done())
    check(frozen)
    with pytest.raises(pmt.exceptions.NotTemperedError, match="a model alone has no draws yet"):
        pmt.log_marginal_likelihood(frozen)


def test_a_marginalized_model_of_pymc_extras():
    pmx = pytest.importorskip("pymc_extras")
    with pm.Model() as model:
        which = pm.Bernoulli("which", 0.3)
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("y", mu + 0.0 * which, 1.0, observed=Y)
    check(pmx.marginalize(model, [which]))
