"""Suspects: peaks, their mass by Laplace, and those without mass, which are let go."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from support.compiled_systems import prior, system
from support.searches import fit_of, job_of, nowhere, region

import pymc_tempering as pmt
from pymc_tempering import testsystems
from pymc_tempering.core.deadline import PAST
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.sampling import (
    choose_plan as auto,
    evaluated,
    regions,
    search as searching,
    suspects as suspecting,
)
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, home_radius, join
from pymc_tempering.sampling.regions import Peak, region_around
from pymc_tempering.sampling.search import Looks
from pymc_tempering.sampling.suspects import find_peaks, seen, with_mass

MOST = 10_000
"""Evaluations that climbs may take."""


def peaks_of(of, suspects, scale, let_go, home, most=MOST):
    job = Job(of, on_all(HMC(), of.path.dim), Options(), np.random.default_rng(1))
    return found_peaks(job, suspects, scale, let_go, home, most)


def found_peaks(job, *args):
    peaks, complete = find_peaks(job, *args)
    return SimpleNamespace(peaks=peaks, complete=complete, n_evaluations=job.tally.work["scouts"])


def states(of, n, seed=1):
    return evaluate_states(of, of.draw(n, of.spawn(np.random.default_rng(seed))))


def spread(of):
    return of.sample.std(axis=0)


@pytest.mark.parametrize("name", ["gaussian", "long_path"])
def test_mass_and_shape_are_exact_on_a_normal_target(name):
    of = prior(name)
    found = peaks_of(of, states(of, 20), spread(of), [], nowhere)
    [peak] = found.peaks
    [(mean, variance)] = system(name).moments(1.0).values()
    assert peak.log_mass == pytest.approx(system(name).log_evidence, abs=1e-3)
    np.testing.assert_allclose(peak.mean, mean, atol=1e-3 * np.sqrt(variance).max())
    covariance = peak.cholesky @ peak.cholesky.T
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=2e-3)
    assert found.complete
    assert found.n_evaluations > 2 * of.path.dim


def test_a_flat_top_is_no_wider_than_the_prior():
    def flat(path, xs, *args):
        return np.zeros((len(xs), 2)), np.zeros((len(xs), 2, path.dim))

    of, scale = prior("gaussian"), np.array([2.0, 0.5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluated, "evaluate_terms", flat)
        peak = suspecting._peak_at(of.path, np.zeros(2), 1.5, scale)
    np.testing.assert_allclose(peak.cholesky, np.diag(scale), rtol=1e-9)
    assert peak.log_mass == pytest.approx(1.5 + np.log(2 * np.pi))  # and scales of product 1


def test_peaks_are_told_apart_and_none_is_found_twice():
    of, two = prior("two_modes"), system("two_modes")
    near = np.vstack([two.mode_centers + 0.3, two.mode_centers - 0.2, two.mode_centers])
    suspects = evaluate_states(of, near)
    found = peaks_of(of, suspects, spread(of), [], nowhere).peaks
    assert len(found) == 2
    shares = np.exp([peak.log_mass - two.log_evidence for peak in found])
    assert np.sort(shares) == pytest.approx([0.35, 0.65], rel=5e-3)
    again = peaks_of(of, suspects, spread(of), found, nowhere)
    assert (again.peaks, again.n_evaluations, again.complete) == ([], 0, True)
    [first] = [c for c in two.mode_centers if found[0].holds(c[None])[0]]
    [other] = peaks_of(of, suspects, spread(of), found[:1], nowhere).peaks
    assert not other.holds(first[None])[0]


@pytest.mark.parametrize(("max_peaks", "most", "n"), [(1, MOST, 1), (8, 1, 1), (8, 0, 0)])
def test_where_suspects_are_left_over_the_round_is_not_complete(monkeypatch, max_peaks, most, n):
    of, two = prior("two_modes"), system("two_modes")
    monkeypatch.setattr(suspecting, "MAX_PEAKS", max_peaks)
    suspects = evaluate_states(of, two.mode_centers)
    found = peaks_of(of, suspects, spread(of), [], nowhere, most)
    assert len(found.peaks) == n
    assert not found.complete


def test_after_the_deadline_no_climb_begins():
    of, two = prior("two_modes"), system("two_modes")
    suspects = evaluate_states(of, two.mode_centers)
    found = found_peaks(job_of("two_modes", deadline=PAST), suspects, spread(of), [], nowhere, MOST)
    assert (found.peaks, found.n_evaluations, found.complete) == ([], 0, False)


def test_a_climb_that_ends_at_home_gives_no_peak():
    of = prior("gaussian")
    [(mean, _)] = system("gaussian").moments(1.0).values()
    home = lambda states: ((states.xs - mean) ** 2).sum(axis=1) < 1.0  # noqa: E731
    suspects = states(of, 20)
    away = suspects.at(~home(suspects))
    found = peaks_of(of, away, spread(of), [], region(home))
    assert found.peaks == []
    assert found.n_evaluations > away.n


def test_hundreds_of_suspects_that_come_home_hide_no_peak():
    """The other mode has the lowest suspect of all, so it is the last to be climbed from."""
    of, two = prior("two_modes"), system("two_modes")
    near, far = two.mode_centers
    home = lambda states: ((states.xs - near) ** 2).sum(axis=1) < 4.0  # noqa: E731
    rng = np.random.default_rng(2)
    at_near = near + 2.5 * rng.normal(size=(600, near.size)) / np.sqrt(near.size)
    xs = np.concatenate([at_near, far + 0.2 * np.abs(near - far)[None]])
    suspects = evaluate_states(of, xs)
    suspects = suspects.at(~home(suspects))
    assert suspects.n > 100
    found = peaks_of(of, suspects, spread(of), [], region(home))
    assert found.complete
    assert [peak.holds(far[None])[0] for peak in found.peaks] == [True]


def test_the_region_of_a_peak_is_that_of_its_draws():
    """In two dimensions the square of the distance is exponential: 12 and more with exp(-6)."""
    peak = Peak(np.array([3.0, -1.0]), np.array([[0.5, 0.0], [1.9, 0.1]]), 0.0)
    rng = np.random.default_rng(1)
    draws = peak.draw(20_000, rng)
    np.testing.assert_allclose(draws.mean(axis=0), peak.mean, atol=0.06)
    np.testing.assert_allclose(np.cov(draws.T), peak.cholesky @ peak.cholesky.T, atol=0.15)
    assert home_radius(2) == pytest.approx(12.0)
    assert np.mean(~peak.holds(draws)) == pytest.approx(np.exp(-6.0), abs=0.0015)
    along = peak.cholesky[:, 0] / np.linalg.norm(peak.cholesky[:, 0])
    across = np.array([-along[1], along[0]])
    assert peak.holds(peak.mean + 5.0 * along[None])[0]
    assert not peak.holds(peak.mean + 0.5 * across[None])[0]
    for dim in (1, 10, 200):
        assert stats.chi2.sf(home_radius(dim), dim) < 1e-2


def test_peaks_with_a_two_thousandth_of_the_evidence_may_have_mass(monkeypatch):
    """In many dimensions by Laplace's method alone, which shows of none that it is light."""
    job, dim = job_of("gaussian"), 2
    monkeypatch.setattr(suspecting, "MAX_WEIGHED_DIM", dim - 1)

    def peak(share):
        return Peak(np.zeros(dim), np.eye(dim), -7.0 + np.log(share))

    peaks = [peak(share) for share in (2.0, 5.1e-4, 4.9e-4, 1e-9)]
    assert with_mass(job, None, peaks, -7.0) == (peaks[:2], [])
    assert with_mass(job, None, [], -7.0) == ([], [])


