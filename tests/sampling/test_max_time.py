"""`max_time` bounds the whole call: the search, the chains, and what they say of it."""

import json
import os
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest
from support.compiled_systems import prior, system
from support.side_runs import run_beside

import pymc_tempering as pmt
from pymc_tempering.core.deadline import NEVER, PAST, Deadline, deadline_in
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.sampling import choose_plan as auto, finish, rounds, sample as front
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.choose_plan import warm_up_prior

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
ENDED = r"max_time ended .*the run at .* of 1000000 draws; .*about .* would have been"
GENEROUS = 20.0
"""Seconds for a call of two, on a busy machine."""


def run(draws=10**6, name="gaussian", **kwargs):
    return pmt.sample(draws, model=system(name).model, random_seed=1, keep=None, **QUIET | kwargs)


@cache
def warmed_up():
    """Compile what the timed calls use."""
    return run(20)


@pytest.fixture
def outcomes(monkeypatch):
    """What the rounds came to."""
    out, original = [], front.run_rounds
    monkeypatch.setattr(
        front, "run_rounds", lambda *args, **kw: out.append(original(*args, **kw)) or out[-1]
    )
    return out


@pytest.fixture
def seconds(monkeypatch):
    """From the call of `sample` until its chains have stopped; the DataTree takes its own time."""
    out, begun, original = [], perf_counter(), finish.build_datatree

    def building(*args, **kwargs):
        out.append(perf_counter() - begun)
        return original(*args, **kwargs)

    monkeypatch.setattr(finish, "build_datatree", building)
    return out


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("cores", [1, 4])
def test_the_call_comes_back_with_chains_of_like_length(outcomes, seconds, cores):
    with pytest.warns(pmt.TemperingWarning, match=ENDED):
        idata = run(max_time=1.0, cores=cores)
    outcome = outcomes[-1]
    assert seconds[0] < GENEROUS
    lengths = np.array([chain.state.n_draws for chain in outcome.runs])
    assert lengths.min() > 0
    if cores == 1:
        assert lengths.max() <= rounds.PART_GROWTH * lengths.min() + rounds.FIRST_PART
    assert idata.posterior.sizes["draw"] >= lengths.min() > 10
    assert np.isfinite(idata.posterior["x"].values).all()
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(evidence.log_z - system("gaussian").log_evidence) < 4 * evidence.mcse
    assert evidence.check.verdict == "agreed"


@pytest.mark.parametrize(
    ("deadline", "cores", "parts"),
    [(deadline_in(1e6), 1, True), (deadline_in(1e6), 4, False), (NEVER, 1, False)],
)
def test_chains_that_wait_for_a_core_take_turns_in_growing_parts(
    monkeypatch, deadline, cores, parts
):
    goals = []
    monkeypatch.setattr(
        rounds, "run_chains", lambda plan, runs, goal, **kwargs: bool(goals.append(goal))
    )
    chosen = SimpleNamespace(plan=SimpleNamespace(ladder=None))
    job = SimpleNamespace(deadline=deadline, cores=cores, crew=None, report=lambda at: None)
    at = rounds.Outcome(chosen, [None] * 4, total=10_000)
    assert not rounds.run_to(job, at, lambda *_: None, rounds.Recorder())
    assert goals[-1] == 10_000
    assert (len(goals) > 1) == parts
    growth = np.array(goals[1:]) / goals[:-1]
    assert (growth <= rounds.PART_GROWTH + 1 / rounds.FIRST_PART).all()
    assert goals[0] <= (rounds.FIRST_PART if parts else 10_000)


def test_a_short_run_in_good_time_is_as_without_it_and_says_nothing():
    kwargs = {"chains": 2, "cores": 1, "reference": "prior"}
    usual, bounded = run(200, **kwargs), run(200, max_time=600.0, max_steps=1, **kwargs)
    np.testing.assert_array_equal(usual.posterior["x"].values, bounded.posterior["x"].values)
    assert "round" not in bounded["tempering"].sizes


@pytest.mark.slow("compiles models of its own")
def test_a_limit_is_not_used_up():
    """Planted in `Goal.single`: rounds that double until the time is over."""
    asked, left_open = run(500, max_time=60.0), run(None, max_time=60.0)
    assert asked.posterior.sizes["draw"] == 500
    assert left_open.posterior.sizes["draw"] == 1000
    assert left_open["tempering"].attrs["least_ess"] >= 400.0
    for idata in (asked, left_open):
        seconds = json.loads(idata["tempering"].attrs["seconds"])
        assert sum(seconds.values()) - seconds["compiling"] < GENEROUS


def test_a_target_is_met_before_the_time_is_over():
    idata = run(300, target_mcse=0.02, max_time=60.0, cores=1)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.mcse <= 0.02
    assert idata["tempering"]["round_seconds"].values[-1] < 60.0


