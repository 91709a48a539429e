"""Pilot, fit and trial: as long as the modes ask for, with a metric from within the modes."""

import warnings

import numpy as np
import pytest
from scipy import stats

import pymc_tempering as pmt
from pymc_tempering import HMC, testsystems
from pymc_tempering.chain.record import N_STEPS
from pymc_tempering.kernels import on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.fitted import Fitted
from pymc_tempering.references.mixture_fit import FULL_DIM, fit_mixture
from pymc_tempering.sampling import choose_plan as auto
from pymc_tempering.sampling import rounds
from pymc_tempering.sampling import trials as fitting
from pymc_tempering.sampling.setup import Options


@pytest.fixture(scope="module")
def twenty():
    return compile_model(testsystems.twenty_modes().model)


def chosen(prior, seed=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        return auto.choose_plan(
            prior, on_all(HMC(), prior.path.dim), Options(), np.random.default_rng(seed), cores=1
        )


def evaluations_a_draw(plan):
    side_run = fitting.run_beside(plan, np.random.default_rng(2), n_chains=4, n_draws=200, cores=1)
    scalars = [run.record.scalars[: run.state.n_draws, N_STEPS].sum() for run in side_run.runs]
    return sum(scalars) / 800


def test_pilot_has_tours_for_each_component_and_the_metric_is_that_of_a_mode(twenty):
    """The standard deviation within a mode is 0.1 on (0, 10), that over all modes about 3."""
    plan = chosen(twenty)
    assert plan.pilot.n_tours >= fitting.COMPONENT_TOURS * 15  # some modes may share a component
    assert plan.fitted.components.modes.n_components >= 15
    assert evaluations_a_draw(plan.plan) < 25


def test_without_the_centers_of_modes_the_metric_is_far_too_wide(twenty, monkeypatch):
    monkeypatch.setattr(Fitted, "residuals", lambda self, xs: xs)
    assert evaluations_a_draw(chosen(twenty).plan) > 40


def test_few_draws_are_joined_by_those_of_the_trial(twenty, monkeypatch):
    """A fit that stands on nothing is repeated, and the second one has draws enough."""
    sizes = []

    def spy(draws, rng, start=None):
        sizes.append(len(draws))
        return fit_mixture(draws, rng, start)

    monkeypatch.setattr(fitting, "fit_mixture", spy)
    rng = np.random.default_rng(3)
    first = fit_mixture(twenty.draw(500, twenty.spawn(rng)), rng)  # of the prior, not the posterior
    warmup, trial, steps = fitting.try_fit(
        twenty, on_all(HMC(), twenty.path.dim), first, [], Options(), rng, 1
    )
    assert 1 <= len(sizes) < fitting.MAX_TRIALS
    assert sizes[0] > 500
    assert warmup.plan.reference.components.n_components > first.n_components
    assert steps > trial.n_steps


def test_tails_are_those_of_each_component():
    rng = np.random.default_rng(4)
    normal = rng.standard_normal((2000, 1)) - 40.0
    heavy = stats.t.rvs(2, size=(2000, 1), random_state=rng) + 40.0
    modes = fit_mixture(np.concatenate([normal, np.clip(heavy, 10.0, 70.0)]), rng).modes
    left, right = modes.means[:, 0] < 0, modes.means[:, 0] > 0
    assert modes.dofs[left].min() >= 16
    assert modes.dofs[right].max() <= 8  # two, as normals of different widths


def test_a_run_that_outgrows_its_reference_is_repeated_once(monkeypatch):
    system = testsystems.gaussian_mixture(10)
    asked = []
    monkeypatch.setattr(rounds, "_outgrown", lambda chosen, runs: not asked.append(chosen))
    idata = pmt.sample(model=system.model, random_seed=5, cores=1, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert len(asked) == 1  # and not again of the second run
    assert idata["tempering"].attrs["fits"] == asked[0].fits + 1
    assert abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    assert evidence.check.verdict == "agreed"


def test_beyond_two_hundred_dimensions_the_answer_is_right_and_says_what_checked_it():
    """|z| < 4; tours from the prior may or may not come back in time."""
    system = testsystems.gaussian_posterior(FULL_DIM + 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        idata = pmt.sample(model=system.model, random_seed=0, cores=1, quiet=True)
        evidence = pmt.log_marginal_likelihood(idata)
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    assert evidence.mcse < 0.1
    assert evidence.check.verdict == ("agreed" if evidence.check.n_tours >= 100 else "unchecked")
