"""Unconstrained draws come back exactly from any posterior; what does not match is named."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from support.exact_posteriors import posterior_tree
from support.integration_points import Density
from support.small_models import all_transforms, covariance

from pymc_tempering.exceptions import DataMismatchError, TemperingError
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.path import Path
from pymc_tempering.model.terms import find_terms
from pymc_tempering.model.unconstrain import unconstrained_draws
from pymc_tempering.references.prior import compile_prior


def dependent():
    """Transforms whose bounds are another variable and an observed one, and an imputed datum."""
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        low = pm.Normal("low")
        seen = pm.Normal("seen", low, 1.0, observed=2.5)
        pm.Uniform("u", low, low + 3.0 + seen, shape=2)
        pm.Normal("y", low, 1.0, observed=np.ma.masked_invalid([1.0, np.nan, 2.0]))
    return model


MODELS = {
    "all transforms": all_transforms,
    "covariance": covariance,
    "dependent": dependent,
}


@pytest.fixture(scope="module", params=MODELS)
def draws(request):
    """A model, its layout, unconstrained draws (2, 30, d), and the constrained ones as a tree."""
    model = MODELS[request.param]()
    layout = model_layout(model)
    reference = compile_prior(
        Path(model, layout, None, np.array([], int), find_terms(model), False, 1)
    )  # no density is needed
    x = reference.draw(60, reference.spawn(np.random.default_rng(1)))
    constrained = Density(model)(x)[2]
    return (
        model,
        layout,
        x.reshape(2, 30, -1),
        posterior_tree(**{k: v.reshape(2, 30, *v.shape[1:]) for k, v in constrained.items()}),
    )


@pytest.mark.slow("compiles models of its own", quick=["dependent"])
def test_draws_come_back_through_the_transforms(draws):
    model, layout, x, idata = draws
    found = unconstrained_draws(idata, model, layout)
    for name, at in zip(layout.names, layout.slices, strict=True):
        if name.endswith("_circular__"):
            found[..., at] = (found[..., at] - x[..., at] + np.pi) % (2 * np.pi) - np.pi
            found[..., at] += x[..., at]
    np.testing.assert_allclose(found, x, atol=1e-9)


@pytest.mark.slow("compiles models of its own", quick=["dependent"])
def test_the_order_of_dimensions_does_not_matter(draws):
    model, layout, _, idata = draws
    names = [rv.name for rv in model.free_RVs]
    posterior = idata["posterior"].to_dataset()
    turned = xr.Dataset(
        {
            name: posterior[name].transpose(..., "draw", "chain", *posterior[name].dims[2:])
            for name in names
        }
    )
    other = xr.DataTree.from_dict({"posterior": turned})
    np.testing.assert_array_equal(
        unconstrained_draws(other, model, layout),
        unconstrained_draws(idata, model, layout),
    )


@pytest.fixture(scope="module")
def small():
    with pm.Model() as model:
        pm.HalfNormal("scale")
        pm.Normal("mean", 0.0, 1.0, shape=2)
        pm.Normal("y", model["mean"].sum(), model["scale"], observed=[1.0, 2.0])
    rng = np.random.default_rng(1)
    idata = posterior_tree(scale=rng.gamma(2.0, size=(2, 5)), mean=rng.normal(size=(2, 5, 2)))
    return model, model_layout(model), idata


@pytest.mark.parametrize("group", ["unconstrained_posterior", "posterior"])
def test_saved_values_are_read_where_there_are_any(small, group):
    model, layout, idata = small
    saved = np.random.default_rng(2).normal(size=(2, 5))
    known = idata["posterior"].to_dataset().drop_vars("scale")
    extra = xr.Dataset({"scale_log__": (("chain", "draw"), saved)})
    groups = (
        {"posterior": known.merge(extra)}
        if group == "posterior"
        else {"posterior": known, group: extra}
    )
    found = unconstrained_draws(xr.DataTree.from_dict(groups), model, layout)
    np.testing.assert_array_equal(found[..., 0], saved)


def test_a_missing_variable_is_named(small):
    model, layout, idata = small
    other = posterior_tree(mean=idata["posterior"]["mean"].values, sigma=np.ones((2, 5)))
    with pytest.raises(DataMismatchError, match=r"lacks \['scale'\].*\['mean', 'sigma'\]"):
        unconstrained_draws(other, model, layout)


def test_another_shape_is_named(small):
    model, layout, idata = small
    other = posterior_tree(scale=idata["posterior"]["scale"].values, mean=np.zeros((2, 5, 3)))
    with pytest.raises(
        DataMismatchError, match=r"'mean' has the shape \(3,\).*\(2,\) in the model"
    ):
        unconstrained_draws(other, model, layout)


def test_other_observed_data_are_named(small):
    model, layout, idata = small
    other = idata.copy()
    other["observed_data"] = xr.DataTree(xr.Dataset({"y": ("y_dim_0", [1.0, 2.0])}))
    unconstrained_draws(other, model, layout)
    other["observed_data"] = xr.DataTree(xr.Dataset({"y": ("y_dim_0", [1.0, 2.1])}))
    with pytest.raises(DataMismatchError, match=r"observed data of \['y'\]"):
        unconstrained_draws(other, model, layout)


def test_a_draw_on_the_edge_is_refused(small):
    model, layout, idata = small
    other = idata.copy(deep=True)
    other["posterior"]["scale"].values[1, 3] = 0.0
    with pytest.raises(TemperingError, match=r"10.00% of .*scale_log__.*include_transformed"):
        unconstrained_draws(other, model, layout)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda idata: {"posterior": 1}, "got dict"),
        (lambda idata: xr.DataTree.from_dict({"prior": xr.Dataset()}), r"with \['prior'\]"),
        (lambda idata: idata.isel(chain=0), r"no draws along \['chain'\]"),
        (lambda idata: idata.isel(draw=slice(0, 0)), r"no draws along \['draw'\]"),
    ],
)
def test_what_is_no_posterior_is_refused(small, make, message):
    model, layout, idata = small
    with pytest.raises(TemperingError, match=message):
        unconstrained_draws(make(idata), model, layout)
