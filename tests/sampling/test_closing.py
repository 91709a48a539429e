"""The end of a run: a verdict is seen, once; one line sums it up; attributes are honest."""

import inspect
import json
import logging
import re
import warnings
from time import perf_counter

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from support.small_models import mean_only

import pymc_tempering as pmt
from pymc_tempering.core.deadline import STAGES, in_words
from pymc_tempering.sampling.call import REFUSED, refuse
from pymc_tempering.sampling.finish import close

PLAIN = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}


def run(**options):
    """A run, what it warned of, and where."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        idata = pmt.sample(model=mean_only(), **PLAIN | options)
    return idata, record


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draws": 5}, "'unchecked': Only .* tours were completed"),
        ({"draws": 300, "reference": "fitted"}, "'unchecked': No looks from the prior"),
    ],
)
def test_a_verdict_that_is_not_ok_is_one_warning_at_the_callers_line(options, words, quiet):
    idata, record = run(**options, quiet=quiet)
    assert len(record) == 1
    assert record[0].category is pmt.TemperingWarning
    assert re.search(f"The verdict of this run is {words}", str(record[0].message))
    assert record[0].filename == __file__
    with pytest.warns(pmt.TemperingWarning):
        assert pmt.log_marginal_likelihood(idata).verdict == "unchecked"


@pytest.mark.slow("compiles models of its own", quick=["True"])
@pytest.mark.parametrize("quiet", [True, False])
def test_a_verdict_of_ok_is_no_warning(quiet):
    _, record = run(draws=300, quiet=quiet)
    assert record == []


def test_a_budget_that_ends_says_the_verdict_and_what_was_missing():
    _, record = run(draws=20, target_mcse=1e-6, max_steps=1, quiet=True, reference="fitted")
    found = [str(warning.message) for warning in record]
    assert len(found) == len(set(found)) == 2
    assert found[0].startswith("The budget ended before the goal was met: the verdict is")
    assert found[1].startswith("The verdict of this run is 'unchecked'")


@pytest.mark.slow("compiles models of its own", quick=["5-False-0"])
@pytest.mark.parametrize(("draws", "cold", "advice"), [(300, True, 0), (5, True, 1), (5, False, 0)])
def test_pymc_advises_on_divergences_of_draws_where_the_verdict_is_not_ok(
    caplog, draws, cold, advice
):
    idata, _ = run(draws=draws, quiet=True)
    stats = idata["sample_stats"].to_dataset()
    stats["n_divergences"] = stats["n_divergences"] + 3
    stats["diverging"] = stats["diverging"] | cold
    idata["sample_stats"] = xr.DataTree(stats)
    verdict = pmt.diagnose(idata).evidence.verdict
    assert (verdict == "ok") == (draws == 300)
    with caplog.at_level(logging.INFO), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        close(idata, mean_only(), {"run": 1.0}, quiet=False, convergence_checks=True)
    assert len([line for line in caplog.messages if "target_accept" in line]) == advice
    found = pmt.diagnose(idata)
    assert found.divergences >= 3 * 2 * draws  # told there, from all rungs
    assert found.divergent_draws == stats["diverging"].sum()
    assert f"divergences {found.divergences}, {found.divergent_draws} at beta = 1" in repr(found)


LINE = re.compile(
    r"2 x 300 draws, log Z = (-?[\d.]+) ± ([\d.]+) nats \((\w+), (\d+) tours\), ([\d.]+) s(: .*)?$"
)


def test_one_line_sums_up_the_run(caplog):
    with caplog.at_level(logging.INFO, logger="pymc.tempering"):
        idata, _ = run(draws=300)
    [line] = [message for message in caplog.messages if "draws, log Z" in message]
    found = LINE.match(line)
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(float(found[1]) - evidence.log_z) < 0.5 * 10.0 ** -len(found[1].split(".")[1])
    assert found[3] == evidence.verdict
    assert int(found[4]) == evidence.n_tours
    seconds = json.loads(idata["tempering"].attrs["seconds"])
    assert abs(float(found[5]) - sum(seconds.values())) < 0.051


def test_a_quiet_run_logs_nothing(caplog):
    with caplog.at_level(logging.INFO):
        run(draws=300, quiet=True)
    assert not [message for message in caplog.messages if "log Z" in message]


def test_the_words_of_stages_leave_out_what_took_no_time():
    seconds = {"compiling": 0.01, "fit": 1.0, "run": 2.06}
    assert in_words(seconds) == "3.1 s: fit 1.0, run 2.1"
    assert in_words({"run": 0.0}) == "0.0 s"


@pytest.mark.slow("compiles models of its own", quick=["options1-stages1"])
@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ({}, {"annealed_pass", "fit", "search", "weights", "run"}),
        ({"reference": "prior"}, {"annealed_pass", "weights", "run"}),
        ({"reference": "fitted"}, {"annealed_pass", "fit", "search", "weights", "run"}),
    ],
)
def test_the_stages_add_up_to_the_whole_call(options, stages):
    pmt.compile(mean_only(), progressbar=False)
    began = perf_counter()
    idata, _ = run(draws=2000, quiet=True, **options)
    took = perf_counter() - began
    seconds = json.loads(idata["tempering"].attrs["seconds"])
    assert set(seconds) == {"compiling", "prior_constant"} | stages
    assert set(seconds) <= set(STAGES)
    assert min(seconds.values()) >= 0.0
    assert 0.2 * took < sum(seconds.values()) <= took  # the rest makes the DataTree


def test_attributes_name_this_package_and_the_time_of_all_that_was_not_compiling():
    idata, _ = run(draws=300, tune=10, quiet=True, discard_tuned_samples=False)
    seconds = json.loads(idata["tempering"].attrs["seconds"])
    for group in ("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"):
        attrs = idata[group].attrs
        assert attrs["inference_library"] == "pymc_tempering"
        assert attrs["inference_library_version"] == pmt.__version__
        assert "created_at" in attrs
    sampling = sum(seconds.values()) - seconds["compiling"]
    assert idata["posterior"].attrs["sampling_time"] == pytest.approx(sampling)
    assert idata["tempering"].attrs["sampling_seconds"] == seconds["run"] < sampling


OURS = set(inspect.signature(pmt.sample).parameters)


def test_every_argument_of_pm_sample_is_taken_or_refused_with_a_reason():
    theirs = {
        name
        for name, argument in inspect.signature(pm.sample).parameters.items()
        if argument.kind is not inspect.Parameter.VAR_KEYWORD
    }
    assert theirs <= OURS | set(REFUSED)
    assert not OURS & set(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_without_a_meaning_is_refused_by_name(name):
    with pytest.raises(
        pmt.exceptions.ArgumentError, match=rf"sample\(\) does not take {name}: \w+"
    ):
        pmt.sample(model=mean_only(), **{name: None})


def test_an_argument_that_is_misspelled_is_told_the_right_one():
    with pytest.raises(TypeError, match=r"drows: .* no such argument; perhaps 'draws' is meant\."):
        pmt.sample(drows=10)
    with pytest.raises(TypeError, match=r"seed: .*; perhaps 'random_seed' is meant"):
        pmt.sample(seed=1)
    with pytest.raises(
        pmt.exceptions.ArgumentError, match=r"quite unlike: there is no such argument\."
    ):
        refuse({"quite unlike": 1}, "sample", {"draws": None})


def test_a_model_in_the_place_of_draws_is_told_its_name():
    with pytest.raises(
        pmt.exceptions.ArgumentError, match=r"pass the model by name, sample\(model=model\)"
    ):
        pmt.sample(mean_only())


@pytest.mark.parametrize("seed", ["one", -1, 0.5])
def test_a_seed_that_is_none_is_refused_by_name(seed):
    with pytest.raises(ValueError, match=r"random_seed must be a whole number of at least 0, "):
        pmt.sample(model=mean_only(), random_seed=seed)


def test_a_number_of_rungs_is_no_ladder():
    with pytest.raises(pmt.exceptions.LadderError, match=r"at least two rungs, such as .* got 50"):
        pmt.sample(model=mean_only(), betas=50, reference="prior")


def test_all_arguments_are_checked_before_any_work():
    began = perf_counter()
    with pytest.raises(pmt.exceptions.ArgumentError, match=r"initvals: .*; step: "):
        pmt.sample(10**9, model=mean_only(), initvals={}, step=np.zeros(1))
    assert perf_counter() - began < 5.0  # 1e9 draws would take hours
