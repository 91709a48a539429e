"""A run in the wrong lobe: one of several annealed passes, or a late look, finds what it misses."""

from dataclasses import replace

import numpy as np
import pytest
from support.compiled_systems import system
from support.look_checks import checked, leg
from support.searches import annealed, job_of, no_scouts

from pymc_tempering.references.mixture_fit import fit_mixture
from pymc_tempering.sampling import (
    choose_plan as auto,
    fit_reference as fitting,
    fit_reference as passing,
    search as refitting,
    search as searching,
)
from pymc_tempering.sampling.evaluated import evaluate_states
from pymc_tempering.sampling.fit_reference import Passes
from pymc_tempering.sampling.looks import Looks
from pymc_tempering.sampling.search import Away, has_arrived

SHARES = np.array([0.65, 0.35])
"""Of the evidence, in the lobes of the system "two_modes"."""

LOST = float(np.log(1.0 / SHARES[0]))
"""Nats that a run in the first lobe alone lacks."""


def lobe_of(xs):
    """Lobe that each state is nearest to, shape (n,)."""
    centers = np.asarray(system("two_modes").mode_centers)
    return ((xs[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)


def confined(lobe, nats=0.0):
    """An annealed pass that ended in one lobe, and states the evidence of that one."""
    whole = annealed("two_modes")
    own = whole.particles[lobe_of(whole.particles) == lobe]
    log_z = system("two_modes").log_evidence + np.log(SHARES[lobe]) + nats
    return replace(whole, states=own[None], log_z=np.append(whole.log_z[:-1], log_z))


def passes_in(lobes):
    """Passes each of which is confined to a lobe."""
    return Passes(tuple(confined(lobe, 0.1 * i) for i, lobe in enumerate(lobes)))


def looks_in(lobe):
    """Looks that all end in one lobe, and whose weights tell of nothing else."""

    def take(job, annealed, n, finer=1):
        rng = np.random.default_rng(8)
        xs = rng.choice(confined(lobe).particles, n)
        log_w = system("two_modes").log_evidence - LOST + rng.normal(0.0, 0.3, n)
        return Looks(evaluate_states(job.prior, xs), log_w, 10_000)

    return take


def forgetful(looked, *, always):
    """Fits that see the first lobe alone: all of them, or those before there were looks."""

    def fit(draws, *args, **kwargs):
        if not looked or always:
            draws = draws[lobe_of(draws) == 0]
        return fit_mixture(draws, *args, **kwargs)

    return fit


def wrong_lobe(monkeypatch, lobes, *, always=False, take=None):
    """Choose a plan with passes in these lobes, while all else knows the first lobe alone.

    Returns the plan, and a run from its reference whose log Z is that of its fit, checked.
    """
    looked, take = [], take or looks_in(0)

    def watched(*args, **kwargs):
        looked.append(1)
        return take(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(auto, "make_passes", lambda job: passes_in(lobes))
        patch.setattr(fitting, "more_passes", lambda job, passes, mode: passes)
        patch.setattr(fitting, "fit_mixture", forgetful(looked, always=always))
        if always:  # else a fit that forgets is not taken
            patch.setattr(refitting, "_is_worse", lambda job, new, old: False)
        patch.setattr(searching, "take_looks", watched)
        patch.setattr(searching, "send_scouts", no_scouts)
        patch.setattr(searching, "climb_further", no_scouts)
        chosen = auto.choose_plan(job_of("two_modes"))
    said = replace(leg(), log_z=chosen.fit.log_z, mcse=0.02)
    return chosen, checked(chosen.fresh, said)


def missing(evidence):
    """Nats that are missing, in stated errors."""
    return (system("two_modes").log_evidence - evidence.log_z) / evidence.mcse


@pytest.mark.slow("compiles models of its own", quick=["lobes1"])
@pytest.mark.parametrize("lobes", [(0, 0, 1), (1, 0, 0)])
def test_what_one_of_three_passes_has_found_enters_the_reference(monkeypatch, lobes):
    chosen, evidence = wrong_lobe(monkeypatch, lobes)
    assert (chosen.fits, chosen.settled) == (2, True)
    assert (evidence.verdict, evidence.check.n_islands) == ("ok", 0)
    assert abs(missing(evidence)) < 4
    assert np.mean(lobe_of(chosen.fit.draws.xs)) == pytest.approx(SHARES[1], abs=0.1)


@pytest.mark.parametrize("lobes", [(0,), (0, 0, 0)])
def test_with_passes_in_the_same_lobe_alone_it_says_ok_and_is_wrong(monkeypatch, lobes):
    """The planted bug, one pass as of old; and what no number of passes can tell."""
    chosen, evidence = wrong_lobe(monkeypatch, lobes)
    assert chosen.fits == 1
    assert (evidence.verdict, evidence.check.verdict) == ("ok", "agreed")
    assert missing(evidence) > 10


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("lobes", [(0, 0, 1), (1, 0, 1)])
def test_where_every_fit_forgets_the_lobe_its_passes_contradict(monkeypatch, lobes):
    chosen, evidence = wrong_lobe(monkeypatch, lobes, always=True)
    assert (chosen.fits, chosen.settled) == (searching.MAX_SEARCHES, False)
    assert evidence.verdict == "disagreed"
    assert evidence.mcse == np.inf
    assert evidence.check.n_islands == sum(lobes)
    assert any("annealed passes have particles that stay" in why for why in evidence.check.reasons)


@pytest.mark.slow("compiles models of its own")
def test_passes_whose_particles_are_not_asked_do_not_contradict(monkeypatch):
    """Planted bug: islands of any size count as none."""
    monkeypatch.setattr(searching, "ISLAND", 1.1)
    _, evidence = wrong_lobe(monkeypatch, (0, 0, 1), always=True)
    assert evidence.check.n_islands == 0
    assert not any("particles" in why for why in evidence.check.reasons)


def test_passes_in_different_lobes_call_for_more_passes(monkeypatch):
    """Where the fit sees both, three further passes tell how often each lobe is found."""
    made, original = [], passing._make

    def make(job, n, report):
        made.append(n)
        return original(job, n, report)

    monkeypatch.setattr(passing, "_make", make)
    monkeypatch.setattr(auto, "make_passes", lambda job: passes_in((0, 0, 1)))
    chosen = auto.choose_plan(job_of("two_modes"))
    assert made == [passing.MORE_PASSES]
    assert chosen.fresh.n_passes == 6
    assert chosen.fitted.components.modes.n_components == 2


def late_lobe(job, annealed, n, finer=1):
    """First looks that stay far off; further ones, which go slower, end in the second lobe."""
    if finer > 1:
        return looks_in(1)(job, annealed, n)
    xs = np.full((n, job.prior.path.dim), 60.0) + np.arange(n)[:, None]
    return Looks(evaluate_states(job.prior, xs), np.full(n, -1e6), 100)


def nobody(states):
    """None of these states is away."""
    none = np.zeros(0, dtype=int)
    return Away(none, states.at(none), ended=False)


def all_stay(job, passes, fit, looks):
    """In the place of `bring_home`: no look is moved on."""
    return has_arrived(looks, fit.draws), nobody(looks)


def test_what_further_looks_have_found_enters_the_reference_too(monkeypatch):
    monkeypatch.setattr(searching, "bring_home", all_stay)
    chosen, evidence = wrong_lobe(monkeypatch, (0, 0, 0), take=late_lobe)
    assert (chosen.fits, chosen.settled) == (2, True)
    assert chosen.last.looks.n > 100
    assert abs(missing(evidence)) < 4


def test_further_looks_that_are_not_followed_up_miss_it(monkeypatch):
    """Planted bug: nobody asks where they ended."""
    original = searching._follow_up

    def first_alone(at, states, n_looks, *, scouting):
        kept = states if scouting else states.at(np.zeros(0, dtype=int))
        strange, *found = original(at, kept, min(n_looks, kept.n), scouting=scouting)
        return strange if scouting else np.zeros(states.n, dtype=bool), *found

    monkeypatch.setattr(searching, "_follow_up", first_alone)
    monkeypatch.setattr(searching, "bring_home", all_stay)
    chosen, evidence = wrong_lobe(monkeypatch, (0, 0, 0), take=late_lobe)
    assert chosen.fits == 1
    assert missing(evidence) > 10


def on_the_way(job, annealed, n, finer=1):
    """Looks that end where the prior is, below all that a reference draws."""
    xs = job.prior.draw(n, job.prior.spawn(job.rng))
    return Looks(evaluate_states(job.prior, xs), np.full(n, -1e6), 10_000)


def test_looks_that_come_to_an_unknown_mode_while_they_are_moved_on_are_followed_up(monkeypatch):
    chosen, evidence = wrong_lobe(monkeypatch, (0, 0, 0), take=on_the_way)
    assert (chosen.fits, chosen.settled) == (2, True)
    assert evidence.verdict == "ok"
    assert abs(missing(evidence)) < 4


def test_such_looks_that_are_forgotten_miss_it(monkeypatch):
    """Planted bug, as it was: only those that come home are asked for."""
    original = searching.bring_home

    def forgets(*args):
        arrived, away = original(*args)
        return arrived, nobody(away.ends)

    monkeypatch.setattr(searching, "bring_home", forgets)
    chosen, evidence = wrong_lobe(monkeypatch, (0, 0, 0), take=on_the_way)
    assert (chosen.fits, evidence.verdict) == (1, "ok")
    assert missing(evidence) > 10


def groups_moved(monkeypatch, comes_home, n_looks):
    """Sizes of the groups in which 100 suspects are moved, of which some come home; and who stays.

    The first states are looks.
    """
    sizes, job = [], job_of("two_modes")
    states = evaluate_states(job.prior, np.random.default_rng(1).normal(size=(100, 10)))
    number = {x.tobytes(): i for i, x in enumerate(states.xs)}

    def ways(job, passes, fit, xs):
        sizes.append(len(xs))
        left = [i for i, x in enumerate(xs) if number[x.tobytes()] not in comes_home]
        away = np.array(left, dtype=int)
        job.tally.work["looks"] += 3
        return Away(away, evaluate_states(job.prior, xs[away]), ended=False)

    everything = lambda fit, states: np.ones(states.n, dtype=bool)  # noqa: E731
    monkeypatch.setattr(searching, "way_home", ways)
    monkeypatch.setattr(fitting.ReferenceFit, "suspects", everything)
    fit = auto.first_fit(job, fit_mixture(confined(0).particles, job.rng), states.xs)
    strange = searching.strangers(job, states, fit, None, n_looks=n_looks)
    assert job.tally.work["looks"] == 3 * len(sizes)
    return sizes, strange


def test_looks_are_moved_all_and_particles_in_groups_until_none_comes_home(monkeypatch):
    sizes, strange = groups_moved(monkeypatch, range(0), 30)
    assert sizes == [30, searching.GROUP]
    assert strange.all()
    sizes, strange = groups_moved(monkeypatch, range(100), 30)
    assert sizes == [30] + [searching.GROUP] * 7
    assert not strange.any()
    sizes, strange = groups_moved(monkeypatch, range(10), None)
    assert sizes == [100]


def test_without_groups_all_particles_of_an_island_would_be_moved(monkeypatch):
    """Planted bug: one group of all."""
    monkeypatch.setattr(searching, "GROUP", 1000)
    assert groups_moved(monkeypatch, range(0), 30)[0] == [30, 70]
