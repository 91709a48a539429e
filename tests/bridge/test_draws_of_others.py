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


@pytest.mark.slow("compiles models of its own")
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


def scale_model():
    """Eight normal observations with an unknown scale: skewed, and so unlike a normal."""
    y = np.random.default_rng(8).normal(size=8)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 2.0)
        pm.Normal("y", 0.0, scale, observed=y)
    grid = np.linspace(-4.0, 3.0, 20_001)
    log_density = stats.halfnorm(scale=2.0).logpdf(np.exp(grid)) + grid
    log_density += stats.norm(0.0, np.exp(grid)[:, None]).logpdf(y).sum(axis=1)
    log_z = np.log(np.trapezoid(np.exp(log_density), grid))
    mode = int(log_density.argmax())
    step = grid[1] - grid[0]
    curvature = -np.diff(log_density[mode - 1 : mode + 2], 2)[0] / step**2
    return model, float(log_z), grid[mode], curvature**-0.5


def laplace_fit(mode, sd):
    """Draws of a normal around the mode, as `pymc_extras.fit_laplace` keeps them."""
    draws = np.random.default_rng(4).normal(mode, sd, size=(1, 2000))
    idata = posterior_tree(scale=np.exp(draws))
    saved = xr.Dataset({"scale_log__": (("chain", "draw"), [[mode]])})
    idata["unconstrained_posterior"] = xr.DataTree(saved)
    fit = xr.Dataset(
        {
            "mean_vector": ("rows", [mode]),
            "covariance_matrix": (("rows", "columns"), [[sd**2]]),
        }
    )
    idata["fit"] = xr.DataTree(fit)
    return idata


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore::pymc_tempering.exceptions.TemperingWarning")
def test_draws_of_a_laplace_fit():
    model, exact, mode, sd = scale_model()
    idata = laplace_fit(mode, sd)
    for door in (pmt.importance_sampling, pmt.log_marginal_likelihood):
        evidence = door(idata, model, random_seed=1, quiet=True)
        assert (evidence.method, evidence.verdict) == ("importance_sampling", "unchecked")
        assert abs(evidence.log_z - exact) < 4 * evidence.mcse < 0.1
        assert "draws are of a fit" in evidence.warnings[-1]


@pytest.mark.filterwarnings("ignore::pymc_tempering.exceptions.TemperingWarning")
def test_a_bridge_states_no_error_for_draws_of_a_fit():
    model, _, mode, sd = scale_model()
    evidence = pmt.bridge_sampling(laplace_fit(mode, sd), model, random_seed=1, quiet=True)
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert "The draws are of a fit, and not of the posterior" in evidence.warnings[0]
