"""The search finds what a fit has missed: a needle, a forgotten mode; else the prior stays."""

import json
import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytest
from support.compiled_systems import prior as compiled
from support.searches import no_scouts

import pymc_tempering as pmt
from pymc_tempering import testsystems
from pymc_tempering.core.deadline import PAST
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.reference_check import suspect_above
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.kernels.assign import compile_with_kernels
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.mixture import FullScales, Mixture
from pymc_tempering.references.mixture_fit import fit_mixture
from pymc_tempering.references.prior import Fitted, evaluate_draws
from pymc_tempering.sampling import (
    choose_plan as auto,
    evaluated,
    fit_reference as fitting,
    search as refitting,
    search as searching,
)
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.evaluated import evaluate_states
from pymc_tempering.sampling.fit_reference import Passes, ReferenceFit, first_fit
from pymc_tempering.sampling.precompile import compile_loops
from pymc_tempering.warmup.annealed_pass import anneal

NEEDLE_SD = 1 / 30
SEEDS = range(5)


@cache
def needle():
    """A mode of half the mass and a thirtieth of the width, in two dimensions."""
    return testsystems.gaussian_mixture(
        2, weights=(0.5, 0.5), scale=(1, NEEDLE_SD), positions=(-5, 5)
    )


@cache
def two_modes(weights=(0.65, 0.35)):
    return testsystems.gaussian_mixture(10, weights=weights)


