"""Fits to draws of the reference itself, or of trials where it is far; metrics of single modes."""

import json
import warnings

import numpy as np
import pytest
from scipy import stats
from support.compiled_systems import prior as compiled, system
from support.side_runs import run_beside

import pymc_tempering as pmt
from pymc_tempering import testsystems
from pymc_tempering.core.deadline import NEVER, PAST, Deadline
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.mixture_fit import FULL_DIM, fit_mixture
from pymc_tempering.references.prior import Fitted
from pymc_tempering.sampling import choose_plan as auto, fit_reference as fitting, rounds
from pymc_tempering.sampling.call import Job, Options, Tally
from pymc_tempering.sampling.effort import Effort
from pymc_tempering.sampling.evaluated import evaluate_states


@pytest.fixture(scope="module")
def twenty():
    return compile_model(testsystems.twenty_modes().model)


def chosen(prior, seed=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        return auto.choose_plan(
            Job(prior, on_all(HMC(), prior.path.dim), Options(), np.random.default_rng(seed))
        )


def evaluations_a_draw(plan):
    return (
        run_beside(plan, np.random.default_rng(2), n_chains=4, n_draws=200, cores=1).n_steps / 800
    )


def fit_from(prior, draws, seed=3, **kwargs):
    """Fit to draws that the caller made up, and improve the fit."""
    rng = np.random.default_rng(seed)
    job = Job(prior, on_all(HMC(), prior.path.dim), Options(), rng, **kwargs)
    return fitting.fit_reference(job, fit_mixture(draws, rng), draws)


@pytest.fixture
def sizes(monkeypatch):
    """Numbers of draws that fits after the first one had."""
    out = []

    def spy(draws, *args, **kwargs):
        out.append(len(draws))
        return fit_mixture(draws, *args, **kwargs)

    monkeypatch.setattr(fitting, "fit_mixture", spy)
    return out


@pytest.mark.slow("compiles models of its own")
def test_every_mode_has_its_component_and_the_metric_is_that_of_a_mode(twenty):
    """The standard deviation within a mode is 0.1 on (0, 10), that over all modes about 3."""
    plan = chosen(twenty)
    assert plan.fitted.components.modes.n_components >= 15  # some modes may share a component
    assert evaluations_a_draw(plan.plan) < 25


@pytest.mark.slow("compiles models of its own")
def test_without_the_centers_of_modes_the_metric_is_far_too_wide(twenty, monkeypatch):
    def of_all(self):
        return np.cov(self.components.draw(4000, np.random.default_rng(1)).T)

    monkeypatch.setattr(Fitted, "covariance", property(of_all))
    assert evaluations_a_draw(chosen(twenty).plan) > 30


def near_modes(n, shares=(0.65, 0.35), seed=0):
    """Draws as from the posterior of `two_modes`."""
    rng, two = np.random.default_rng(seed), system("two_modes")
    which = rng.choice(2, n, p=shares)
    return two.mode_centers[which] + 0.5 * rng.standard_normal((n, two.dim))


def test_draws_of_a_near_reference_are_taken_until_one_fit_has_enough(sizes):
    """Two components in ten dimensions ask for 1320 draws, with a hull 1980; 300 are seen."""
    tally = Tally()
    fit = fit_from(compiled("two_modes"), near_modes(300), tally=tally)
    assert fitting.draws_needed(fit.components.modes) == 10 * 2 * 11 * 12 // 2
    assert sizes == [fit.draws.n]  # without those that were seen
    assert 1980 <= fit.draws.n < 1980 + Effort().proposed
    assert fit.near
    assert fit.trial is None
    gradients = tally.work["fit"] % Effort().proposed
    assert 200 < gradients <= 500


def test_seen_draws_count_until_there_are_enough_of_the_reference(sizes, monkeypatch):
    monkeypatch.setattr(fitting, "MAX_BATCHES", 1)
    monkeypatch.setattr(fitting, "NEAR_SHARE", 0.99)
    fit = fit_from(compiled("two_modes"), near_modes(300))
    assert 300 < sizes[0] <= 300 + Effort().proposed
    assert len(sizes) == fitting.MAX_PROPOSALS
    assert fit.near


def test_a_fit_is_not_made_to_draws_worth_less_than_the_dimensions_need(sizes, monkeypatch):
    """Where it would make the reference worse, a trial run gives the draws."""
    monkeypatch.setattr(fitting, "BY_DIM", 10**3)
    assert not fit_from(compiled("two_modes"), near_modes(300)).near
    assert min(sizes) > fitting.N_TRIAL_CHAINS * fitting.TRIAL_DRAWS / 2


def test_weighted_draws_mend_the_shares_and_tell_log_z():
    """Draws that have the shares the wrong way round; the error of a share of 1000 is 0.015."""
    two = system("two_modes")
    fit = fit_from(compiled("two_modes"), near_modes(600, shares=(0.2, 0.8)))
    distance = ((fit.draws.xs[:, None] - two.mode_centers) ** 2).sum(axis=2)
    assert (distance.argmin(axis=1) == 0).mean() == pytest.approx(0.65, abs=0.06)
    assert fit.log_z == pytest.approx(two.log_evidence, abs=0.15)
    again = evaluate_states(compiled("two_modes"), fit.draws.xs)
    np.testing.assert_array_equal(again.log_target, fit.draws.log_target)


@pytest.mark.slow("compiles models of its own")
def test_where_the_reference_is_far_trials_give_the_draws(twenty, sizes):
    """A fit to the prior of what has twenty narrow modes."""
    draws = twenty.draw(500, twenty.spawn(np.random.default_rng(3)))
    fit = fit_from(twenty, draws)
    assert not fit.near
    assert 1 <= len(sizes) < fitting.MAX_TRIALS
    assert sizes[0] > 500
    assert fit.components.modes.n_components > 1  # how many depends on rounding
    assert fit.trial.plan.reference.components is fit.components
    assert fit.warm_up(None) is fit.trial


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(("enough", "fits"), [(1, 1), (10**6, 2)])
def test_a_trial_after_a_fit_to_draws_enough_is_the_last(twenty, sizes, monkeypatch, enough, fits):
    monkeypatch.setattr(fitting, "draws_needed", lambda components: enough)
    monkeypatch.setattr(fitting, "_propose", lambda *args: (None, -np.inf, False))
    draws = twenty.draw(500, twenty.spawn(np.random.default_rng(3)))
    assert fit_from(twenty, draws).trial is not None
    assert len(sizes) == fits


def test_after_the_deadline_no_trial_starts(twenty, monkeypatch):
    monkeypatch.setattr(fitting, "trial_run", None)
    draws = twenty.draw(500, twenty.spawn(np.random.default_rng(3)))
    fit = fit_from(twenty, draws, deadline=Deadline(0.0, 0.0))
    assert fit.trial is None
    assert fit.draws.n == 500


def test_tails_are_those_of_each_component():
    rng = np.random.default_rng(4)
    normal = rng.standard_normal((2000, 1)) - 40.0
    heavy = stats.t.rvs(2, size=(2000, 1), random_state=rng) + 40.0
    modes = fit_mixture(np.concatenate([normal, np.clip(heavy, 10.0, 70.0)]), rng).modes
    left, right = modes.means[:, 0] < 0, modes.means[:, 0] > 0
    assert modes.dofs[left].min() >= 16
    assert modes.dofs[right].max() <= 8  # two, as normals of different widths


@pytest.mark.slow("compiles models of its own")
def test_a_run_that_outgrows_its_reference_is_repeated_once(monkeypatch):
    two, asked = system("two_modes"), []
    monkeypatch.setattr(rounds, "_outgrown", lambda at: not asked.append(at.chosen))
    again = []
    original = rounds.search_again
    monkeypatch.setattr(
        rounds, "search_again", lambda *args, **kw: again.append(1) or original(*args, **kw)
    )
    idata = pmt.sample(model=two.model, random_seed=5, cores=1, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert len(asked) == len(again) == 1  # and not again of the second run
    assert abs(evidence.log_z - two.log_evidence) < 4 * evidence.mcse
    assert evidence.check.verdict == "agreed"
    before, after = asked[0].work, json.loads(idata["tempering"].attrs["evaluations"])
    assert after["fit"] > before["fit"] + 4000  # the first run counts as work of the fit


@pytest.mark.slow("compiles models of its own")
def test_beyond_two_hundred_dimensions_the_answer_is_right_and_checked():
    """|z| < 4. With a kernel of the user's own no field is whitened."""
    system = testsystems.gaussian_posterior(FULL_DIM + 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        idata = pmt.sample(model=system.model, kernel="hmc", random_seed=0, cores=1, quiet=True)
        evidence = pmt.log_marginal_likelihood(idata)
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    assert evidence.mcse < 0.1
    assert evidence.check.n_looks == 100
    assert evidence.check.verdict == "agreed"


@pytest.mark.parametrize(
    ("late", "dim", "looks"), [(True, 2, False), (True, 200, True), (False, 2, True)]
)
def test_a_late_fit_in_many_dimensions_looks_for_no_warp(monkeypatch, late, dim, looks):
    """Such a search takes tens of seconds in 2,000 dimensions; `dim` is where it gets long."""
    monkeypatch.setattr(fitting, "WARP_DIM", dim)
    given = []
    monkeypatch.setattr(fitting, "fit_mixture", lambda draws, rng, *more: given.append(more[1]))
    prior = compiled("long_path")
    job = Job(
        prior, on_all(HMC(), prior.path.dim), Options(), np.random.default_rng(1),
        deadline=PAST if late else NEVER,
    )  # fmt: skip
    fitting.fit_to(job, np.zeros((20, prior.path.dim)))
    assert (given[0] is not None) == looks
