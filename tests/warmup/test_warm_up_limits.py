"""The clock is asked within all loops of a warm-up: a late one comes to its end at once.

The deadlines here are late after a number of looks, so that no test hangs on how fast a machine is.
"""

from dataclasses import replace

import numpy as np
import pytest
from support.compiled_systems import prior
from support.counted_deadline import CountedDeadline

import pymc_tempering as pmt
from pymc_tempering.chain.chains import start_chain
from pymc_tempering.core import threads
from pymc_tempering.core.deadline import PAST, Deadline, deadline_in
from pymc_tempering.core.threads import Pace
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.warmup import annealed_pass, warm_up
from pymc_tempering.warmup.annealed_pass import (
    LEAST_PARTICLES,
    MAX_SWEEPS,
    Stage,
    StageLimits,
    anneal,
    move_and_tune,
)
from pymc_tempering.warmup.log_z_rounds import WEIGHT_ADAPTATIONS
from pymc_tempering.warmup.warm_up import settle

N = 64
PATH, KERNEL = "long_path", HMC()


def kernel():
    return on_all(KERNEL, prior(PATH).path.dim)


def annealed(deadline, seed=1, **kwargs):
    rng = np.random.default_rng(seed)
    return anneal(prior(PATH), kernel(), rng, n_particles=N, deadline=deadline, **kwargs)


@pytest.fixture
def smallest_pieces(monkeypatch):
    """One thing between two looks at the clock."""
    monkeypatch.setattr(threads, "STEP_SECONDS", 0.0)


@pytest.fixture
def moves(monkeypatch):
    """Particles that were moved by each call of a sweep."""
    out, original = [], annealed_pass.sweep

    def counting(particles, beta, params, part):
        out.append(part.stop - part.start)
        return original(particles, beta, params, part=part)

    monkeypatch.setattr(annealed_pass, "sweep", counting)
    return out


@pytest.mark.parametrize("late_cess", [0.0, 0.1])
@pytest.mark.parametrize("most", [N + 30, 250, 400])
def test_no_particle_moves_once_it_is_late(smallest_pieces, moves, most, late_cess):
    """Planted: whole sweeps, between which alone the clock is asked, move thousands more."""
    deadline = CountedDeadline(most=most)
    found = annealed(deadline, late_cess=late_cess)
    assert 0 < sum(moves) < most - N
    assert max(moves) == 1
    assert len(deadline.looks) < most + 30
    assert found.betas[-1] == 1.0
    assert not found.complete
    assert found.cut.stage == "the annealed pass from the prior"
    assert np.isfinite(found.tuning.step_sizes).all()


def test_the_draws_are_the_same_wherever_the_sweeps_are_cut(moves, monkeypatch):
    whole, n_whole = annealed(Deadline()), len(moves)
    roomy = annealed(deadline_in(1e6))
    monkeypatch.setattr(threads, "STEP_SECONDS", 0.0)
    moves.clear()
    cut = annealed(deadline_in(1e6))
    assert len(moves) > 10 * n_whole
    for other in (roomy, cut):
        np.testing.assert_array_equal(other.states, whole.states)
        np.testing.assert_array_equal(other.log_z, whole.log_z)
        np.testing.assert_array_equal(other.tuning.step_sizes, whole.tuning.step_sizes)
        np.testing.assert_array_equal(other.tuning.lengths, whole.tuning.lengths)
        assert other.n_evaluations == whole.n_evaluations
        assert other.cut is None


def test_a_late_stage_makes_the_sweeps_that_it_needs_and_no_more(monkeypatch):
    monkeypatch.setattr(annealed_pass, "ACCEPT_TOLERANCE", 0.0)  # so that none ends by itself
    reference, of = prior(PATH), kernel()
    rng = np.random.default_rng(2)
    none = np.zeros(len(of.options))
    sweeps = []
    for soon in (Deadline(), PAST):
        particles = annealed_pass.draw_particles(reference, of, N, rng)
        first = Stage(of.first_steps, np.ones(reference.path.dim), None, none, none)
        limits = StageLimits(soon=soon)
        sweeps.append(move_and_tune(reference, particles, 0.01, first, limits).sweeps)
    assert sweeps == [MAX_SWEEPS, annealed_pass.MIN_SWEEPS]


def test_what_a_cut_sweep_has_not_measured_is_that_of_the_stage_before(smallest_pieces):
    reference, of = prior(PATH), kernel()
    particles = annealed_pass.draw_particles(reference, of, N, np.random.default_rng(2))
    n = len(of.options)
    before = Stage(of.first_steps, np.ones(reference.path.dim), None, np.full(n, 7.0), np.ones(n))
    for most, measured in [(0, 0), (5, 1)]:  # looks at each piece, and after each sweep
        limits = StageLimits(last=CountedDeadline(most=most), pace=Pace())
        stage = move_and_tune(reference, particles, 0.01, before, limits)
        assert (stage.jump == 7.0).sum() == n - measured
        assert (stage.cost > 1.0).sum() == measured
        assert stage.sweeps == most / N
        assert (stage.steps == before.steps).all() == (most == 0)


def test_kernels_beside_are_tuned_no_longer_than_the_time(smallest_pieces, moves):
    deadline = CountedDeadline(most=N + 200)
    found = annealed(deadline, other=on_all(HMC(max_steps=1), prior(PATH).path.dim))
    assert sum(moves) < 200
    assert found.other is not None


