"""What does not fit is answered by a sentence that says what does, not by Python's own words."""

import re

import numpy as np
import pymc as pm
import pytest

import pymc_tempering as pmt
from pymc_tempering.evidence import Evidence
from pymc_tempering.exceptions import ArgumentError, DataMismatchError

ONE = Evidence(-1.0, 0.1, "rts", "ok")


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 3), 1, observed=[1.0, 2.0])
    return model


CALLS = {
    "compare(a, b)": (lambda m: pmt.compare(ONE, ONE), r"called as compare\(\{'a'"),
    "bayes_factor({})": (lambda m: pmt.bayes_factor({"a": ONE, "b": ONE}), r"bayes_factor\(a, b\)"),
    "average(a, b, c)": (lambda m: pmt.average(ONE, ONE, ONE), r"called as average\(\{'a'"),
    "plot_bayes_factors(a, b)": (lambda m: pmt.plot_bayes_factors(ONE, ONE), "called as plot_bay"),
    "plot_evidence(a, b)": (lambda m: pmt.plot_evidence(ONE, ONE), "called as plot_evidence"),
    "inclusion(a, b, c)": (lambda m: pmt.inclusion_probabilities(1, 2, 3), "called as inclusion"),
    "sample(9, m)": (lambda m: pmt.sample(9, m), r"called as sample\(1000, model=model\)"),
    "extend(a, 9)": (lambda m: pmt.extend(ONE, 9), r"called as extend\(idata, draws=1000"),
    "savage_dickey(a)": (lambda m: pmt.savage_dickey(ONE), "called as savage_dickey"),
    "a file as a run": (lambda m: pmt.cross_check("run.nc"), "idata must be the DataTree"),
    "a file as calibration": (lambda m: pmt.plot_calibration("a"), "what calibrate returned"),
    "a file as curves": (lambda m: pmt.plot_prior_sensitivity("a"), "what prior_sensitivity re"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_does_not_fit_is_answered_by_one_that_does(call, model):
    """`compare(a, b)` gave "takes 1 positional argument but 2 were given"."""
    door, words = CALLS[call]
    with pytest.raises(ArgumentError, match=words):
        door(model)


VALUES = {
    "draws": lambda m: pmt.sample("100", model=m),
    "random_seed": lambda m: pmt.smc(m, random_seed="x"),
    "target_accept": lambda m: pmt.sample(9, model=m, target_accept="0.8", quiet=True),
    "check_looks": lambda m: pmt.sample(9, model=m, check_looks="100"),
    "rungs_per_barrier": lambda m: pmt.sample(9, model=m, rungs_per_barrier="1"),
    "prior probabilities": lambda m: pmt.compare({"a": ONE}, prior={"a": "x"}),
    "models": lambda m: pmt.bayes_factor(ONE, ONE, models=m),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_text_in_place_of_a_number_is_named(name, model):
    with pytest.raises(ValueError, match=f"^{name} must "):
        VALUES[name](model)


@pytest.mark.parametrize("values", [["1", "2"], np.array(["a", "b"])])
def test_data_that_are_text_are_told(values, model):
    with pytest.raises(DataMismatchError, match=re.escape("datasets['a']: The new values of 'y'")):
        pmt.sample_many(model, {"a": {"y": values}}, quiet=True)


def test_a_path_is_no_run_where_log_z_is_drawn():
    with pytest.raises(pmt.exceptions.NotTemperedError, match=r"expected the xarray\.DataTree"):
        pmt.plot_log_z("run.nc")


def test_names_in_place_of_scales_are_told(model):
    draws = pm.sample_prior_predictive(10, model=model, random_seed=1)
    draws["posterior"] = draws["prior"]
    with pytest.raises(ArgumentError, match="scale must be a dict from names to lists"):
        pmt.prior_sensitivity(draws, model, "mu")
