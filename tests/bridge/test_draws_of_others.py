"""Draws of models of `pymc.dims`, and of fits, which other packages keep in forms of their own."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
import xarray as xr
from scipy import stats
from support.exact_posteriors import posterior_tree

import pymc_tempering as pmt

Y = np.array([0.3, 1.2, -0.4, 0.9, 2.0])


def exponential_rate(dims):
    """Rate ~ Gamma(2, 1), five exponential observations, in the two languages of PyMC."""
    y = np.abs(Y)
    with pm.Model(coords={"side": ["left", "right"], "case": range(5)}) as model:
        if dims:
            rate = pmd.Gamma("rate", alpha=2.0, beta=1.0, dims="side")
            pmd.Exponential("y", rate, observed=xr.DataArray([y, y], dims=("side", "case")))
        else:
            rate = pm.Gamma("rate", 2.0, 1.0, dims="side")
            pm.Exponential("y", rate[:, None], observed=np.array([y, y]))
    return model


def draws_of_rate(n=500):
    """Its posterior is Gamma(7, 1 + sum(y)) in each place."""
    draws = np.random.default_rng(3).gamma(7.0, 1.0 / (1.0 + np.abs(Y).sum()), size=(4, n, 2))
    data = {"rate": (("chain", "draw", "side"), draws)}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data, {"side": ["left", "right"]})})


def log_z_of_rate():
    """Log of Gamma(7) / (1 + sum(y))^7, which is over Gamma(2) = 1, twice."""
    return 2.0 * (np.log(720.0) - 7.0 * np.log1p(np.abs(Y).sum()))


@pytest.mark.filterwarnings("ignore::pymc_tempering.exceptions.TemperingWarning")
@pytest.mark.filterwarnings("ignore:The `pymc.dims` module is experimental:UserWarning")
def test_draws_of_a_model_with_dims():
    idata, exact = draws_of_rate(), log_z_of_rate()
    found = {
        dims: pmt.bridge_sampling(idata, exponential_rate(dims), random_seed=1, quiet=True)
        for dims in (False, True)
    }
    model = exponential_rate(True)
    others = [
        pmt.importance_sampling(idata, model, random_seed=1, quiet=True),
        pmt.log_marginal_likelihood(idata, model, random_seed=1, quiet=True),
    ]
    assert found[True].log_z == pytest.approx(found[False].log_z, abs=1e-9)
    for evidence in (found[True], *others):
        assert abs(evidence.log_z - exact) < 4 * evidence.mcse < 0.05
    table = pmt.compare({"one": idata}, models={"one": model}, random_seed=1, progressbar=False)
    assert abs(table["log_z"]["one"] - exact) < 0.05
