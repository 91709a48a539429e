"""Reference draws beside the chains: how many, which, and what becomes of them."""

import _thread
import itertools
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_tempering as pmt
from pymc_tempering.core.deadline import deadline_in
from pymc_tempering.kernels.assign import compile_with_kernels
from pymc_tempering.model.terms import find_terms
from pymc_tempering.sampling import reference_draws, rounds
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.choose_plan import choose_plan
from pymc_tempering.sampling.reference_draws import (
    MOST,
    MOST_FIXED,
    PER_DRAW,
    begin_beside,
    draw_beside,
)

DRAWS, CHAINS = 60, 2
GROUP = "tempering_reference"


@pytest.fixture(scope="module")
def model():
    """A normal mean with known log Z."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=np.array([1.0, 0.5, 2.0]))
    return model


def sampled(model, **changes):
    options = {"random_seed": 4, "quiet": True, "chains": CHAINS} | changes
    return pmt.sample(options.pop("draws", DRAWS), model=model, **options)


@pytest.fixture(scope="module")
def idata(model):
    return sampled(model)


@pytest.mark.slow("compiles models of its own")
def test_the_evidence_is_closer_than_without(idata, model):
    y = np.array([1.0, 0.5, 2.0])
    covariance = np.eye(3) + 9.0
    logdet = np.linalg.slogdet(2.0 * np.pi * covariance)[1]
    exact = -0.5 * (y @ np.linalg.solve(covariance, y) + logdet)
    found, alone = (pmt.log_marginal_likelihood(idata, method=m) for m in (None, "rts"))
    assert (found.method, alone.method) == ("pooled", "rts")
    assert abs(found.log_z - exact) < 4.0 * found.mcse
    assert found.mcse < 0.5 * alone.mcse


def test_their_number_is_frozen_by_what_was_spent_before(idata):
    work = json.loads(idata["tempering"].attrs["evaluations"])
    before = sum(n for leg, n in work.items() if leg not in ("reference_draws", "scouts"))
    n = idata[GROUP].sizes["reference_draw"]
    fixed = min(before, MOST_FIXED)
    assert work["reference_draws"] == n == fixed + PER_DRAW * DRAWS * CHAINS < MOST


@pytest.mark.slow("compiles models of its own")
def test_the_chains_are_the_same_with_and_without(idata, model):
    none, some = sampled(model, reference_draws=0), sampled(model, reference_draws=2500)
    assert GROUP not in none.children
    assert some[GROUP].sizes["reference_draw"] == 2500
    for other in (none, some):
        np.testing.assert_array_equal(other["posterior"]["mu"], idata["posterior"]["mu"])
    assert pmt.log_marginal_likelihood(none).method == "rts"
    assert GROUP not in sampled(model, keep=None).children


def test_the_draws_do_not_depend_on_cores(idata, model):
    same = sampled(model, cores=1)
    np.testing.assert_array_equal(same[GROUP]["log_ratio"], idata[GROUP]["log_ratio"])


def test_selected_draws_fall_back_on_the_run_alone(idata):
    """Of some draws the trace cannot be told; and a NaN among the draws is refused by name."""
    assert pmt.log_marginal_likelihood(idata.isel(draw=slice(10, 40))).method == "rts"
    broken = idata.copy(deep=True)
    broken[GROUP]["log_ratio"][3] = np.nan
    with pytest.raises(pmt.exceptions.NotTemperedError, match="tempering_reference"):
        pmt.log_marginal_likelihood(broken, method="pooled")


def test_they_survive_a_file(idata, tmp_path):
    idata.to_netcdf(tmp_path / "run.nc")
    with xr.open_datatree(tmp_path / "run.nc") as read:
        again = pmt.log_marginal_likelihood(read.load())
    assert again.log_z == pmt.log_marginal_likelihood(idata).log_z


def test_rounds_go_on_with_further_generators(model, monkeypatch):
    """Draws of the first round are kept, and the number grows with the chains."""
    seen = []
    estimate = rounds.estimate

    def spy(chosen, runs, reference, *counts):
        seen.append(reference)
        return estimate(chosen, runs, reference, *counts)

    monkeypatch.setattr(rounds, "estimate", spy)
    with pytest.warns(pmt.TemperingWarning):
        sampled(model, target_mcse=1e-9, max_steps=60_000)
    assert len(seen) >= 2
    for first, second in pairwise(seen):
        assert second.size > first.size
        np.testing.assert_array_equal(second[: first.size], first)


@pytest.fixture(scope="module")
def job(model):
    """What the stages of a call work with, and a plan from the prior."""
    prior, kernel = compile_with_kernels(
        model, None, 0.8, lambda line: None, terms=find_terms(model, None)
    )
    job = Job(prior, kernel, Options(reference="prior"), np.random.default_rng(2))
    return job, choose_plan(job).plan


def test_where_few_draws_would_have_weight_there_are_none(job, monkeypatch):
    plan = job[1]
    near = begin_beside(plan, None, 500, np.random.default_rng(0))
    assert near.number(100) == 500 + PER_DRAW * 100
    dear = begin_beside(plan, None, 10**6, np.random.default_rng(0))
    assert dear.number(100) == MOST_FIXED + PER_DRAW * 100
    assert dear.number(10**6) == MOST
    monkeypatch.setattr(reference_draws, "CHEAP_DIM", 0.5 * plan.reference.path.dim)
    many = begin_beside(plan, None, 10**6, np.random.default_rng(0))
    assert many.number(100) == MOST_FIXED // 2 + round(PER_DRAW / 2) * 100
    monkeypatch.setattr(reference_draws, "MIN_SHARE", 0.99)
    assert begin_beside(plan, None, 500, np.random.default_rng(0)).number(100) == 0
    assert begin_beside(plan, 70, 500, np.random.default_rng(0)).number(100) == 70


def test_a_deadline_and_ctrl_c_keep_what_there_is(job, monkeypatch):
    of, plan = job
    beside = begin_beside(plan, 50_000, 0, np.random.default_rng(0))
    late, interrupted = draw_beside(replace(of, deadline=deadline_in(-1.0)), beside, 1)
    assert (late.log_ratio.size, interrupted) == (0, False)
    draw, calls = reference_draws.draw_log_ratio, itertools.count(1)

    def interrupting(*args):
        call = next(calls)  # of one thread alone, whatever the others do meanwhile
        if call == 3:
            _thread.interrupt_main()
        if call >= 3:
            args[3].wait(5.0)  # until all are told to stop
        return draw(*args)

    monkeypatch.setattr(reference_draws, "draw_log_ratio", interrupting)
    some, interrupted = draw_beside(of, beside, 1)
    assert interrupted
    assert 2 * reference_draws.CHUNK <= some.log_ratio.size < 50_000


def test_zero_likelihood_is_minus_infinity(job, monkeypatch):
    plan = job[1]
    values = np.zeros(4), np.array([1.0, np.nan, np.inf, -np.inf])
    monkeypatch.setattr(reference_draws, "evaluate_draws", lambda *args: values)
    found, n_undefined = reference_draws.draw_log_ratio(plan.reference, 4, np.random.default_rng(0))
    assert n_undefined == 2
    np.testing.assert_array_equal(found, [1.0, -np.inf, -np.inf, -np.inf])


@pytest.mark.parametrize("number", [-1, 2.5, "many"])
def test_odd_numbers_are_refused(model, number):
    with pytest.raises(ValueError, match="reference_draws must be a whole number"):
        sampled(model, reference_draws=number)
