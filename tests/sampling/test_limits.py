"""`max_time` is asked in all that a call does, and what it has ended is said with what it needs.

Deadlines that are late after a number of looks, and clocks that stand still, make no test hang on
how fast a machine is.
"""

import sys
import threading
import warnings
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from support.compiled_systems import prior as compiled, system
from support.counted_deadline import CountedDeadline
from support.searches import job_of
from support.small_models import mean_only

import pymc_tempering as pmt
from pymc_tempering.core import threads
from pymc_tempering.core.deadline import NEVER, PAST, Cut, Deadline, deadline_in
from pymc_tempering.evidence.rts import rts
from pymc_tempering.exceptions import TimeLimitError
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.references import compile as compiling
from pymc_tempering.references.compile import N_CHECK, check_reference
from pymc_tempering.sampling import (
    choose_plan as plans,
    finish,
    fit_reference,
    precompile,
    reference_draws,
    rounds,
)
from pymc_tempering.sampling.call import Goal, Job, Options
from pymc_tempering.sampling.choose_plan import warm_up_prior
from pymc_tempering.sampling.finish import cuts_of, warn_of_run
from pymc_tempering.sampling.recorded import LeastEss, cycles_of, pace_of
from pymc_tempering.sampling.reference_draws import N_TRIAL, begin_beside, draw_beside
from pymc_tempering.sampling.rounds import Outcome, cut_of

QUIET = {"quiet": True, "random_seed": 1, "chains": 2, "cores": 1}


@pytest.fixture
def smallest_pieces(monkeypatch):
    """One thing between two looks at the clock."""
    monkeypatch.setattr(threads, "STEP_SECONDS", 0.0)


