"""What a user's own code raises, and data that do not fit, are told of by the variable's name."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import wrap_py

import pymc_tempering as pmt
from pymc_tempering.exceptions import GradientError, ModelError, PriorDrawsError
from pymc_tempering.model.refusals import terms_named

QUIET = {"random_seed": 1, "progressbar": False}
SAMPLERS = {
    "sample": lambda model: pmt.sample(100, chains=2, cores=1, model=model, **QUIET),
    "smc": lambda model: pmt.smc(model, **QUIET),
}
DOORS = SAMPLERS | {"fit": lambda model: pmt.fit(100, model=model, **QUIET)}


def broken(*args, **kwargs):
    raise KeyError("a slip")


def data_set_again():
    """The covariate has another length than the data, since it was set again."""
    with pm.Model() as model:
        x = pm.Data("x", np.arange(3.0))
        slope = pm.Normal("slope")
        pm.Normal("y", slope * x, 1, observed=np.ones(3))
        pm.Normal("other", slope, 1, observed=0.3)
        pm.set_data({"x": np.arange(4.0)})
    return model


@pytest.mark.slow("compiles models of its own", quick=["sample"])
@pytest.mark.parametrize("door", DOORS)
def test_data_that_do_not_fit(door):
    with pytest.raises(ModelError, match=r"log density of 'y' cannot be computed: .*set_data"):
        DOORS[door](data_set_again())


@pytest.mark.parametrize("door", DOORS)
def test_a_density_of_the_user_that_raises(door):
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("x", mu, 1, observed=0.2)
        pm.CustomDist("y", mu, logp=broken, observed=[1.0, 2.0])
    with pytest.raises(
        ModelError, match=r"log density of 'y' .* raises KeyError: 'a slip'"
    ) as told:
        DOORS[door](model)
    assert isinstance(told.value.__cause__, KeyError)


@pytest.mark.parametrize("door", SAMPLERS)
def test_draws_of_the_user_that_raise(door):
    with pm.Model() as model:
        mu = pm.CustomDist("mu", logp=lambda v: -0.5 * v**2, random=broken)
        pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    with pytest.raises(
        PriorDrawsError, match=r"raise KeyError: 'a slip'\. It comes from 'mu'"
    ) as told:
        SAMPLERS[door](model)
    assert isinstance(told.value.__cause__, KeyError)


def test_a_fit_without_a_gradient():
    box = wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])(lambda x: np.asarray(-x))
    with pm.Model() as model:
        pm.Potential("p", box(pm.Normal("mu")))
    with pytest.raises(GradientError, match="no gradient, which a fit needs"):
        DOORS["fit"](model)


def test_other_errors_stay_as_they_are():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1, observed=0.1)
    for error in (ValueError("of a callback"), ModelError("ours")):
        with pytest.raises(type(error)) as told, terms_named(model):
            raise error
        assert told.value is error
