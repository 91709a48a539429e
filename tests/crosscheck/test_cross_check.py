"""Cross-checks: false alarms are as rare as stated, planted disagreements are found, words fit."""

import warnings
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from support.exact_posteriors import mode_draws, posterior_tree, two_modes
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering.crosscheck.judge import (
    ALPHA,
    ALPHA_HOMOGENEITY,
    ALPHA_PAIRS,
    Entry,
    judge,
    pair_pvalue,
)
from pymc_tempering.crosscheck.registry import MODEL_ESTIMATORS, NO_RUN
from pymc_tempering.crosscheck.result import assemble, read_cross_check
from pymc_tempering.evidence import ESTIMATORS, Estimator, Evidence
from pymc_tempering.evidence.estimators import MODEL, OWN, POSTERIOR, RUN

REPEATS = 3000
ERRORS = {
    "rts": (RUN, 0.05),
    "counts": (RUN, 0.08),
    "bridge_sampling": (POSTERIOR, 0.01),
    "ais": (OWN, 0.03),
    "smc": (OWN, 0.1),
    "lis": (OWN, 0.02),
}


def entry(method, log_z, mcse, draws=OWN, **more):
    return Entry(method, Evidence(log_z, mcse, method, more.pop("verdict", "ok"), **more), draws)


def panel(rng, errors=ERRORS, shared=0.9, shift=None):
    """Estimates of log Z = 0; those that share draws have errors of correlation ``shared``."""
    common = rng.standard_normal()
    result = []
    for method, (draws, mcse) in errors.items():
        noise = rng.standard_normal()
        if draws != OWN:
            noise = np.sqrt(abs(shared)) * common + np.sqrt(1.0 - abs(shared)) * noise
        if shared < 0.0 and method == "counts":
            noise = -noise
        offset = (shift or {}).get(method, 0.0)
        result.append(entry(method, mcse * noise + offset, mcse, draws))
    return result


def alarms(repeats=REPEATS, **arguments):
    rngs = (np.random.default_rng([3, i]) for i in range(repeats))
    return np.mean([judge(panel(rng, **arguments)).verdict == "disagree" for rng in rngs])


INDEPENDENT = {name: (OWN, mcse) for name, (_, mcse) in ERRORS.items()}


@pytest.mark.slow("repeats")
@pytest.mark.parametrize(
    "arguments",
    [{"shared": 0.9}, {"shared": -1.0}],
    ids=["correlated", "opposed"],
)
def test_false_alarms_are_at_most_as_many_as_stated(arguments):
    # 4 standard deviations of a share of 1 % in 3000 repeats
    bound = ALPHA + 4 * np.sqrt(ALPHA * (1 - ALPHA) / REPEATS)
    assert alarms(**arguments) <= bound


@pytest.mark.slow("compiles models of its own")
def test_the_stated_rate_is_nearly_used_up_by_independent_estimates():
    share = alarms(errors=INDEPENDENT)
    used = ALPHA_PAIRS + ALPHA_HOMOGENEITY  # no bounds here, and no draws
    assert 0.3 * used < share <= ALPHA + 4 * np.sqrt(ALPHA * (1 - ALPHA) / REPEATS)


def test_too_many_false_alarms_are_seen():
    # The planted bug: estimates that share draws, with opposed errors, taken for independent.
    bound = ALPHA + 4 * np.sqrt(ALPHA * (1 - ALPHA) / REPEATS)
    right = pair_pvalue

    def wrong(a, b):
        return right(replace(a, draws=OWN), replace(b, draws=OWN))

    with patch("pymc_tempering.crosscheck.judge.pair_pvalue", wrong):
        assert (
            alarms(500, shared=-1.0, errors=dict.fromkeys(("rts", "counts"), (RUN, 0.05))) > bound
        )


@pytest.mark.parametrize("method", ["bridge_sampling", "rts", "lis"])
def test_a_planted_disagreement_is_found(method):
    # 0.35 nats: the log of a mode's share; far for all errors but that of "smc"
    found = [judge(panel(np.random.default_rng([4, i]), shift={method: -0.5})) for i in range(100)]
    assert np.mean([one.verdict == "disagree" for one in found]) > 0.97
    assert np.mean([method in one.worst[:2] for one in found]) > 0.9
    if method != "rts":
        assert np.mean([one.agrees[method] is False for one in found]) > 0.9
    # the low one is never the one to believe, though it may state the smallest error
    assert all(one.believe != method for one in found)


