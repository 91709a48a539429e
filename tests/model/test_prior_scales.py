"""A prior whose scale is multiplied is that of location + c (b - location); others are refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

from pymc_tempering.exceptions import ImproperPriorError, ModelError
from pymc_tempering.model import prior_scales
from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.density_change import density_change
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.path import compile_path
from pymc_tempering.model.prior_scales import SCALES, check_scale, scaled_model

AT = 0.7  # the location of those that have one
ABOVE = {"mu": AT}
COV = np.array([[1.0, 0.3], [0.3, 2.0]])
LAWS = {
    "AsymmetricLaplace": {"b": 1.3, "kappa": 1.4, **ABOVE},
    "Cauchy": {"alpha": AT, "beta": 1.2},
    "ChiSquared": {"nu": 3.0},
    "ExGaussian": {"sigma": 1.2, "nu": 2.0, **ABOVE},
    "Exponential": {"lam": 2.0},
    "Gamma": {"alpha": 2.0, "beta": 3.0},
    "Gumbel": {"beta": 1.2, **ABOVE},
    "HalfCauchy": {"beta": 1.2},
    "HalfNormal": {"sigma": 2},  # a whole number, which the factor makes real
    "HalfStudentT": {"nu": 3.0, "sigma": 1.2},
    "InverseGamma": {"alpha": 2.0, "beta": 3.0},
    "Laplace": {"b": 1.2, **ABOVE},
    "LogNormal": {"mu": 0.3, "sigma": 0.8},
    "Logistic": {"s": 1.2, **ABOVE},
    "Moyal": {"sigma": 1.2, **ABOVE},
    "MvNormal": {"mu": [AT, AT], "cov": COV},
    "MvStudentT": {"nu": 3.0, "mu": [AT, AT], "scale": COV},
    "Normal": {"sigma": 1.2, **ABOVE},
    "Rice": {"nu": 1.0, "sigma": 2.0},
    "SkewNormal": {"sigma": 1.2, "alpha": 2.0, **ABOVE},
    "SkewStudentT": {"a": 2.0, "b": 3.0, "sigma": 1.2, **ABOVE},
    "StudentT": {"nu": 3.0, "sigma": 1.2, **ABOVE},
    "Wald": {"mu": 1.2, "lam": 2.0},
    "Weibull": {"alpha": 2.0, "beta": 3.0},
    "ZeroSumNormal": {"sigma": 1.2, "shape": 3},
}
REFUSED = {
    "Beta": {"alpha": 2.0, "beta": 2.0},
    "Uniform": {},
    "TruncatedNormal": {"lower": 0.0},
    "Pareto": {"alpha": 2.0, "m": 1.0},
    "VonMises": {"mu": 0.0, "kappa": 1.0},
    "GaussianRandomWalk": {"steps": 3, "init_dist": pm.Normal.dist()},
}


def one_prior(law, arguments):
    with pm.Model() as model:
        b = getattr(pm, law)("b", **arguments)
        pm.Normal("y", pt.sum(b), 1.0, observed=1.0)
    return model


def log_density(model):
    """Log density of the prior of b at constrained values."""
    rv = model["b"]
    value = rv.type()
    return pm.compile([value], pm.logp(rv, value).sum(), mode="FAST_COMPILE")


def unconstrained(model, draws):
    rv = model["b"]
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return draws
    value = rv.type()
    forward = pm.compile([value], transform.forward(value, *rv.owner.inputs), mode="FAST_COMPILE")
    return np.array([forward(x) for x in draws])


def test_every_law_of_the_table_is_tested():
    tested = {type(one_prior(law, given)["b"].owner.op) for law, given in LAWS.items()}
    assert tested == set(SCALES)


def law_error(law, factor=1.7):
    """Largest difference between the scaled density, and that of the law's definition."""
    model = one_prior(law, LAWS[law])
    opened = scaled_model(model, "b")
    draws = pm.draw(model["b"], 20, random_seed=1, mode="FAST_COMPILE")
    at = (
        AT
        if {"mu", "alpha"} & set(LAWS[law]) and model.rvs_to_transforms[model["b"]] is None
        else 0.0
    )
    dim = {"MvNormal": 2, "MvStudentT": 2, "ZeroSumNormal": 2}.get(law, 1)
    density = log_density(model)
    expected = [density(at + (x - at) / factor) - dim * np.log(factor) for x in draws]
    change = density_change(opened.model, opened.container)
    assert (change.terms, change.needs, change.moves_support) == (("b",), ("b",), ())
    point = {model.value_vars[0].name: unconstrained(model, draws)}
    found = change.evaluate(point, np.array(factor))
    now = change.evaluate(point, np.array(1.0))
    np.testing.assert_allclose(now, [density(x) for x in draws], atol=1e-6)
    return np.abs(found - expected).max()


@pytest.mark.parametrize("law", LAWS)
def test_the_scaled_prior_is_the_law_of_the_scaled_variable(law):
    assert law_error(law) < 1e-6  # numbers like 1 / 3 are in single precision in PyMC's graphs