@pytest.mark.slow("compiles models of its own")
def test_a_target_out_of_reach_is_said_to_be_missed():
    begun = perf_counter()
    with (
        pytest.warns(pmt.TemperingWarning, match=r"budget ended before .* mcse is"),
        pytest.warns(pmt.TemperingWarning, match=r"of about \S+ draws; .*about .* hours would"),
    ):
        idata = run(100, target_mcse=1e-7, max_time=1.5, cores=1)
    assert perf_counter() - begun < GENEROUS
    assert idata["tempering"].sizes["round"] >= 1


def test_the_plan_has_a_part_of_the_time_and_the_chains_the_rest(monkeypatch):
    seen = {}
    choose, go = front.choose_plan, front.run_rounds

    def choosing(job):
        seen["plan"] = job.deadline
        return choose(job)

    def running(job, *args, **kwargs):
        seen["chains"] = job.deadline
        return go(job, *args, **kwargs)

    monkeypatch.setattr(front, "choose_plan", choosing)
    monkeypatch.setattr(front, "run_rounds", running)
    with pytest.warns(pmt.TemperingWarning, match="max_time ended"):
        run(max_time=0.5, cores=4)
    whole = seen["plan"].at - seen["plan"].began
    assert whole == pytest.approx(0.5 * front.PLAN_SHARE)
    assert seen["chains"].began == seen["plan"].began
    assert seen["chains"].at >= seen["plan"].began + 0.5


def test_where_the_plan_has_eaten_all_the_time_each_chain_still_has_draws(monkeypatch):
    def slow(job):
        while not job.deadline.late:
            pass
        return auto.choose_plan(job)

    warmed_up()
    monkeypatch.setattr(front, "choose_plan", slow)
    with (
        pytest.warns(pmt.TemperingWarning, match="max_time ended"),
        pytest.warns(pmt.TemperingWarning, match="verdict of this run is 'unchecked'"),
    ):
        idata = run(max_time=0.2, cores=1)
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert idata.posterior.sizes["draw"] >= 4


def warm_up_until(deadline, seed=1):
    of, kernel = prior("two_modes"), on_all(HMC(), 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        return warm_up_prior(
            Job(of, kernel, Options(), np.random.default_rng(seed), deadline=deadline)
        )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_warm_up_from_the_prior_that_is_late_hurries_and_still_serves(seed):
    now = perf_counter()
    whole, late = (warm_up_until(by, seed) for by in (NEVER, Deadline(now - 1e6, now)))
    assert whole.annealed.complete
    assert not late.annealed.complete
    assert late.annealed.n_evaluations < 0.75 * whole.annealed.n_evaluations
    assert len(late.rounds) == 1
    leg = run_beside(late.plan, np.random.default_rng(seed), n_chains=4, n_draws=500, cores=1)
    evidence = leg.evidence
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - system("two_modes").log_evidence) < 4 * evidence.mcse < 1.2


def test_a_warm_up_from_the_prior_ends_with_its_overtime():
    late = warm_up_until(PAST)
    assert not late.annealed.complete
    assert late.annealed.betas.tolist() == [0.0, 1.0]
    assert len(late.rounds) == 1


def test_a_warm_up_from_the_prior_in_good_time_is_as_without_a_limit():
    whole, timely = (warm_up_until(deadline) for deadline in (NEVER, deadline_in(600.0)))
    np.testing.assert_array_equal(timely.plan.ladder.log_z, whole.plan.ladder.log_z)
    assert timely.annealed.complete


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_no_time_is_refused(value):
    with pytest.raises(ValueError, match="max_time must be a positive number"):
        run(10, max_time=value)


FIRST_USES = """
import json
import pymc as pm, pymc_tempering as pmt
from pymc_tempering.chain import loop, particles
from pymc_tempering.sampling import finish
from pymc_tempering.sampling import sample as front
from pymc_tempering.warmup import log_z_rounds

LOOPS = (loop.run, particles.sweep_states, particles.carry_states, log_z_rounds.adapt)
used = []

def note():
    used.append([f.py_func.__name__ for f in LOOPS if f.signatures])

def deadline_in(seconds, original=front.deadline_in):
    note()
    return original(seconds)

front.deadline_in = deadline_in
with pm.Model():
    mu = pm.Normal("mu")
    pm.Normal("y", mu, 0.5, observed=[1.0, 2.0])
    pmt.sample(
        50, chains=1, cores=1, random_seed=1, max_time=600.0, quiet=True,
        compute_convergence_checks=False, **OPTIONS,
    )
note()
print(json.dumps([used[0], used[-1]]))
"""


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(
    ("options", "loops"),
    [
        ({"weight_adaptation": "sams"}, {"run", "sweep_states", "carry_states", "adapt"}),
        ({"reference": "prior"}, {"run", "sweep_states"}),
    ],
    ids=["sams", "prior"],
)
def test_the_clock_starts_when_the_loops_are_compiled(options, loops):
    done = subprocess.run(
        [sys.executable, "-c", f"OPTIONS = {options}\n{FIRST_USES}"],
        env=os.environ | {"PYTHONPATH": str(Path(pmt.__file__).parents[1])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert set(before) == set(after) == loops