def test_bounds_are_one_sided():
    low = {"bias_direction": "below"}
    high = {"bias_direction": "above"}
    middle = entry("rts", 0.0, 0.01, RUN)
    for bound, value, fine in (
        (low, -5.0, True), (low, 0.02, True), (low, 0.5, False),
        (high, 5.0, True), (high, -0.02, True), (high, -0.5, False),
    ):  # fmt: skip
        assert (judge([middle, entry("b", value, 0.01, **bound)]).verdict == "agree") == fine
        # in either order
        assert (judge([entry("b", value, 0.01, **bound), middle]).verdict == "agree") == fine
    crossed = [entry("l", 0.5, 0.01, **low), entry("u", 0.0, 0.01, **high), middle]
    assert judge(crossed).verdict == "disagree"
    assert judge([entry("a", -3.0, 0.01, **low), entry("b", 0.0, 0.01, **low)]).verdict == "agree"


def test_a_stated_bias_is_allowed_for():
    exact = entry("rts", 0.0, 0.01, RUN)
    assert judge([exact, entry("ti", 0.2, 0.01, RUN)]).verdict == "disagree"
    assert judge([exact, entry("ti", 0.2, 0.01, RUN, bias=0.2)]).verdict == "agree"


def test_what_states_no_error_is_not_compared():
    found = judge([entry("rts", 0.0, 0.01, RUN), entry("smc", 9.0, np.inf, verdict="unchecked")])
    assert (found.verdict, found.agrees["smc"], found.believe) == ("unchecked", None, "rts")
    none = judge([entry("smc", 9.0, np.inf), entry("ais", -np.inf, 1.0)])
    assert (none.verdict, none.believe, none.reference) == ("unchecked", None, None)


def test_words_say_what_to_believe():
    def words(*entries):
        return assemble(entries).words

    rts, other = entry("rts", -5.0, 0.05, RUN), entry("counts", -5.05, 0.1, RUN)
    assert "all of them use the same draws" in words(rts, other)
    ais = entry("ais", -5.01, 0.01)
    agreed = words(rts, other, ais)
    assert "3 estimates agree" in agreed
    assert "Believe ais, -5.010 ± 0.010" in agreed
    assert "same draws" not in agreed
    missed = words(rts, entry("bridge_sampling", -6.05, 0.003, POSTERIOR))
    assert "disagree: bridge_sampling says -6.0500 ± 0.0030 and rts -5.000 ± 0.050" in missed
    assert "missed a mode that the path from the prior found" in missed
    assert "take -5.000 ± 0.050 (rts) with an error of at least 1.05" in missed
    short = words(rts, entry("bridge_sampling", -4.0, 0.003, POSTERIOR))
    assert "has likely missed what the posterior draws found" in short
    lower, upper = (
        entry("ais", -5.02, 0.01, bias_direction="below"),
        entry("reverse_ais", -4.99, 0.01, POSTERIOR, bias_direction="above"),
    )
    assert "bracket log Z between -5.020 ± 0.010 (ais) and -4.990 ± 0.010 (reverse_ais)" in words(
        rts, lower, upper
    )
    meet = replace(lower, evidence=replace(lower.evidence, log_z=-4.985))
    crossing = words(rts, meet, upper)
    assert "cross by 0.005 ± 0.014 nats, which their errors allow" in crossing
    assert "disagree" not in crossing
    near = replace(lower, evidence=replace(lower.evidence, log_z=-4.995))
    assert "bounds meet within their errors" in words(rts, near, upper)
    crossed = replace(lower, evidence=replace(lower.evidence, log_z=-4.9))
    assert "The estimates disagree: reverse_ais says" in words(rts, crossed, upper)
    assert (
        "cross beyond their errors: the lower one, -4.900 ± 0.010 (ais), lies 0.090 ± 0.014 nats "
        "above the upper one, -4.990 ± 0.010 (reverse_ais)"
    ) in words(rts, crossed, upper)
    # the best bound by its safe end, not by its noise
    noisy = entry("forward", -4.9, 0.5, RUN, bias_direction="below")
    assert "between -5.020 ± 0.010 (ais)" in words(rts, noisy, lower, upper)
    assert "nothing confirms it" in words(rts)
    silent = words(rts, ais, entry("smc", -7.0, np.inf))
    assert "No error could be stated by smc" in silent


