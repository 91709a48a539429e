"""Log densities that are not those of the prior: no front door takes them for it."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.abstract import _logprob
from pytensor.tensor.random.op import RandomVariable
from support.exact_posteriors import posterior_tree

import pymc_tempering as pmt
from pymc_tempering.model.check import check_model


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


def lkj_models():
    """One model with each of PyMC's two LKJ priors."""
    with pm.Model() as one:
        scales = pm.HalfNormal.dist(1.0, shape=2)
        pm.LKJCholeskyCov("prior", n=2, eta=2.0, sd_dist=scales, compute_corr=False)
        pm.Normal("y", one["prior"].sum(), 1.0, observed=0.3)
    with pm.Model() as other:
        pm.Normal("y", pm.LKJCorr("prior", n=2, eta=2.0).sum(), 1.0, observed=0.3)
    return one, other


def test_lkj_priors_of_an_older_pymc_are_refused(monkeypatch):
    models = lkj_models()
    monkeypatch.setattr(pm, "__version__", "6.4.0")
    for model in models:
        check_model(model)
    monkeypatch.setattr(pm, "__version__", "6.3.2")
    for model in models:
        with pytest.raises(
            pmt.exceptions.ModelError, match=r"'prior' has an LKJ prior, and PyMC 6"
        ):
            check_model(model)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            lambda mu: pm.Truncated("y", pm.Poisson.dist(mu), lower=0.5, observed=[1, 2]),
            "lower=0.5",
        ),
        (
            lambda mu: pm.Censored("y", pm.Poisson.dist(mu), None, 2.5, observed=[1, 2.5]),
            "upper=2.5",
        ),
    ],
    ids=["truncated", "censored"],
)
def test_whole_numbers_that_end_between_two_are_refused(write, words):
    """The first lacks log(1 - exp(-mu)) a datum: PyMC divides by P(n > -.5), and 0 is left out."""
    with pm.Model() as model:
        write(pm.Gamma("mu", 2, 2))
    with pytest.raises(
        pmt.exceptions.ModelError, match=f"'y' is a .* of whole numbers with {words}"
    ):
        check_model(model)


def test_bounds_at_whole_numbers_and_of_real_ones_are_taken():
    with pm.Model() as model:
        mu = pm.Gamma("mu", 2, 2)
        pm.Truncated("y", pm.Poisson.dist(mu), lower=1, observed=[1, 2])
        pm.Censored("z", pm.Poisson.dist(mu), None, 2, observed=[1, 2])
        pm.Truncated("x", pm.Normal.dist(mu), lower=0.5, observed=[1, 2])
    check_model(model)