def test_in_few_dimensions_walkers_tell_the_mass_of_a_peak(monkeypatch):
    """Whatever its curvature says: here e^20 too much, or too little."""
    of, job, exact = prior("gaussian"), job_of("gaussian"), system("gaussian").log_evidence
    [peak] = peaks_of(of, states(of, 20), spread(of), [], nowhere).peaks
    found = np.array([region_around(job, None, peak.mean)[0].log_mass for _ in range(10)])
    assert np.abs(found - exact).max() < 0.3
    for said in (-20.0, 20.0):
        wrong = replace(peak, log_mass=peak.log_mass + said)
        for log_z, n_heavy in ((exact + 15.0, 0), (exact + 5.0, 1)):
            heavy, light = with_mass(job, None, [wrong], log_z)
            assert (len(heavy), len(light)) == (n_heavy, 1 - n_heavy)
            assert [*heavy, *light][0].log_mass == pytest.approx(exact, abs=0.3)
    # The planted fault: what Laplace's method says stands.
    monkeypatch.setattr(suspecting, "MAX_WEIGHED_DIM", 0)
    assert with_mass(job, None, [wrong], exact + 15.0) == ([wrong], [])


def test_peaks_of_one_region_are_weighed_once():
    job = job_of("gaussian")
    of = prior("gaussian")
    [peak] = peaks_of(of, states(of, 20), spread(of), [], nowhere).peaks
    near = [replace(peak, mean=peak.mean + shift) for shift in (0.0, 0.01, -0.02)]
    heavy, light = with_mass(job, None, near, peak.log_mass)
    assert (len(heavy), light) == (1, [])


