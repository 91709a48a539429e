"""Data in potentials are compared like observed data: by name, or in potentials that are alike."""

import numpy as np
import pymc as pm
import pytest

import pymc_tempering as pmt
from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.model.identity import potential_data

Y, OTHER = np.array([0.3, -0.2, 0.8]), np.array([0.3, -0.2, 0.9])


def of_potential(y=Y, scale=1.0, slope=1.0):
    """A mean of data that only a potential knows."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, scale)
        y = pm.Data("y", y)
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(slope * mu, 1.0), y).sum())
    return model


def of_array(y=Y, scale=1.0):
    """The same with an array that has no name."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Potential("prior", -0.5 * (mu / scale) ** 2)
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(mu, 1.0), y).sum())
    return model


def of_covariate(x):
    """Observed data and a covariate, which two models may have under one name."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu * pm.Data("x", x), 1.0, observed=Y)
    return model


def run(model, **kwargs):
    options = {"draws": 40, "chains": 2, "reference": "prior", "quiet": True, "random_seed": 1}
    return pmt.sample(model=model, **options | kwargs)


def by_pymc(model):
    method = pmt.SimulatedTempering(model=model, reference="prior", quiet=True)
    return pm.sample(
        40, step=method, model=model, chains=2, cores=1, random_seed=1, progressbar=False,
        quiet=True, compute_convergence_checks=False,
    )  # fmt: skip


pytestmark = [
    pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning"),
    pytest.mark.filterwarnings("ignore:The effect of Potentials"),
]


@pytest.mark.parametrize("door", [run, by_pymc])
def test_data_that_were_set_again_are_told(door):
    model = of_potential()
    first = door(model)
    with model:
        pm.set_data({"y": OTHER})
    other = door(model)
    pmt.bayes_factor(first, first)
    with pytest.raises(DataMismatchError, match=r"different data in their potentials, 'y',"):
        pmt.bayes_factor(first, other)
    with pytest.raises(DataMismatchError, match="'a' and model 'c' have different data in their"):
        pmt.compare({"a": first, "b": first, "c": other})
    with pytest.raises(DataMismatchError, match="different data in their potentials"):
        pmt.bayes_factor(first, other, models=(model, model))
    pmt.bayes_factor(first, other, check_data=False)


@pytest.mark.slow("compiles models of its own")
def test_models_of_the_same_data_are_compared():
    first, other = run(of_potential()), run(of_potential(scale=2.0, slope=3.0))
    pmt.bayes_factor(first, other)
    pmt.bayes_factor(run(of_covariate(Y)), run(of_covariate(OTHER)))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (of_array(), of_array(), True),
        (of_array(), of_array(OTHER), False),
        (of_array(), of_array(np.append(Y, 1.0)), False),
        (of_array(), of_array(Y * (1.0 + 1e-13)), True),
        (of_array(scale=2.0), of_array(scale=3.0), True),
        (of_potential(), of_potential(OTHER, slope=2.0), False),
    ],
)
def test_arrays_without_a_name_are_told_in_potentials_that_are_alike(one, other, same):
    here, there = potential_data(one), potential_data(other)
    assert here.keys() == there.keys() != set()
    assert (here == there) == same


def test_a_prior_inside_a_potential_is_none_of_its_data():
    with pm.Model() as model:
        mu = pm.Normal("mu", np.arange(3.0), 1.0)
        pm.Potential("pull", -(mu**2).sum())
    assert potential_data(model) == {}