def test_starting_states_are_as_many_as_the_time_allows(smallest_pieces):
    found = annealed(CountedDeadline(most=LEAST_PARTICLES + 5))
    assert LEAST_PARTICLES <= found.log_ratio.shape[1] < N
    with pytest.raises(
        pmt.exceptions.TimeLimitError, match=r"known at \d+ of 64 draws of the prior.*need"
    ):
        annealed(CountedDeadline(most=LEAST_PARTICLES - 5))


def test_the_need_of_a_pass_is_that_of_its_stages_to_come(monkeypatch):
    """Ten sweeps took 5 s, five for each of two stages; beta doubles, and six doublings are left.

    The time of the call is twice that of the pass.
    """
    monkeypatch.setattr(annealed_pass, "perf_counter", lambda: 105.0)
    monkeypatch.setattr("pymc_tempering.core.deadline.perf_counter", lambda: 105.0)
    none = np.zeros(1)
    stages = [Stage(none, none, None, none, none, sweeps) for sweeps in (0.0, 4.0, 6.0)]
    betas = [0.0, 2.0**-7, 2.0**-6, 2.0**-5]
    deadline = Deadline(98.0, 105.0).part(0.5)
    cut = annealed_pass._cut(prior(PATH), betas, stages, 100.0, deadline)
    assert cut.place == "at beta = 0.016"
    assert cut.needed == pytest.approx(2.0 * (7.0 + (1 + 5) * 2.5))


@pytest.fixture(scope="module")
def plan():
    of = prior(PATH)
    return warm_up.warm_up(of, kernel(), np.random.default_rng(1), ladder_move="gibbs").plan


def states(plan, n=3):
    return [start_chain(plan, rng) for rng in np.random.default_rng(5).spawn(n)]


@pytest.mark.parametrize("method", WEIGHT_ADAPTATIONS)
@pytest.mark.parametrize("most", [0, 40, 900])
def test_a_round_ends_with_its_time(smallest_pieces, plan, method, most):
    """Planted: without the deadline a round of 10,000 iterations goes on to its end."""
    learn = WEIGHT_ADAPTATIONS[method](states(plan), 1)
    learned = learn(plan, 10_000, CountedDeadline(most=most))
    iterations = sum(state.n_trace for state in learn.states)
    assert 3 <= iterations <= most + 3
    assert 1 <= learned.log_ratio.shape[1] <= iterations // 3 + most
    assert np.isfinite(learned.log_z).all()
    assert not (learn.is_final() and most == 0)


@pytest.mark.parametrize("method", WEIGHT_ADAPTATIONS)
def test_a_round_that_saw_too_little_leaves_the_weights_alone(smallest_pieces, plan, method):
    """Planted: with blind steps, or the large gains of a beginning, they are off by 7 nats."""
    learn = WEIGHT_ADAPTATIONS[method](states(plan), 1)
    found, rounds, converged = settle(plan, learn, 1.5, 8, deadline=CountedDeadline(most=60))
    assert (len(rounds), converged) == (1, False)
    np.testing.assert_array_equal(found.ladder.log_z, plan.ladder.log_z)


@pytest.mark.parametrize("method", WEIGHT_ADAPTATIONS)
def test_a_round_in_good_time_is_as_without_a_limit(plan, method):
    both = []
    for deadline in (Deadline(), deadline_in(1e6)):
        learn = WEIGHT_ADAPTATIONS[method](states(plan), 2)
        both.append(learn(plan, 400, deadline))
    for name in ("log_z", "off", "error", "log_ratio", "visits", "accept"):
        np.testing.assert_array_equal(*(getattr(learned, name) for learned in both))


@pytest.mark.slow("compiles models of its own")
def test_a_warm_up_that_is_cut_short_says_where(smallest_pieces):
    def warmed(most):
        return warm_up.warm_up(
            prior(PATH), kernel(), np.random.default_rng(1), ladder_move="gibbs",
            n_particles=N, deadline=CountedDeadline(most=most),
        )  # fmt: skip

    deadline = CountedDeadline(most=10**9)
    annealed(deadline)
    late = warmed(len(deadline.looks) + 500)
    assert late.annealed.cut is None
    assert not late.converged
    assert late.cut.stage == "the learning of the weights"
    assert late.cut.place.endswith("iterations of round 1")
    assert late.cut.needed > 0.0
    assert warmed(10**9).cut is None


def test_the_need_of_the_weights_is_that_of_the_round(monkeypatch):
    monkeypatch.setattr("pymc_tempering.core.deadline.perf_counter", lambda: 20.0)
    one = warm_up.WarmupRound(10, 1000, 0.5, 0.0, 1.0, 3.0)  # 4 chains of 500 are 2,000
    part = warm_up._cut([one], Deadline(10.0, 20.0))
    assert part.place == "at 1000 of 2000 iterations of round 1"
    assert part.needed == pytest.approx(10.0 + 3.0)
    whole = warm_up._cut([replace(one, n_iterations=2000)], Deadline(10.0, 20.0))
    assert whole.place == "after round 1"
    assert whole.needed == pytest.approx(10.0 + 6.0)


def test_a_likelihood_that_hangs_in_the_warm_up_is_an_error(monkeypatch):
    import threading

    monkeypatch.setattr(threads, "LEAVE_SECONDS", 0.1)
    release = threading.Event()
    with pytest.raises(pmt.exceptions.TimeLimitError, match="seems to hang in the warm-up"):
        threads.run_all([lambda stop: 1, lambda stop: release.wait()], 2, PAST)
    release.set()