def test_what_stands_out_of_a_wide_light_region_is_not_explained_by_it():
    """Planted: all that lies in it would be let go, and so a mode that nobody knows."""
    wide = Peak(np.zeros(2), 100.0 * np.eye(2), -60.0)
    top = -60.0 - np.log(2 * np.pi * 1e4)
    xs = np.array([[0.0, 0.0], [50.0, 50.0], [50.0, 50.0], [900.0, 0.0]])
    states = Evaluated(xs, np.array([top, top - 1.0, top + 20.0, top - 40.0]), np.zeros(4))
    assert wide.explains(states).tolist() == [True, True, False, False]
    assert wide.holds(xs).tolist() == [True, True, True, False]
    assert regions.explained_by([wide, Peak(xs[2], np.eye(2), -49.0)], states)[2]


def test_draws_have_seen_a_peak_if_they_hold_a_fifth_of_its_share():
    """Of 100 draws `n` lie at a peak that has half of all mass, or a tenth."""

    def known(n, share):
        peak = Peak(np.zeros(2), np.eye(2), np.log(share / (1 - share)) - 7.0)
        assert peak.share(-7.0) == pytest.approx(share)
        draws = np.repeat([[0.0, 0.0], [50.0, 0.0]], [n, 100 - n], axis=0)
        return seen([peak], -7.0, draws).item()

    assert [known(n, 0.5) for n in (0, 9, 11, 50, 100)] == [False, False, True, True, True]
    assert [known(n, 0.1) for n in (0, 1, 3)] == [False, False, True]
    assert seen([], -7.0, np.zeros((1, 2))).tolist() == []


def test_a_region_of_the_width_of_the_prior_has_not_been_seen(monkeypatch):
    """All draws lie in it. Planted: that they do is enough, and a suspect top is let go."""
    fit, rng, dim = fit_of("gaussian"), np.random.default_rng(1), 2
    of = fit.reference.prior
    wide = Peak(np.full(dim, 6.0) * spread(of), 9.0 * np.diag(spread(of)), fit.log_z - 1.0)
    assert wide.holds(fit.draws.xs).all()
    assert fit.suspects(evaluate_states(of, wide.mean[None])).tolist() == [False]
    monkeypatch.setattr(type(fit), "suspects", lambda self, states: np.ones(states.n, dtype=bool))
    assert suspecting.unknown_peaks([wide], fit, rng) == [wide]
    monkeypatch.setattr(suspecting, "WIDE_SHARE", 1.1)
    assert suspecting.unknown_peaks([wide], fit, rng) == []


# A spike of a millionth of the mass, with a density a hundred times that of all the rest. No
# scout finds it, so the search is shown it.
SHARE, SD = 1e-6, 1e-4