@pytest.fixture
def clock(monkeypatch):
    """A clock of deadlines that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr("pymc_tempering.core.deadline.perf_counter", lambda: now[0])
    return now


@pytest.fixture(scope="module")
def job():
    of = compiled("gaussian")
    return Job(of, on_all(HMC(), of.path.dim), Options(reference="prior"), np.random.default_rng(1))


@pytest.fixture(scope="module")
def warmup(job):
    return warm_up_prior(job)


def few(ess, target=400.0):
    return LeastEss("x", ess, target)


FIRST = 1000
DEFAULT = Goal(target_ess=400.0, by_default=True)
CUTS = [
    # goal, draws, what was found, and the number of draws that would have done
    (Goal(), 312, {}, 1000),
    (Goal(), 1000, {}, None),
    (Goal(max_steps=5), 999, {}, 1000),
    (DEFAULT, 312, {"least": few(500.0)}, 1000),
    (DEFAULT, 312, {"least": few(100.0)}, 2000),
    (DEFAULT, 1500, {"least": few(300.0)}, 2000),
    (DEFAULT, 1500, {"least": few(1.0)}, 8000),
    (DEFAULT, 1500, {"least": few(0.0)}, 8000),
    (DEFAULT, 8000, {"least": few(30.0)}, None),
    (DEFAULT, 1500, {"least": few(450.0)}, None),
    (Goal(target_ess=400.0), 4000, {"least": few(30.0)}, 64_000),
    (Goal(target_ess=400.0), 4000, {"least": few(0.0)}, np.inf),
    (Goal(target_mcse=0.01), 4000, {"mcse": 0.02}, 16_000),
    (Goal(target_mcse=0.01), 4000, {"mcse": 0.005}, None),
    (Goal(target_mcse=0.01), 4000, {"mcse": np.inf}, np.inf),
    (Goal(target_mcse=0.01), 4000, {"mcse": 0.01, "least": few(390.0)}, 8000),
]


@pytest.mark.parametrize(("goal", "drawn", "found", "wanted"), CUTS)
def test_a_run_that_time_has_ended_says_what_it_would_have_needed(
    clock, goal, drawn, found, wanted
):
    """At 0.1 s for each draw of all chains, in a call that began 60 s ago."""
    over = Deadline(40.0, 100.0)
    cut = cut_of(over, goal, FIRST, drawn, 0.1, **found)
    assert cut_of(Deadline(40.0, 101.0), goal, FIRST, drawn, 0.1, **found) is None
    if wanted is None:
        assert cut is None
    elif np.isinf(wanted):
        assert cut.place == f"at {drawn} draws"
        assert np.isnan(cut.needed)
    else:
        about = "" if wanted == FIRST else "about "
        assert cut.place == f"at {drawn} of {about}{wanted} draws"
        assert cut.needed == pytest.approx(60.0 + 0.1 * (wanted - drawn))


def test_the_pace_is_that_of_all_chains_together():
    """Where cores are few some chains wait, and the shortest tells nothing of the pace."""
    chains = [SimpleNamespace(state=SimpleNamespace(n_draws=n)) for n in (50, 50, 8, 8)]
    assert pace_of(10.0, chains, 16) == pytest.approx(10.0 / 25.0)
    assert np.isnan(pace_of(10.0, chains, 116))
    assert pace_of(10.0, chains, 116, 0.3) == 0.3  # that of the round before


def outcome_of(warmup, *, passes=None, last=None, draws=50, **kwargs):
    chosen = plans.ChosenPlan(
        warmup.plan, warmup, passes=passes, last=last, needed=100, fits=2,
        seconds={"annealed_pass": 3.0, "fit": 1.0, "search": 8.0},
    )  # fmt: skip
    chain = SimpleNamespace(state=SimpleNamespace(n_draws=draws), faults=(), hangs="")
    return Outcome(chosen, [chain], **kwargs)


def test_all_that_was_ended_is_one_warning(warmup):
    late = replace(
        warmup, annealed=replace(warmup.annealed, cut=Cut("the annealed pass", "early", 90.0)),
        cut=Cut("the learning of the weights", "after round 1", 70.0),
    )  # fmt: skip
    outcome = outcome_of(late, cut=Cut("the run", "at 50 of 1000 draws", 300.0))
    with pytest.warns(pmt.TemperingWarning) as said:
        warn_of_run(outcome, cuts_of(outcome, searched=True), 1000)
    assert [str(one.message) for one in said] == [
        "max_time ended the annealed pass early, the learning of the weights after round 1 and the "
        "run at 50 of 1000 draws; at least about 300 s would have been needed."
    ]
    for tune, draws in ((50, 50), (0, 0)):
        none = outcome_of(late, cut=outcome.cut, draws=draws)
        with pytest.raises(TimeLimitError, match=r"^max_time=60 was over before the first dra"):
            warn_of_run(none, cuts_of(none, searched=True), 1000, tune=tune, max_time=60.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_run(outcome_of(warmup), cuts_of(outcome_of(warmup), searched=True), 1000)


def test_a_search_that_was_ended_is_named(warmup, monkeypatch):
    monkeypatch.setattr(plans.ChosenPlan, "fitted", "a reference")
    cut = Cut("the annealed pass", "early", 9.0)
    other = Cut("the annealed pass", "later", 99.0)

    def said(**kwargs):
        return cuts_of(outcome_of(warmup, **kwargs), searched=True)

    whole = SimpleNamespace(complete=True, each=[SimpleNamespace(cut=None)])
    short = SimpleNamespace(
        complete=False, each=[SimpleNamespace(cut=c) for c in (None, cut, other)]
    )
    [search] = said(passes=whole)
    assert (search.stage, search.place) == ("the search for unknown modes", "after round 2")
    assert search.needed == pytest.approx((3.0 + 1.0 + 8.0 + 4.0) / 0.6)
    ended, search = said(passes=short)
    assert ended is other
    assert (search.place, np.isnan(search.needed)) == ("before it began", True)
    assert said(passes=whole, last="a round") == []
    assert cuts_of(outcome_of(warmup, passes=whole), searched=False) == []


def test_a_run_of_which_nothing_comes_back_ends_all_the_same(job, monkeypatch):
    """Planted: chains that never have a draw were run on and on."""
    asked = []

    def nothing(plan, runs, goal, *, pause, **kwargs):
        asked.append(goal)
        assert len(asked) < 100
        assert any(pause() for _ in range(10_000))
        return False

    monkeypatch.setattr(rounds, "run_chains", nothing)
    chains = [SimpleNamespace(state=SimpleNamespace(n_draws=0))] * 2
    bar = nullcontext(SimpleNamespace(update=lambda: None))
    chosen = SimpleNamespace(plan=SimpleNamespace(ladder=None))
    for deadline in (CountedDeadline(most=200), PAST):
        asked.clear()
        monkeypatch.setattr(rounds, "LAST_SECONDS", 0.0)
        late = replace(job, deadline=deadline, cores=1)
        at = Outcome(chosen, chains, total=1000)
        assert not rounds.run_to(late, at, lambda *_: bar, rounds.Recorder())
        assert len(asked) == 1


def test_a_trial_run_without_a_draw_is_an_error(warmup, monkeypatch):
    def nothing(*args, pause, **kwargs):
        assert pause()
        return False

    monkeypatch.setattr(fit_reference, "run_chains", nothing)
    monkeypatch.setattr(fit_reference, "N_TRIAL_CHAINS", 3)
    late = job_of("gaussian", deadline=CountedDeadline())
    with pytest.raises(TimeLimitError, match=r"before one of 3 chains .* on \d+ rungs"):
        fit_reference.trial_run(late, warmup.plan)


def test_a_trial_run_has_the_chains_that_have_draws(warmup, monkeypatch):
    original = fit_reference.run_chains

    def one_alone(plan, runs, *args, **kwargs):
        return original(plan, runs[1:], *args, **kwargs)

    monkeypatch.setattr(fit_reference, "run_chains", one_alone)
    monkeypatch.setattr(fit_reference, "N_TRIAL_CHAINS", 2)
    monkeypatch.setattr(fit_reference, "TRIAL_DRAWS", 200)
    runs = fit_reference.trial_run(job_of("gaussian"), warmup.plan)
    assert len(runs) == 1
    evidence = rts(cycles_of(warmup.plan, runs))
    assert abs(evidence.log_z - system("gaussian").log_evidence) < 1.0


@pytest.fixture
def evaluated(monkeypatch):
    """Numbers of reference draws that were evaluated at once."""
    out, original = [], reference_draws.evaluate_draws

    def counting(path, xs, *args):
        out.append(len(xs))
        return original(path, xs, *args)

    monkeypatch.setattr(reference_draws, "evaluate_draws", counting)
    return out


def test_reference_draws_end_within_a_chunk(job, warmup, smallest_pieces, evaluated):
    """Planted: chunks of 2,000 that are evaluated whole, whatever the clock says."""
    late = replace(job, deadline=CountedDeadline(most=300))
    beside, interrupted = draw_beside(late, begin_beside(warmup.plan, 5000, 0, job.rng), 1)
    assert not interrupted
    assert sum(evaluated) == beside.log_ratio.size
    assert 100 < beside.log_ratio.size <= 300
    found = []
    for deadline in (NEVER, deadline_in(1e6)):
        beside = begin_beside(warmup.plan, 5000, 0, np.random.default_rng(7))
        whole, _ = draw_beside(replace(job, deadline=deadline), beside, 1)
        found.append(whole.log_ratio)
    assert found[0].size == 5000
    np.testing.assert_array_equal(*found)


def test_without_time_for_the_trial_draws_there_are_no_others(
    job, warmup, smallest_pieces, evaluated
):
    short = begin_beside(warmup.plan, None, 500, job.rng, CountedDeadline(most=20))
    assert short.most == 0
    assert sum(evaluated) < 22
    assert begin_beside(warmup.plan, None, 500, job.rng, deadline_in(1e6)).most > 0
    assert sum(evaluated[22:]) <= N_TRIAL


def test_draws_of_the_reference_stop_when_they_are_told(warmup):
    stop = threading.Event()
    stop.set()
    found, n = reference_draws.draw_log_ratio(
        warmup.plan.reference, 10, np.random.default_rng(0), stop, deadline_in(1e6)
    )
    assert (found.size, n) == (0, 0)


@pytest.fixture
def checked(monkeypatch):
    """Draws that the check of a model has evaluated."""
    out, original = [], compiling.evaluate_rows

    def counting(density, xs, *args):
        out.append(len(xs))
        return original(density, xs, *args)

    monkeypatch.setattr(compiling, "evaluate_rows", counting)
    return out


def test_the_check_of_a_model_ends_with_its_time(smallest_pieces, checked):
    """Planted: all 1,000 draws are evaluated at once."""
    with pytest.warns(pmt.TemperingWarning, match=r"check the model at 31 of 1000 draws .* need"):
        check_reference(compiled("gaussian"), CountedDeadline(most=30))
    assert sum(checked) == 31
    checked.clear()
    check_reference(compiled("gaussian"), deadline_in(1e6))
    assert sum(checked) == N_CHECK
    checked.clear()
    check_reference(compiled("gaussian"))
    assert checked == [N_CHECK]


def test_few_draws_are_held_against_a_model_beyond_their_noise_alone():
    exceeds = compiling._exceeds
    some = np.arange(20) < 2
    assert exceeds(some, 0.05, True)
    assert not exceeds(some, 0.05, False)
    assert exceeds(np.arange(20) < 12, 0.05, False)


@pytest.mark.slow("compiles models of its own")
def test_few_draws_without_likelihood_do_not_refuse_a_model(smallest_pieces):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("far", pm.math.switch(x > 2.0, 0.0, -np.inf))
    from pymc_tempering.references.compile import compile_model

    prior = compile_model(model)  # 2 % of the draws have a likelihood
    with pytest.warns(pmt.TemperingWarning, match="check the model at 6 of 1000"):
        check_reference(prior, CountedDeadline(most=5))


@pytest.mark.parametrize(("most", "share"), [(0, "100.0%"), (3, "25.0%")])
def test_the_terms_to_blame_are_looked_at_no_longer_than_the_time(most, share):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("lost", pm.math.switch(x > 0.0, np.nan, 0.0))
    from pymc_tempering.model.path import compile_path

    states = np.array([[1.0], [-1.0], [-1.0], [-1.0], [1.0], [1.0]])
    words = compiling._blame(compile_path(model), states, CountedDeadline(most=most))
    assert words == f"'lost' ({share} of them)"


@pytest.mark.slow("compiles models of its own")
def test_the_run_for_the_prior_alone_has_its_part_of_the_time(monkeypatch):
    """Its plan has a part of that part; what ends it is said under its name."""
    seen, said = {}, Cut("the run", "at 3 of 50 draws", 44.0)
    model = mean_only()
    with model:
        pm.Potential("pull", -0.5 * (model["mu"] - 1.0) ** 2)
    choose, go = precompile.choose_plan, precompile.run_rounds

    def choosing(job):
        seen["plan"] = job.deadline
        return choose(job)

    def running(job, *args, **kwargs):
        seen["run"] = job.deadline
        return replace(go(job, *args, **kwargs), cut=said)

    monkeypatch.setattr(precompile, "choose_plan", choosing)
    monkeypatch.setattr(precompile, "run_rounds", running)
    options = {"tempered": ["y"], "reference": "prior", "max_time": 600.0}
    with pytest.warns(pmt.TemperingWarning, match=r"Normalizing the prior: max_time ended the run"):
        pmt.sample(50, model=model, **QUIET | options)
    whole = seen["run"].at - seen["run"].began
    assert whole == pytest.approx(600.0 * 0.6 * 0.5)
    assert seen["plan"].at - seen["plan"].began == pytest.approx(0.6 * whole)
    assert seen["run"].share == pytest.approx(0.3)

    def nothing(job, *args, **kwargs):
        found = go(job, *args, **kwargs)
        none = [SimpleNamespace(state=SimpleNamespace(n_draws=0))] * 2
        return replace(found, runs=none, cut=said)

    monkeypatch.setattr(precompile, "run_rounds", nothing)
    with pytest.raises(TimeLimitError, match=r"Normalizing the prior: no chain .*at 3 of 50"):
        pmt.sample(50, model=model, **QUIET | options)


def test_compiling_for_the_prior_alone_does_not_count(monkeypatch):
    """The clock starts after it."""
    from pymc_tempering.sampling import sample as front

    order = []
    alone, clock = front.compile_prior_alone, front.deadline_in
    monkeypatch.setattr(
        front, "compile_prior_alone", lambda *a: order.append("compiled") or alone(*a)
    )
    monkeypatch.setattr(front, "deadline_in", lambda s: order.append("clock") or clock(s))
    pmt.sample(20, model=mean_only(), **QUIET | {"reference": "prior", "keep": None})
    assert order == ["compiled", "clock"]


@pytest.mark.parametrize("target", [{}, {"draws": 100}, {"target_mcse": 0.01}])
def test_where_the_chains_have_no_draw_it_is_an_error(monkeypatch, target):
    """Planted: an estimate from the chains, which have none."""
    monkeypatch.setattr(rounds, "run_to", lambda *args: False)
    options = {"reference": "prior", "max_time": 1e-3, "model": mean_only()}
    over = pytest.raises(TimeLimitError, match=r"max_time=0.001 was over .* 0 of 1\d+ draws")
    with over, warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)  # of the check, which has 0.1 ms
        pmt.sample(**QUIET | options | target)


@pytest.mark.slow("compiles models of its own", quick=["300"])
@pytest.mark.parametrize("most", [300, 600, 1200])
def test_a_call_ends_wherever_it_is_late(smallest_pieces, monkeypatch, most):
    """All stages of a call, with a deadline that is late after so many looks.

    Planted: a loop that does not ask, and goes on until all is done.
    """
    from pymc_tempering.sampling import sample as front

    counted = CountedDeadline(began=0.0, most=most)
    monkeypatch.setattr(rounds, "LAST_SECONDS", 0.0)
    monkeypatch.setattr(front, "deadline_in", lambda seconds: counted)
    said = []
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            pmt.sample(model=mean_only(), max_time=60.0, **QUIET | {"reference": "prior"})
        except TimeLimitError as error:
            said.append(str(error))
    said += [str(one.message) for one in record]
    assert any("max_time ended" in one for one in said)
    assert len(counted.looks) < most + 100


@pytest.mark.slow("compiles models of its own")
def test_checks_of_all_variables_are_left_out_long_after_the_time(monkeypatch):
    """They take as long as the run in thousands of dimensions."""
    seen, close = [], finish.close

    def closing(*args, convergence_checks, **kwargs):
        seen.append(convergence_checks)
        return close(*args, convergence_checks=convergence_checks, **kwargs)

    monkeypatch.setattr(finish, "close", closing)
    for share in (1e-9, 1.0):
        monkeypatch.setattr(finish, "LAST_SHARE", share)
        for limit in (None, 600.0):
            options = {"reference": "prior", "max_time": limit}
            pmt.sample(300, model=mean_only(), **QUIET | options)
    assert seen == [True, False, True, True]


def test_draws_that_are_added_stop_with_the_time(monkeypatch):
    model = mean_only()
    idata = pmt.sample(200, model=model, **QUIET | {"reference": "prior"})
    with pytest.warns(pmt.TemperingWarning, match=r"max_time ended the run at \d+ of 1000000 draw"):
        more = pmt.extend(idata, draws=10**6, model=model, max_time=0.3, cores=1, quiet=True)
    assert 200 < more.posterior.sizes["draw"] < 10**6
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["pymc_tempering.sampling.restart"], "run_to", lambda *args: False)
        with pytest.raises(TimeLimitError, match="before the first new draw"):
            pmt.extend(idata, draws=10**6, model=model, max_time=1e-9, cores=1, quiet=True)
    plain = pmt.extend(idata, draws=60, model=model, quiet=True)
    timely = pmt.extend(idata, draws=60, model=model, max_time=600.0, quiet=True)
    np.testing.assert_array_equal(plain.posterior["mu"].values, timely.posterior["mu"].values)
    with pytest.raises(ValueError, match="max_time must be a positive number"):
        pmt.extend(idata, draws=10, model=model, max_time=-1.0, quiet=True)