@pytest.mark.parametrize("law", ["Normal", "Gamma", "LogNormal", "MvNormal", "AsymmetricLaplace"])
def test_a_scale_the_wrong_way_round_is_found(law, monkeypatch):
    """Planted: the parameter divided by the factor, or a covariance times it once."""
    parameters = prior_scales.scaled_parameters

    def wrong(rv, factor):
        return parameters(rv, factor**0.5 if law == "MvNormal" else 1.0 / factor)

    monkeypatch.setattr(prior_scales, "scaled_parameters", wrong)
    assert law_error(law) > 0.1


@pytest.mark.parametrize("law", REFUSED)
def test_a_law_without_a_scale_is_refused_by_name(law):
    with pytest.raises(
        ModelError, match=rf"prior of 'b' .* law is .*{law.removeprefix('Gaussian')}"
    ):
        check_scale(one_prior(law, REFUSED[law]), "b")


def model_of_all_kinds():
    with pm.Model() as model:
        sigma_b = pm.Data("sigma_b", 2.0)
        z = pm.Normal("z")
        pm.Deterministic("b", z * sigma_b)
        pm.Poisson("k", 3.0)
        pm.HalfFlat("flat")
        pm.Normal("y", model["b"] + model["k"], model["flat"], observed=1.0)
    return model


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("c", ModelError, "no variable named 'c'.*'z', 'k', 'flat'"),
        ("y", ModelError, "'y' is observed"),
        ("b", ModelError, "'b' is computed from other variables.*pm.Data"),
        ("sigma_b", ModelError, r"give its values in data=\{'sigma_b'"),
        ("k", ModelError, "prior of 'k' has no scale.*whole numbers"),
        ("flat", ImproperPriorError, "prior of 'flat' is flat"),
    ],
)
def test_what_has_no_scale_is_refused_with_the_reason(name, error, message):
    with pytest.raises(error, match=message):
        check_scale(model_of_all_kinds(), name)


def hierarchical():
    """A prior with parents and children, in coordinates, with a potential and a start value."""
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        mu = pm.Normal("mu", 0.0, 2.0, initval=0.5)
        tau = pm.HalfNormal("tau", 1.5)
        effect = pm.Normal("effect", mu, tau, dims="group")
        pm.Deterministic("twice", 2.0 * effect, dims="group")
        pm.Potential("soft", -0.1 * effect.sum() ** 2)
        pm.Normal("y", effect, 1.0, observed=[1.0, 2.0, 3.0], dims="group")
    return model


def test_the_copy_is_the_model_while_the_factor_is_one():
    model = hierarchical()
    opened = scaled_model(model, "tau").model
    layout = model_layout(model)
    assert model_layout(opened) == layout
    assert [v.name for v in opened.data_vars] == ["tau_number"]
    assert [v.name for v in model.data_vars] == []
    points = [layout.unravel(x) for x in np.random.default_rng(1).normal(size=(5, layout.dim))]
    of_copy, of_model = (m.compile_logp(mode="FAST_COMPILE") for m in (opened, model))
    np.testing.assert_allclose([of_copy(p) for p in points], [of_model(p) for p in points])


def test_only_the_own_prior_changes_given_what_it_depends_on():
    model = hierarchical()
    opened = scaled_model(model, "effect")
    change = density_change(opened.model, opened.container)
    assert (change.terms, set(change.needs)) == (("effect",), {"mu", "tau", "effect"})
    rng = np.random.default_rng(1)
    mu, log_tau, effect = rng.normal(size=6), rng.normal(size=6), rng.normal(size=(6, 3))
    point = {"mu": mu, "tau_log__": log_tau, "effect": effect}
    found = change.evaluate(point, np.array(2.5))
    scale = 2.5 * np.exp(log_tau)[:, None]
    terms = -0.5 * ((effect - mu[:, None]) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(found, terms.sum(axis=1))


@pytest.mark.slow("compiles models of its own")
def test_other_factors_find_the_same_compiled_density():
    """Single numbers would be written into the code; the factor is not."""
    opened = scaled_model(hierarchical(), "tau")
    copies = [opening_with(opened, np.array(c)) for c in (0.5, 3.0)]
    paths = [compile_path(copy) for copy in copies]
    assert paths[0].density.code is paths[1].density.code


def opening_with(opened, value):
    from pymc_tempering.model.new_data import copy_with_data

    return copy_with_data(opened.model, {opened.container: value})


@pytest.mark.slow("compiles models of its own")
def test_other_single_numbers_of_the_data_find_the_same_compiled_density():
    with pm.Model() as model:
        sigma = pm.Data("sigma", 2.0)
        b = pm.Normal("b", 0.0, sigma * pm.Data("wide", np.ones(3)))
        pm.Normal("y", b, 1.0, observed=np.zeros(3))
    before = compile_path(model)
    model["sigma"].set_value(0.5)
    after = compile_path(model)
    assert before.density.code is after.density.code
    x = np.array([0.1, 0.2, 0.3])
    point = new_point(3)
    for path, sd in ((before, 2.0), (after, 0.5)):  # both have their own number
        path.density(x, point.values, point.grads)
        np.testing.assert_allclose(point.values[0], norm.logpdf(x, 0.0, sd).sum())
