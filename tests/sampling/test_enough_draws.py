"""Draws that suffice: rounds go on until the least effective sample size is reached, or say so."""

import logging
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from arviz_stats.base import array_stats
from support.counted_deadline import CountedDeadline
from support.small_models import mean_only

import pymc_tempering as pmt
from pymc_tempering.evidence.result import LookCheck
from pymc_tempering.model.layout import model_layout
from pymc_tempering.sampling import finish, rounds
from pymc_tempering.sampling.call import DRAWS, MOST_GROWTH, TARGET_ESS, Goal, goal_of
from pymc_tempering.sampling.recorded import LeastEss, bulk_ess, least_ess, scalar_name

PLAIN = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
ALONE = {"reference": "prior"}


def run(model=None, **options):
    """A run, and the sentences that it warned of."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        idata = pmt.sample(model=model or mean_only(), **PLAIN | ALONE | options)
    return idata, [str(w.message) for w in record if w.category is pmt.TemperingWarning]


@pytest.fixture
def told(monkeypatch):
    """Effective sample sizes that rounds are told, one after the other, the last one for ever."""
    values, asked = [], []

    def tell(path, runs, tune, target, deadline):
        asked.append(runs[0].state.n_draws)
        ess = values.pop(0) if len(values) > 1 else values[0]
        return LeastEss("mu", ess, target)

    monkeypatch.setattr(rounds, "least_ess", tell)
    return SimpleNamespace(values=values, asked=asked)


def autoregressive(shape, rho, rng):
    x = rng.normal(size=shape)
    for i in range(1, shape[1]):
        x[:, i] = rho * x[:, i - 1] + np.sqrt(1.0 - rho**2) * x[:, i]
    return x


def test_bulk_ess_is_that_of_each_scalar_alone():
    x = np.random.default_rng(7).normal(size=(4, 100, 3))
    x[:, :, 1] = np.cumsum(x[:, :, 1], axis=1)
    theirs = [array_stats.ess(x[:, :, i], chain_axis=0, draw_axis=1) for i in range(3)]
    np.testing.assert_allclose(bulk_ess(x), theirs)
    np.testing.assert_allclose(bulk_ess(np.exp(x)), theirs)
    assert np.isnan(bulk_ess(x[:, :3])).all()


def test_when_it_is_late_it_is_that_of_the_scalars_that_there_was_time_for():
    """Planted: all of 2,000 scalars are looked at after the time is over, for some seconds."""
    x = np.random.default_rng(7).normal(size=(4, 100, 30))
    whole, part = bulk_ess(x), bulk_ess(x, CountedDeadline(most=9))
    known = np.isfinite(part)
    assert known.sum() == 10
    assert np.diff(np.flatnonzero(known)).max() <= 5  # from everywhere
    np.testing.assert_array_equal(part[known], whole[known])


def test_where_draws_are_left_open_there_are_1000_if_they_suffice():
    idata, said = run()
    assert idata.posterior.sizes["draw"] == DRAWS
    assert said == []
    attrs = idata["tempering"].attrs
    ess = array_stats.ess(idata.posterior["mu"].values, chain_axis=0, draw_axis=1)
    assert attrs["least_ess"] == pytest.approx(ess, rel=1e-9)
    assert (attrs["target_ess"], attrs["least_ess_of"]) == (TARGET_ESS, "mu")
    assert "round_least_ess" not in idata["tempering"]


def test_rounds_double_until_the_draws_suffice(told):
    told.values += [100.0, 399.0, 400.0]
    idata, said = run()
    assert told.asked == [1000, 2000, 4000]
    assert idata.posterior.sizes["draw"] == 4000
    assert idata["tempering"]["round_least_ess"].values.tolist() == [100.0, 399.0, 400.0]
    assert idata["tempering"]["round_draws"].values.tolist() == [2000, 4000, 8000]
    assert said == []


def test_a_target_out_of_reach_is_given_up_and_said_with_the_name_of_the_variable(told, caplog):
    told.values += [30.0]
    with caplog.at_level(logging.INFO):
        idata, said = run(quiet=False)
    assert told.asked == [DRAWS * n for n in (1, 2, 4, MOST_GROWTH)]
    assert idata.posterior.sizes["draw"] == MOST_GROWTH * DRAWS
    assert len(said) == 1
    assert said[0].startswith("The draws tell too little of 'mu': its effective sample size is 30,")
    assert [line for line in caplog.messages if ", least ESS 30 of 'mu', 400 wanted, " in line]


@pytest.mark.slow("repeats", quick=["none"])
@pytest.mark.parametrize(
    ("mcse", "draws"), [(0.05, 1000), (0.06, 8000), (np.inf, 1000)], ids=["right", "large", "none"]
)
def test_by_default_rounds_go_on_for_the_error_of_log_z_too(monkeypatch, mcse, draws):
    """Up to 8 times the first length; an infinite error has a cause that draws do not mend."""
    state_errors(monkeypatch, mcse)
    idata, said = run()
    assert idata.posterior.sizes["draw"] == draws
    assert said == []


@pytest.mark.parametrize("asked", [{"target_mcse": 0.1}, {"target_ess": 100.0}])
def test_who_asks_for_another_error_or_for_effective_draws_gets_these_alone(monkeypatch, asked):
    state_errors(monkeypatch, 0.06)
    assert run(**asked)[0].posterior.sizes["draw"] == DRAWS


def state_errors(monkeypatch, mcse):
    """Let each estimate of log Z state this error."""
    for name in ("rts", "estimate"):
        original = getattr(rounds, name)

        def stated(*args, original=original):
            found = original(*args)
            return type(found)(**vars(found) | {"mcse": mcse})

        monkeypatch.setattr(rounds, name, stated)


@pytest.mark.parametrize("judged", [True, False])
def test_the_target_stands_in_for_the_ess_check_of_pymc_and_for_no_other(told, caplog, judged):
    told.values += [500.0]
    model = mean_only()
    x = autoregressive((2, 400), 0.99, np.random.default_rng(5))
    slow = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), x)})})
    found = pm.stats.convergence.run_convergence_checks(slow, model)
    with (
        pytest.MonkeyPatch.context() as patch,
        caplog.at_level(logging.INFO),
    ):
        patch.setattr(finish, "run_convergence_checks", lambda *_: found)
        run(quiet=False, draws=None if judged else 100)
    of_ess = [line for line in caplog.messages if "effective sample size" in line]
    assert len(of_ess) == (0 if judged else 1)
    assert [line for line in caplog.messages if "The rhat statistic is larger" in line]


def test_a_number_of_draws_is_the_number_of_draws(told):
    told.values += [1.0]
    idata, said = run(draws=150)
    assert idata.posterior.sizes["draw"] == 150
    assert (told.asked, said) == ([], [])
    assert "least_ess" not in idata["tempering"].attrs


def test_a_target_that_was_asked_for_is_reached_from_any_length():
    idata, said = run(draws=100, target_ess=1500.0)
    ess = array_stats.ess(idata.posterior["mu"].values, chain_axis=0, draw_axis=1)
    history = idata["tempering"]["round_least_ess"].values
    assert history[-1] == pytest.approx(ess, rel=1e-9)
    assert (history[:-1] < 1500.0).all()
    assert ess >= 1500.0
    assert idata.posterior.sizes["draw"] == 100 * 2 ** (len(history) - 1) > 100 * MOST_GROWTH / 2
    assert said == []


@pytest.mark.slow("compiles models of its own")
def test_rounds_that_go_on_add_draws_and_leave_the_earlier_ones(told):
    told.values += [1.0, 500.0]
    longer, _ = run(keep="states")
    plain, _ = run(draws=1000)
    whole, _ = run(draws=2000, keep="states")
    for other in (plain, whole):
        n = other.posterior.sizes["draw"]
        np.testing.assert_array_equal(
            longer.posterior["mu"].values[:, :n], other.posterior["mu"].values
        )
    for group in ("sample_stats", "tempering_trace", "tempering_states"):
        xr.testing.assert_equal(longer[group].to_dataset(), whole[group].to_dataset())


def test_ctrl_c_in_a_later_round_says_so_and_nothing_of_targets(told, monkeypatch):
    told.values += [1.0]
    original, calls = rounds.run_to, []

    def second_is_cut_short(job, at, *more):
        original(job, replace(at, total=at.total - 100 * len(calls)), *more)
        calls.append(at.total)
        return len(calls) == 2

    monkeypatch.setattr(rounds, "run_to", second_is_cut_short)
    idata, said = run()
    assert idata.posterior.sizes["draw"] == 1900
    assert len(said) == 1
    assert said[0].startswith("Interrupted: the chains had drawn at least 1900")
    assert "least_ess" not in idata["tempering"].attrs


def test_neither_log_z_nor_its_verdict_decides(told, monkeypatch):
    told.values += [100.0, 500.0]
    original = rounds.estimate

    def scatter(chosen, runs, reference, *counts):
        found = original(chosen, runs, reference, *counts)
        check = LookCheck(
            0.0, 0.1, 100, 100, 9, 30, difference=1e6, verdict="disagreed", reasons=("far off",)
        )
        bad = {"log_z": 1e6, "mcse": np.inf, "verdict": "disagreed", "halves": (0.0, 1e9)}
        bad["check"] = check
        return type(found)(**vars(found) | bad)

    def never(*args, **kwargs):
        raise AssertionError("looks and fits are for log Z")

    monkeypatch.setattr(rounds, "estimate", scatter)
    monkeypatch.setattr(rounds, "more_looks", never)
    monkeypatch.setattr(rounds, "search_again", never)
    idata, said = run(reference="auto")
    assert told.asked == [1000, 2000]
    assert idata.posterior.sizes["draw"] == 2000
    assert said == []


def test_tuning_draws_do_not_count():
    idata, _ = run(tune=300, draws=200, target_ess=1.0, discard_tuned_samples=False)
    seen = idata.posterior["mu"].values
    assert seen.shape == (2, 200)
    ess = array_stats.ess(seen, chain_axis=0, draw_axis=1)
    assert idata["tempering"].attrs["least_ess"] == pytest.approx(ess, rel=1e-9)


def test_a_budget_bounds_the_rounds(told):
    told.values += [30.0]
    idata, said = run(max_steps=1)
    assert told.asked == [1000]
    assert idata.posterior.sizes["draw"] == 1000
    assert len(said) == 1
    assert "its effective sample size is 30" in said[0]
    _, said = run(draws=100, target_ess=1e6, max_steps=1)
    assert len(said) == 1


def test_a_target_of_log_z_asks_for_draws_too(told):
    told.values += [30.0, 500.0]
    idata, said = run(target_mcse=10.0, reference="auto")
    assert idata.posterior.sizes["draw"] == 2000
    assert said == []


GOALS = [
    ({}, (True, True, False)),
    ({"max_time": 9.0}, (True, True, False)),
    ({"target_mcse": 0.1}, (True, False, False)),
    ({"draws": 50}, (False, False, True)),
    ({"draws": 50, "max_steps": 9}, (False, False, True)),
    ({"draws": 50, "max_time": 9.0}, (False, False, True)),
    ({"draws": 50, "target_ess": 9.0}, (False, True, False)),
    ({"target_ess": 9.0, "max_time": 9.0}, (False, True, False)),
]


@pytest.mark.parametrize(("given", "is_so"), GOALS)
def test_what_an_open_number_of_draws_means(given, is_so):
    draws, goal = goal_of(**{"draws": None, **given})
    assert draws == given.get("draws", DRAWS)
    assert (goal.by_default, goal.ess_alone, goal.single) == is_so


def test_only_a_default_target_is_given_up():
    few = LeastEss("x", 3.0, 400.0)
    asked, default = Goal(target_ess=400.0), Goal(target_ess=400.0, by_default=True)
    assert asked.goes_on_for(few, 1000)
    assert default.goes_on_for(few, MOST_GROWTH / 2)
    assert not default.goes_on_for(few, MOST_GROWTH)
    assert not default.goes_on_for(LeastEss("x", 400.0, 400.0), 1)
    assert Goal(target_ess=1.0).goes_on_for(LeastEss("x", 0.0, 1.0), 1)


def test_a_bad_target_is_refused():
    with pytest.raises(ValueError, match="target_ess must be a positive number, not 0"):
        run(target_ess=0)
    with pytest.raises(ValueError, match="max_time must be a positive number, not '60 s'"):
        run(max_time="60 s")


def test_scalars_have_the_names_that_users_know():
    with pm.Model() as model:
        pm.HalfNormal("s")
        w = pm.Dirichlet("w", np.ones(3))
        pm.Normal("y", w[0], 1.0, observed=0.5)
        pm.Normal("b", shape=(2, 2))
    path = SimpleNamespace(layout=model_layout(model))
    names = [scalar_name(path, i) for i in range(path.layout.dim)]
    assert names == ["s", "w[0]", "w[1]", "b[0, 0]", "b[0, 1]", "b[1, 0]", "b[1, 1]"]


def test_the_worst_scalar_is_named():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4, 200, 3))
    x[:, :, 2] = autoregressive((4, 200), 0.95, rng)
    chains = [
        SimpleNamespace(state=SimpleNamespace(n_draws=200 - i), record=SimpleNamespace(x=x[i]))
        for i in range(4)
    ]
    layout = SimpleNamespace(label=lambda i: f"theta_log__[{i}]")
    least = least_ess(SimpleNamespace(layout=layout), chains, 7, 400.0)
    assert least.name == "theta[2]"
    assert least.ess == pytest.approx(array_stats.ess(x[:, 7:197, 2], chain_axis=0, draw_axis=1))
    assert least.short