@pytest.fixture(scope="module")
def conjugate():
    """A model, and exact draws of its posterior."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=1.0)
    x = np.random.default_rng(1).normal(0.5, 0.5**0.5, size=(4, 500))
    return model, x, -0.5 * (np.log(4 * np.pi) + 0.5)


def fake(log_z, mcse=0.01, draws=OWN, **more):
    def estimate(idata, model, rng, cores, executor):
        warnings.warn("from inside", pmt.TemperingWarning, stacklevel=1)
        return Evidence(log_z + mcse * rng.standard_normal(), mcse, "fake", "ok", **more)

    return Estimator(MODEL, estimate, "What it is.", draws)


class LosesWorkers(Executor):
    def submit(self, fn, /, *args, **kwargs):
        raise BrokenExecutor("a process died")


@pytest.mark.parametrize("name", ["smc", "ais", "reverse_ais", "sandwich", "hais", None])
def test_an_executor_that_cannot_do_the_work_ends_it(conjugate, name):
    """Each method asks it, and where none was named, one that fails is not left out."""
    model, x, _ = conjugate
    settings = {"methods": name, "executor": LosesWorkers(), "progressbar": False}
    with pytest.raises(pmt.exceptions.WorkerError, match="LosesWorkers lost its workers"):
        pmt.cross_check(posterior_tree(x=x), model, random_seed=1, **settings)


def test_what_is_no_executor_is_refused(conjugate):
    model, x, _ = conjugate
    with pytest.raises(pmt.exceptions.ArgumentError, match=r"concurrent\.futures\.Executor"):
        pmt.cross_check(posterior_tree(x=x), model, executor=2, progressbar=False)


def test_a_run_is_checked_without_a_model():
    idata = gaussian_run(300, random_seed=2)
    again = replace(ESTIMATORS["rts"], summary="RTS under another name.")
    with patch.dict(ESTIMATORS, {"rts": ESTIMATORS["rts"], "again": again}):
        check = pmt.cross_check(idata, methods=["rts", "again"])
    assert check.verdict == "agree"
    assert check.table["draws"].tolist() == ["run", "run"]
    assert check.table["n_evaluations"].tolist() == [0, 0]
    assert check.table.loc["rts", "log_z"] == pmt.log_marginal_likelihood(idata).log_z


def test_every_registered_method_is_run_once_and_what_fails_is_named(conjugate):
    model, x, exact = conjugate
    idata = posterior_tree(x=x)
    bounds = {
        "low": Evidence(exact - 1.0, 0.01, "low", "ok", bias_direction="below", seconds=3.0),
        "high": Evidence(exact + 1.0, 0.01, "high", "ok", bias_direction="above"),
    }
    bracket = Estimator(MODEL, lambda *given: bounds, "Two bounds.", OWN)
    extra = {"fake": fake(exact, n_evaluations=7), "bracket": bracket}
    with patch.dict(MODEL_ESTIMATORS, extra), model:
        check = pmt.cross_check(idata, random_seed=1)
    run = [name for name, entry in MODEL_ESTIMATORS.items() if entry.by_default]
    names = [*run, "fake", "low", "high"]
    assert sorted(set(check.table.index) | (set(check.left_out) - set(ESTIMATORS))) == sorted(names)
    without_draws = {name for name, row in ESTIMATORS.items() if row.reads != "reference"}
    assert without_draws <= set(check.left_out)
    order = [OWN, POSTERIOR]  # the reference first, then what is independent
    assert [order.index(draws) for draws in check.table["draws"][1:]] == sorted(
        order.index(draws) for draws in check.table["draws"][1:]
    )
    assert check.draws.verdict == "agree"
    assert check.left_out["rts"] == NO_RUN
    assert f"methods, named in .left_out ({NO_RUN})" in check.words
    assert check.words.count(NO_RUN) == 1  # a reason is said once
    assert "ti_riemann" not in check.words
    assert check.verdict == "agree"
    assert bool(check.table["agrees"].all())
    assert check.table.loc["fake", "n_evaluations"] == 7
    assert check.table.loc["low", "seconds"] == 3.0
    assert check.table.loc[["low", "high"], "n_evaluations"].isna().all()
    assert "agrees" in check._repr_html_()


def test_the_same_seed_gives_the_same_table(conjugate):
    model, x, _ = conjugate
    tables = [pmt.cross_check(posterior_tree(x=x), model, random_seed=5).table for _ in range(2)]
    columns = ["log_z", "mcse"]
    assert tables[0][columns].equals(tables[1][columns])


def test_a_disagreement_warns_and_an_alarm_of_one_method_does_not(conjugate):
    model, x, exact = conjugate
    with (
        patch.dict(MODEL_ESTIMATORS, {"fake": fake(exact + 1.0)}),
        pytest.warns(pmt.TemperingWarning, match="The estimates disagree") as caught,
    ):
        check = pmt.cross_check(
            posterior_tree(x=x), model, ["bridge_sampling", "fake"], random_seed=1
        )
    assert len(caught) == 1
    assert (check.verdict, check.believe) == ("disagree", "fake")


@pytest.mark.parametrize("kind", ["zarr", "netcdf"])
def test_it_is_stored_and_read_back(conjugate, tmp_path, kind):
    model, x, exact = conjugate
    idata = posterior_tree(x=x)
    methods = ["bridge_sampling", "fake", "silent"]
    extra = {"fake": fake(exact), "silent": fake(exact, np.inf)}
    with patch.dict(MODEL_ESTIMATORS, extra):
        check = pmt.cross_check(idata, model, methods, random_seed=1, extend_inferencedata=True)
    if kind == "zarr":
        idata.to_zarr(tmp_path / "run.zarr")
        back = xr.open_datatree(tmp_path / "run.zarr", engine="zarr")
    else:
        idata.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
        back = xr.open_datatree(tmp_path / "run.nc", engine="h5netcdf")
    for tree_ in (idata, back):
        stored = read_cross_check(tree_)
        assert stored.table.equals(check.table)
        assert repr(stored) == repr(check)
        assert (stored.verdict, stored.believe, stored.reference) == (
            check.verdict, check.believe, check.reference,
        )  # fmt: skip
        assert (stored.left_out, stored.warnings) == (check.left_out, check.warnings)
    back.close()
    bare = posterior_tree(x=x)
    pmt.cross_check(bare, model, methods[:1] * 2 + ["importance_sampling"])
    with pytest.raises(pmt.TemperingError, match="holds no cross-check"):
        read_cross_check(bare)


def test_a_missed_mode_shows_beside_a_tempered_run():
    system, _ = two_modes()
    lost = posterior_tree(x=mode_draws(np.random.default_rng(6), np.zeros((4, 500), int)))
    tempered = fake(system.log_evidence, 0.03)
    methods = ["bridge_sampling", "tempered"]
    with (
        patch.dict(MODEL_ESTIMATORS, {"tempered": tempered}),
        pytest.warns(pmt.TemperingWarning, match="have likely missed a mode"),
    ):
        check = pmt.cross_check(lost, system.model, methods, random_seed=1)
    assert check.believe == "tempered"
    assert check.table.loc["bridge_sampling", "mcse"] < 0.01


def test_bad_arguments_are_refused_before_any_work(conjugate):
    model, x, _ = conjugate
    idata = posterior_tree(x=x)
    with pytest.raises(ValueError, match=r"methods must be among .*got .*'nope'\]"):
        pmt.cross_check(idata, model, ["bridge_sampling", "nope"])
    with pytest.raises(ValueError, match="need a model"):
        pmt.cross_check(idata, None, ["bridge_sampling"])
    with pytest.raises(pmt.exceptions.NotTemperedError):
        pmt.cross_check(idata, model, ["rts"])
    with pytest.raises(pmt.TemperingError, match="no method can estimate"):
        pmt.cross_check(idata)
    with pytest.raises(pmt.exceptions.DataMismatchError, match="'z', and the model has 'x'"):
        pmt.cross_check(posterior_tree(z=x), model, ["bridge_sampling"])


def test_results_at_hand_stand_beside_those_of_the_run():
    idata = gaussian_run(300, random_seed=2)
    run = pmt.log_marginal_likelihood(idata)
    at_hand = Evidence(run.log_z + run.mcse, 0.01, "psis_vi", "unchecked", seconds=2.0)
    check = pmt.cross_check(idata, methods=["rts"], others={"fit": at_hand})
    assert list(check.table.index) == ["rts", "fit"]
    assert check.table.loc["fit", ["draws", "seconds"]].tolist() == [OWN, 2.0]
    assert check.verdict == "agree"
    with pytest.warns(pmt.TemperingWarning, match="disagree"):
        pmt.cross_check(idata, methods=["rts"], others={"fit": replace(at_hand, log_z=-99.0)})
    with pytest.raises(ValueError, match=r"others\['fit'\] must be an Evidence, not float"):
        pmt.cross_check(idata, methods=["rts"], others={"fit": 3.0})
    with pytest.raises(ValueError, match="name of a method that runs here: 'rts'"):
        pmt.cross_check(idata, methods=["rts"], others={"rts": at_hand})