@pytest.fixture(scope="module")
def spike():
    return testsystems.gaussian_mixture(
        2, weights=(1 - SHARE, SHARE), scale=(1, SD), positions=(-5, 5)
    )


def show(monkeypatch, spike, n=1):
    """Let the first scouts and looks of each round end at the spike."""
    of = compile_model(spike.model)
    top = evaluate_states(of, np.repeat(spike.mode_centers[[1]], n, axis=0))
    send, look = searching.send_scouts, searching.take_looks

    def scouts(*args):
        return join([send(*args), top])

    def looks(*args, **kwargs):
        found = look(*args, **kwargs)
        ends = join([top, found.ends.at(np.arange(n, found.n))])
        return Looks(ends, found.log_w, found.n_evaluations)

    monkeypatch.setattr(searching, "send_scouts", scouts)
    monkeypatch.setattr(searching, "take_looks", looks)


@pytest.mark.slow("compiles models of its own")
def test_the_spike_would_be_a_suspect(spike):
    of = compile_model(spike.model)
    heights = evaluate_states(of, spike.mode_centers).log_target
    assert heights[1] - heights[0] > np.log(50.0)


@pytest.mark.slow("compiles models of its own", quick=["1"])
@pytest.mark.parametrize("seed", range(3))
def test_a_spike_without_mass_is_let_go(monkeypatch, spike, seed):
    show(monkeypatch, spike, n=3)
    kept, original = [], auto.search
    monkeypatch.setattr(auto, "search", lambda *a: kept.append(original(*a)) or kept[-1])
    idata = pmt.sample(500, model=spike.model, random_seed=seed, cores=1, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - spike.log_evidence) < 4 * evidence.mcse
    assert evidence.check.n_looks == 100
    [found] = kept
    assert found.settled
    modes = found.fit.components.modes
    far = ((modes.means - spike.mode_centers[1]) ** 2).sum(axis=1) > 0.1
    assert modes.weights[~far].sum() < 1e-3


def test_without_its_mass_the_spike_would_disagree(monkeypatch, spike):
    """Planted bug: no peak is found or weighed, so that nothing excuses the looks at the spike."""
    show(monkeypatch, spike, n=3)
    monkeypatch.setattr(searching, "find_peaks", lambda *args: ([], True))
    monkeypatch.setattr(regions, "MAX_WEIGHED_DIM", 0)
    idata = pmt.sample(500, model=spike.model, random_seed=0, cores=1, quiet=True)
    with pytest.warns(pmt.TemperingWarning, match="3 of 100 looks ended where the reference"):
        evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "disagreed"


def test_chains_from_a_stuck_look_weigh_the_region_too(monkeypatch, spike):
    show(monkeypatch, spike, n=3)
    monkeypatch.setattr(searching, "find_peaks", lambda *args: ([], True))
    idata = pmt.sample(500, model=spike.model, random_seed=0, cores=1, quiet=True)
    assert pmt.log_marginal_likelihood(idata).verdict == "ok"


@pytest.mark.slow("compiles models of its own")
def test_a_peak_that_seems_heavy_is_let_go_once_draws_have_judged_it(monkeypatch, spike):
    """Whatever Laplace says, weighted draws of the reference give the component its share."""
    monkeypatch.setattr(regions, "LEAST_MASS", 1e-12)
    show(monkeypatch, spike)
    idata = pmt.sample(500, model=spike.model, random_seed=1, cores=1, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - spike.log_evidence) < 4 * evidence.mcse
    assert 2 <= idata["tempering"].attrs["fits"] <= searching.MAX_SEARCHES


def test_states_without_a_density_have_no_height():
    of = prior("gaussian")
    none = Evaluated(np.zeros((2, 2)), np.array([-np.inf, np.nan]), np.zeros(2))
    assert (none.log_target == -np.inf).all()
    nothing = none.at(np.zeros(2, dtype=bool))
    assert peaks_of(of, nothing, np.ones(2), [], nowhere).n_evaluations == 0