def sample(model, seed, draws=500, **kwargs):
    """Sample and estimate; return the DataTree, the evidence and all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pmt.TemperingWarning)
        idata = pmt.sample(draws, model=model, random_seed=seed, cores=1, quiet=True, **kwargs)
    return idata, estimate_quietly(idata), [str(each.message) for each in caught]


def is_off(evidence, exact):
    return abs(evidence.log_z - exact) > 4 * evidence.mcse


def share_near(idata, center, radius):
    """Share of the draws of `x` that are within a distance of a point."""
    distance = np.linalg.norm(idata.posterior["x"].values - center, axis=-1)
    return float((distance < radius).mean())


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_needle_is_found(seed):
    idata, evidence, said = sample(needle().model, seed)
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert evidence.verdict == "ok"
    assert said == []
    assert not is_off(evidence, needle().log_evidence)
    assert share_near(idata, needle().mode_centers[1], 0.3) == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("without", ["scouts", "gradients"])
def test_without_scouts_it_is_missed(monkeypatch, without):
    """So the scouts are what finds it: annealed particles and looks meet it by chance alone."""
    if without == "scouts":
        monkeypatch.setattr(searching, "send_scouts", no_scouts)
        monkeypatch.setattr(searching, "climb_further", no_scouts)
    else:
        monkeypatch.setattr(searching, "can_climb", lambda *args: False)
    missed = 0
    for seed in SEEDS:
        idata, _evidence, _ = sample(needle().model, seed)
        missed += share_near(idata, needle().mode_centers[1], 0.3) < 0.1
    assert missed >= 3


@pytest.mark.slow("compiles models of its own")
def test_a_component_that_is_too_narrow_for_its_mode_is_no_home():
    """As copies of one particle leave it: at the needle, a fifth of its width, with no weight."""
    of = compile_model(needle().model)
    kernel, rng = on_all(HMC(), 2), np.random.default_rng(1)
    annealed = anneal(of, kernel, rng, n_particles=256)
    broad, narrow = needle().mode_centers
    scales = FullScales(np.array([np.eye(2), 0.2 * NEEDLE_SD * np.eye(2)]))
    components = Mixture(
        np.array([0.997, 0.003]), np.array([broad, narrow]), scales, np.array([16.0, 2.0]), 0.05
    )
    draws = evaluate_states(of, broad + rng.standard_normal((1000, 2)))
    fit = ReferenceFit(Fitted(of, components), draws, needle().log_evidence - np.log(2), True)
    found = searching.search(Job(of, kernel, Options(), rng), Passes((annealed,)), fit)
    near = np.linalg.norm(found.fit.draws.xs - narrow, axis=1) < 0.3
    assert found.settled
    assert near.mean() == pytest.approx(0.5, abs=0.1)


def test_beside_a_poor_fit_an_unknown_mode_is_a_suspect_all_the_same():
    """Log_ratio of draws spreads so far that four times that is above all that there can be."""
    system = testsystems.gaussian_mixture(30, weights=(0.5, 0.5), scale=0.5)
    rng = np.random.default_rng(1)
    of, (known, lost) = compile_model(system.model), np.asarray(system.mode_centers)
    narrow = FullScales(0.2 * np.eye(30)[None])
    components = Mixture(np.ones(1), known[None], narrow, np.array([1e4]), 0.01)
    draws, others = (
        evaluate_states(of, center + 0.5 * rng.standard_normal((500, 30)))
        for center in (known, lost)
    )
    fit = ReferenceFit(Fitted(of, components), draws, system.log_evidence, False)
    log_ratio = fit.draws.log_ratio(components)
    assert suspect_above(log_ratio) > others.log_ratio(components).max()  # it would see none
    assert fit.suspects(others).mean() > 0.5


@pytest.mark.slow("compiles models of its own")
def test_a_model_without_gradients_has_looks_and_no_scouts(monkeypatch):
    monkeypatch.setattr(searching, "send_scouts", None)
    of, kernel = compile_with_kernels(two_modes().model, "slice", 0.8, lambda line: None)
    job = Job(of, kernel, Options(), np.random.default_rng(1))
    assert not searching.can_climb(of.path, kernel)
    assert searching.can_climb(compiled("two_modes").path, on_all(HMC(), 10))
    chosen = auto.choose_plan(job)
    assert chosen.last.looks.n == 100
    assert not chosen.last.strange.any()
    assert chosen.fresh.n_looks == chosen.fresh.needed == 100
    assert chosen.fitted.components.modes.n_components == 2
    assert chosen.work["looks"] > 100
    assert chosen.work["scouts"] <= len(chosen.passes.particles)  # once each


def forget(monkeypatch, system, until_looks):
    """Rob all fits of the second mode, or those before the first looks."""
    looked, take_looks = [], searching.take_looks

    def robbed(draws, *args, **kwargs):
        if until_looks and looked:
            return fit_mixture(draws, *args, **kwargs)
        distance = ((draws[:, None] - np.asarray(system.mode_centers)) ** 2).sum(axis=2)
        return fit_mixture(draws[distance.argmin(axis=1) == 0], *args, **kwargs)

    def watched(*args, **kwargs):
        looked.append(1)
        return take_looks(*args, **kwargs)

    monkeypatch.setattr(fitting, "fit_mixture", robbed)
    monkeypatch.setattr(searching, "take_looks", watched)
    return looked


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("weights", [(0.65, 0.35), (0.9, 0.1)])
def test_a_mode_that_the_fit_has_lost_comes_back(monkeypatch, weights):
    system = two_modes(weights)
    looked = forget(monkeypatch, system, until_looks=True)
    for seed in range(2):
        looked.clear()
        idata, evidence, said = sample(system.model, seed)
        assert idata["tempering"].attrs["reference"] == "fitted"
        assert idata["tempering"].attrs["fits"] == len(looked) >= 2
        assert evidence.verdict == "ok"
        assert said == []
        assert not is_off(evidence, system.log_evidence)


@pytest.mark.slow("compiles models of its own")
def test_where_every_fit_forgets_the_answer_is_contradicted(monkeypatch):
    """Where fits that lose a mode are taken, which is the planted fault."""
    system = two_modes((0.9, 0.1))
    looked = forget(monkeypatch, system, until_looks=False)
    monkeypatch.setattr(refitting, "_is_worse", lambda job, new, old: False)
    idata, evidence, said = sample(system.model, 0, draws=1000)
    assert idata["tempering"].attrs["fits"] == len(looked) == searching.MAX_SEARCHES
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert evidence.verdict == evidence.check.verdict == "disagreed"
    assert evidence.mcse == np.inf
    assert not evidence.check.settled
    assert all(reason in evidence.warnings[0] for reason in evidence.check.reasons)
    assert [message for message in said if "disagree" in message]
    work = json.loads(idata["tempering"].attrs["evaluations"])
    assert min(work["looks"], work["scouts"], work["fit"], work["prior_warmup"]) > 0


@pytest.mark.parametrize("near", [True, False])
def test_a_new_fit_that_forgets_is_not_taken(monkeypatch, near):
    """Where weighted draws made it; trial runs have a plan of their own fit."""
    system, rng = two_modes(), np.random.default_rng(1)
    of = compile_model(system.model)
    job = Job(of, on_all(HMC(), 10), Options(), rng)
    draws = anneal(of, job.kernel, rng, n_particles=1000).particles
    distance = ((draws[:, None] - np.asarray(system.mode_centers)) ** 2).sum(axis=2)
    both, one = (fit_mixture(some, rng) for some in (draws, draws[distance.argmin(axis=1) == 0]))
    states = evaluate_states(of, draws)
    fit, forgetful = (
        ReferenceFit(Fitted(of, each), states, system.log_evidence, near) for each in (both, one)
    )
    monkeypatch.setattr(refitting, "fit_reference", lambda *args: forgetful)
    new, _ = refitting.refit(job, fit, [])
    assert new.components.modes.n_components == (2 if near else 1)


@pytest.mark.slow("compiles models of its own")
def test_without_the_search_the_same_fit_is_wrong_and_says_unchecked(monkeypatch):
    forget(monkeypatch, two_modes(), until_looks=False)
    _, evidence, _ = sample(two_modes().model, 0, reference="fitted")
    assert is_off(evidence, two_modes().log_evidence) or evidence.mcse > 0.1
    assert evidence.verdict == "unchecked"
    assert evidence.warnings[0].startswith("No looks")


@pytest.mark.slow("compiles models of its own")
def test_looks_that_know_nothing_of_it_do_not_help(monkeypatch):
    """Planted bug: looks, scouts and particles of which none lies in the second mode."""
    system = two_modes()
    forget(monkeypatch, system, until_looks=True)
    monkeypatch.setattr(
        ReferenceFit, "suspects", lambda fit, states: np.zeros(states.n, dtype=bool)
    )
    monkeypatch.setattr(searching, "send_scouts", no_scouts)
    idata, evidence, _ = sample(system.model, 0)
    assert idata["tempering"].attrs["fits"] == 1
    assert share_near(idata, system.mode_centers[1], 3.0) < 0.2 or evidence.mcse > 0.1


def test_after_the_deadline_the_search_ends_with_its_first_round():
    of, kernel = compiled("gaussian"), on_all(HMC(), 2)
    rng = np.random.default_rng(1)
    path = anneal(of, kernel, rng, n_particles=256)
    job = Job(of, kernel, Options(), rng, deadline=PAST)
    fit = first_fit(job, fit_mixture(path.particles, rng), path.particles)
    found = searching.search(job, Passes((path,)), fit)
    assert found.rounds == 1
    assert found.last.looks.n == found.last.arrived.size == 0


def test_an_annealed_pass_that_the_deadline_has_cut_gives_no_looks():
    of, kernel = compiled("gaussian"), on_all(HMC(), 2)
    compile_loops(of.path, kernel, Options())
    evaluate_draws(of.path, np.zeros((1, 2)))
    job = Job(of, kernel, Options(), np.random.default_rng(1), deadline=PAST)
    chosen = auto.choose_plan(job)
    assert all(one.betas.tolist() == [0.0, 1.0] for one in chosen.passes.each)
    assert not chosen.passes.complete
    assert chosen.last is None
    assert chosen.fresh.n_looks == 0


def test_further_looks_are_added_and_judged():
    of, kernel = compiled("gaussian"), on_all(HMC(), 2)
    job = Job(of, kernel, Options(), np.random.default_rng(1))
    chosen = auto.choose_plan(job)
    looks = chosen.last.looks
    assert auto.more_looks(job, chosen, looks.n_evaluations) is chosen
    more = auto.more_looks(job, chosen, 5 * looks.n_evaluations)
    assert 450 <= more.last.looks.n <= 550
    assert more.last.strange.shape == (more.last.looks.n,)
    assert more.fresh.n_looks == more.last.looks.n
    assert more.work["looks"] > chosen.work["looks"]
    assert more.plan is chosen.plan


@pytest.mark.slow("compiles models of its own")
def test_suspects_far_out_in_the_wide_end_of_a_hierarchy_come_home(monkeypatch):
    """With the metric of the posterior, or in forty transitions, they do not: the planted bugs."""
    system = testsystems.hierarchical_normal(30, 14, 1.7, 0.0, 30.0, 2.0, seed=1)
    of, rng = compile_model(system.model), np.random.default_rng(1)
    job = Job(of, on_all(HMC(), of.path.dim), Options(), rng)
    path = anneal(of, job.kernel, rng, n_particles=256)
    first = fitting.fit_to(job, path.particles, rough=True)
    fit = fitting.fit_reference(job, first, path.particles)
    far = np.tile(fit.draws.xs.mean(axis=0), (6, 1))
    far[:, 0] += 45.0 * np.sign(rng.normal(size=6))  # mu
    far[:, 1] = 3.9  # log tau
    states = evaluate_states(of, far)
    monkeypatch.setattr(searching, "is_above", lambda states, draws: np.ones(states.n, dtype=bool))
    assert not searching.strangers(job, states, fit, Passes((path,))).any()
    monkeypatch.setattr(searching, "HOME_STAGES", (1.0,))
    monkeypatch.setattr(searching, "MAX_HOME_ROUNDS", 1)
    assert searching.strangers(job, states, fit, Passes((path,))).all()


@pytest.mark.slow("compiles models of its own")
def test_suspects_where_the_target_curves_strongly_come_home_by_shorter_steps(monkeypatch):
    """With the tuned steps, and a sixteenth of them, each trajectory is rejected: planted."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("walls", -500.0 * (x**4).sum())
    of, rng = compile_model(model), np.random.default_rng(1)
    job = Job(of, on_all(HMC(), 2), Options(), rng)
    path = anneal(of, job.kernel, rng, n_particles=256)
    fit = fitting.fit_reference(job, fitting.fit_to(job, path.particles), path.particles)
    states = evaluate_states(of, np.full((6, 2), 8.0) + 0.1 * rng.normal(size=(6, 2)))
    monkeypatch.setattr(searching, "is_above", lambda states, draws: np.ones(states.n, dtype=bool))
    assert not searching.strangers(job, states, fit, Passes((path,))).any()
    monkeypatch.setattr(searching, "HOME_STEPS", (1.0,))
    assert searching.strangers(job, states, fit, Passes((path,))).all()


