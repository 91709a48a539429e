"""Models of pymc-bart: their log density of zero is none, and no front door takes it for one."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.abstract import _logprob
from pytensor.tensor.random.op import RandomVariable
from support.exact_posteriors import posterior_tree

import pymc_tempering as pmt


class BARTRV(RandomVariable):
    """What pymc-bart has: draws, and the log density zero."""

    name = "BART"
    signature = "(n)->(n)"
    dtype = "floatX"
    _print_name = ("BART", "BART")

    @classmethod
    def rng_fn(cls, rng, centers, size):
        return rng.normal(centers)


@_logprob.register(BARTRV)
def no_density(op, values, *parameters, **kwargs):
    return pt.zeros_like(values[0])


class BART(pm.Distribution):
    """A variable of its own class, as each of pymc-bart has."""

    rv_op = type("BART_mu", (BARTRV,), {})()

    @classmethod
    def dist(cls, centers, **kwargs):
        return super().dist([pt.as_tensor(centers)], **kwargs)


def tree_model():
    with pm.Model() as model:
        mu = BART("mu", np.zeros(3))
        scale = pm.HalfNormal("scale")
        pm.Normal("y", mu, scale, observed=np.array([0.1, -0.4, 0.9]))
    return model


def draws():
    rng = np.random.default_rng(2)
    return posterior_tree(mu=rng.normal(size=(2, 100, 3)), scale=rng.gamma(2.0, size=(2, 100)))


DOORS = {
    "sample": lambda model: pmt.sample(model=model),
    "compile": pmt.compile,
    "step": lambda model: pmt.SimulatedTempering(model=model),
    "fit": lambda model: pmt.fit(model=model),
    "smc": pmt.smc,
    "ais": pmt.ais,
    "thermodynamic_integration": pmt.thermodynamic_integration,
    "hais": pmt.annealed.hais,
    "reverse_ais": lambda model: pmt.reverse_ais(draws(), model),
    "sandwich": lambda model: pmt.sandwich(draws(), model),
    "bridge_sampling": lambda model: pmt.bridge_sampling(draws(), model),
    "importance_sampling": lambda model: pmt.importance_sampling(draws(), model),
    "log_marginal_likelihood": lambda model: pmt.log_marginal_likelihood(draws(), model),
    "compare": lambda model: pmt.compare({"a": draws()}, models={"a": model}),
    "cross_check": lambda model: pmt.cross_check(draws(), model),
    "savage_dickey": lambda model: pmt.savage_dickey(draws(), model, null={"scale": 1.0}),
    "prior_sensitivity": lambda model: pmt.prior_sensitivity(draws(), model, {"scale": [0.5, 2.0]}),
    "calibrate": lambda model: pmt.calibrate([model, model]),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_takes_sums_of_trees(door):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(pmt.exceptions.TemperingError, match="'mu' is a sum of trees of pymc-b"):
            DOORS[door](tree_model())