@pytest.mark.slow("compiles models of its own")
def test_a_trial_run_that_hangs_ends_in_an_answer_from_the_prior(monkeypatch):
    """The planted fault: each fit meets a chain that does not come back."""

    def hangs(*args):
        raise pmt.exceptions.StuckChainError("A chain has not come back to beta = 1.")

    monkeypatch.setattr(auto, "fit_reference", hangs)
    idata, evidence, said = sample(two_modes().model, 2)
    assert idata["tempering"].attrs["reference"] == "prior"
    assert any("Two trial runs from a fitted reference hung" in each for each in said)
    assert not is_off(evidence, two_modes().log_evidence)
    seconds = json.loads(idata["tempering"].attrs["seconds"])
    assert seconds["fit"] > 0.0
    with pytest.raises(pmt.exceptions.StuckChainError):
        pmt.sample(100, model=two_modes().model, reference="fitted", quiet=True, random_seed=1)


@pytest.mark.slow("compiles models of its own")
def test_a_trial_run_that_hangs_once_is_made_again(monkeypatch):
    calls, original = [], auto.fit_reference

    def hangs_once(*args):
        calls.append(1)
        if len(calls) == 1:
            raise pmt.exceptions.StuckChainError("A chain has not come back to beta = 1.")
        return original(*args)

    monkeypatch.setattr(auto, "fit_reference", hangs_once)
    idata, evidence, said = sample(two_modes().model, 2)
    assert (len(calls), idata["tempering"].attrs["reference"]) == (2, "fitted")
    assert (evidence.verdict, said) == ("ok", [])
    assert not is_off(evidence, two_modes().log_evidence)


@pytest.mark.slow("compiles models of its own")
def test_where_the_fit_to_a_new_peak_hangs_the_last_fit_stands_and_is_contradicted(monkeypatch):
    def hangs(*args):
        raise pmt.exceptions.StuckChainError("A chain has not come back to beta = 1.")

    forget(monkeypatch, two_modes(), until_looks=True)
    monkeypatch.setattr(searching, "refit", hangs)
    idata, evidence, _ = sample(two_modes().model, 0)
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert (evidence.check.verdict, evidence.check.settled) == ("disagreed", False)
    assert evidence.mcse == np.inf


def test_gradients_that_are_not_finite_are_no_scores():
    of = compiled("gaussian")
    job = Job(of, on_all(HMC(), 2), Options(), np.random.default_rng(1))
    xs = np.array([[0.0, 0.0], [np.nan, 0.0], [1.0, 2.0]])
    scores = evaluated.target_scores(job)(xs)
    assert np.isnan(scores[1]).all()
    assert np.isfinite(scores[[0, 2]]).all()
