"""The automatic warm-up on exact systems: log Z, stopping rule, step sizes, spacing."""

from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest
from support.compiled_systems import SYSTEMS, prior, system
from support.gaussian_path import PLANTED

from pymc_tempering import testsystems
from pymc_tempering.chain.chains import make_runner, new_record, start_chain
from pymc_tempering.chain.loop import ACCEPT, UP_ACCEPT, VISITS
from pymc_tempering.kernels import HMC, Slice, on_all
from pymc_tempering.kernels.hmc import LENGTHS, PATH_LENGTH
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.mixture import FullScales, Mixture
from pymc_tempering.references.prior import Fitted
from pymc_tempering.warmup import annealed_pass
from pymc_tempering.warmup.annealed_pass import anneal, choose_lengths
from pymc_tempering.warmup.log_z_rounds import MAX_BLIND_STEP, updated
from pymc_tempering.warmup.warm_up import warm_up

every_system = pytest.mark.parametrize("name", SYSTEMS)
N_SEEDS = 6


def hmc(name):
    return on_all(HMC(), prior(name).path.dim)


@cache
def warmed(name, seed, move="metropolized_gibbs"):
    rng = np.random.default_rng(seed)
    return warm_up(prior(name), hmc(name), rng, ladder_move=move)


@every_system
def test_the_annealed_pass_finds_log_z(name):
    # |z| < 4 with six seeds, a t of 5 degrees of freedom: false alarm 1e-2 over all systems
    exact = system(name).log_evidence
    off = np.array([warmed(name, seed).annealed.log_z[-1] - exact for seed in range(N_SEEDS)])
    assert np.sqrt((off**2).mean()) < 0.5
    # log of an unbiased estimate: half the variance too low. Between two modes the particles lag a
    # little: -.13 in the mean of 12 passes, with as many gradients for a root mean square of .17
    # as a diagonal metric takes for .24.
    error = off.std(ddof=1) / np.sqrt(N_SEEDS)
    lag = 0.15 if name == "two_modes" else 0.01
    assert abs(off.mean() + 0.5 * off.var(ddof=1)) < 4.0 * error + lag


def test_a_kernel_without_an_accept_step_misses_it():
    # The planted bug; its step size may not grow, since it accepts all.
    kernel = PLANTED["no accept step"]()
    pinned = replace(kernel, pack=lambda step, scale, block: kernel.pack(1.5, scale, block))
    annealed = anneal(
        prior("gaussian"),
        on_all(pinned, prior("gaussian").path.dim),
        np.random.default_rng(1),
        n_particles=2000,
    )
    assert abs(annealed.log_z[-1] - system("gaussian").log_evidence) > 0.5


def test_a_stage_stops_tuning_once_it_is_dear(monkeypatch):
    monkeypatch.setattr(annealed_pass, "ACCEPT_TOLERANCE", 0.0)  # so that none ends by itself
    whole, same, short = (
        anneal(
            prior("gaussian"), hmc("gaussian"), np.random.default_rng(1), n_particles=256,
            stage_cost=cost,
        )
        for cost in (np.inf, 1e6, 1.0)
    )  # fmt: skip
    np.testing.assert_array_equal(whole.log_z, same.log_z)
    assert 3 * short.n_evaluations < whole.n_evaluations
    assert abs(short.log_z[-1] - system("gaussian").log_evidence) < 1.0


def test_the_path_from_a_fitted_reference_has_no_metric_of_its_wide_prior_draws():
    """The prior is 30 times as wide as the posterior, and 5 % of the reference's draws are its."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 30, shape=3), 1, observed=np.zeros(3))
    components = Mixture(
        np.ones(1), np.zeros((1, 3)), FullScales(1.1 * np.eye(3)[None]), np.array([30.0]), 0.05
    )
    reference = Fitted(compile_model(model), components)
    kernel = on_all(HMC(metric="diag"), 3)
    annealed = anneal(reference, kernel, np.random.default_rng(1), n_particles=256)
    assert annealed.tuning.scales[:2].max() < 1.5
    drawn = reference.draw(256, reference.spawn(np.random.default_rng(2)))
    assert reference.residuals(drawn).std(axis=0).min() > 3.0  # the scale that it would have


@every_system
def test_the_initial_iterations_reach_their_stopping_rule(name):
    runs = [warmed(name, seed) for seed in range(N_SEEDS)]
    assert sum(run.converged for run in runs) >= N_SEEDS - 1
    off = [run.plan.ladder.log_z - system(name).log_z(run.plan.ladder.betas) for run in runs]
    # Root mean square of the worst rung: up to .37 in 40 seeds of each system.
    assert np.sqrt(np.mean([np.abs(o).max() ** 2 for o in off])) < 0.8
    for run in runs:
        last = run.rounds[-1]
        assert last.n_iterations >= 200 * last.n_rungs
        assert last.log_z == pytest.approx(run.plan.ladder.log_z[-1])


@cache
def frozen_run(name, n_draws=1000):
    """Sums over a frozen run of one chain, (stats, K)."""
    plan = warmed(name, 0).plan
    state = start_chain(plan, np.random.default_rng(7))
    record = new_record(n_draws, plan.ladder.n_rungs, plan.reference.path.dim)
    make_runner(plan)(state, record, n_draws, 1_000_000)
    return record.per_rung.sum(axis=0)


@every_system
def test_step_sizes_give_the_target_acceptance_at_each_rung(name):
    sums = frozen_run(name)
    acceptance = sums[ACCEPT] / sums[VISITS]
    assert acceptance[0] == 1.0
    assert acceptance[1:].min() > 0.6
    assert acceptance[1:].max() < 0.98
    assert abs(acceptance[1:].mean() - 0.8) < 0.12


def test_a_shorter_trajectory_is_chosen_where_it_changes_log_ratio_more():
    # Jumps (stage, choice) at variance 1: rho = 1 - jump / 2. The gain has to be 10 % at least.
    rng = np.random.default_rng(1)
    log_ratio = rng.standard_normal((7, 4000))
    log_ratio[:, :9] = -np.inf  # dead particles do not count
    costs = np.tile([4.0, 2.0], (6, 1))

    def chosen(usual, other):
        return choose_lengths(np.column_stack([usual, other]), costs, log_ratio)

    one = np.ones(6)
    np.testing.assert_array_equal(chosen(one, 0.65 * one), np.ones(7))
    np.testing.assert_array_equal(chosen(one, 0.52 * one), np.zeros(7))
    np.testing.assert_array_equal(chosen(0.2 * one, 0.2 * one), np.zeros(7))  # forgets too slowly
    np.testing.assert_array_equal(chosen(one, 0 * one), np.zeros(7))  # it never moved
    halves = np.repeat([0.4, 0.8], 3)
    np.testing.assert_array_equal(chosen(one, halves), [0, 0, 0, 0, 1, 1, 1])
    outlier = np.array([0.65, 0.65, 0.45, 0.65, 0.65, 0.65])
    np.testing.assert_array_equal(chosen(one, outlier), np.ones(7))


def test_lengths_are_chosen_by_rung_and_reach_the_kernel():
    kernel = on_all(HMC(), prior("gaussian").path.dim)
    found = warm_up(prior("gaussian"), kernel, np.random.default_rng(1), ladder_move="gibbs")
    plan = found.plan
    assert found.converged
    assert np.isin(plan.tuning.lengths, LENGTHS).mean() > 0.5  # the others lie between two stages
    assert (plan.tuning.lengths[1:] < 0.9).mean() > 0.5
    np.testing.assert_array_equal(plan.rungs.params[:, PATH_LENGTH], plan.tuning.lengths[:, 0])


@pytest.mark.parametrize("kernel", [HMC(path_length=0.9), Slice()])
def test_a_length_that_is_given_or_none_is_left_alone(kernel):
    annealed = anneal(
        prior("gaussian"),
        on_all(kernel, prior("gaussian").path.dim),
        np.random.default_rng(1),
        n_particles=64,
    )
    assert np.isnan(annealed.tuning.lengths).all()


@every_system
def test_neighboring_rejection_rates_are_about_equal(name):
    sums = frozen_run(name)
    rejection = 1.0 - sums[UP_ACCEPT, :-1] / sums[VISITS, :-1]
    assert rejection.max() < 0.75
    assert rejection.max() - rejection.min() < 0.35


def test_a_ladder_that_the_user_gave_is_kept():
    betas = np.array([0.0, 0.01, 0.2, 1.0])
    found = warm_up(
        prior("gaussian"),
        hmc("gaussian"),
        np.random.default_rng(1),
        ladder_move="gibbs",
        betas=betas,
    )
    np.testing.assert_array_equal(found.plan.ladder.betas, betas)
    assert np.abs(found.plan.ladder.log_z - system("gaussian").log_z(betas)).max() < 0.5


def test_the_number_of_rungs_follows_rungs_per_barrier():
    few, many = (
        warm_up(
            prior("gaussian"), hmc("gaussian"), np.random.default_rng(1), ladder_move="gibbs",
            rungs_per_barrier=r,
        ).plan.ladder.n_rungs
        for r in (1.5, 4.5)
    )  # fmt: skip
    assert few < many <= 3 * few + 3


def test_the_seed_decides_whatever_the_cores():
    one = warm_up(prior("gaussian"), hmc("gaussian"), np.random.default_rng(3), ladder_move="gibbs")
    two = warm_up(
        prior("gaussian"), hmc("gaussian"), np.random.default_rng(3), ladder_move="gibbs", cores=2
    )
    np.testing.assert_array_equal(one.plan.ladder.log_z, two.plan.ladder.log_z)
    np.testing.assert_array_equal(one.plan.ladder.betas, two.plan.ladder.betas)
    np.testing.assert_array_equal(one.plan.tuning.step_sizes, two.plan.tuning.step_sizes)


@pytest.mark.parametrize("move", ["gibbs", "nonreversible"])
def test_the_other_ladder_moves_settle_too(move):
    found = warmed("long_path", 1, move)
    assert found.converged
    exact = system("long_path").log_z(found.plan.ladder.betas)
    assert np.abs(found.plan.ladder.log_z - exact).max() < 1.0


def test_what_all_batches_saw_is_stepped_in_full():
    off, error = np.array([0.4, -0.1, -5.0]), np.array([0.1, 0.2, 0.6])
    log_z, whole = updated(np.array([0.0, -3.0, -7.0]), off, error)
    assert whole
    np.testing.assert_allclose(log_z, [0.0, -3.5, -12.4])


@pytest.mark.parametrize("far", [-30.0, -np.inf, np.nan])
def test_beyond_what_a_round_saw_log_z_hardly_moves(far):
    # two rungs that no chain came near, and between the others the whole step
    off = np.array([0.9, 0.5, -12.0, far, -40.0 if np.isfinite(far) else far])
    error = np.array([0.1, 0.2, 0.6, 1.0, np.nan])
    step, whole = updated(np.zeros(5), off, error)
    assert not whole
    np.testing.assert_allclose(step[:3], off[:3] - off[0])
    assert (np.abs(np.diff(step[2:])) <= MAX_BLIND_STEP).all()


def passes_in_many_dimensions(n=8):
    """Errors of log Z of passes with few particles, under 300 normal means (nats)."""
    wide = testsystems.gaussian_posterior(dim=300)
    reference = compile_model(wide.model)
    kernel = on_all(HMC(), reference.path.dim)
    passes = [
        anneal(reference, kernel, np.random.default_rng(seed), n_particles=16, stage_cost=20.0)
        for seed in range(n)
    ]
    return np.array([one.log_z[-1] for one in passes]) - wide.log_evidence


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("planted", [False, True])
def test_particles_do_not_tell_their_own_metric_in_many_dimensions(planted, monkeypatch):
    """Unbiased estimates of Z are too high by a factor of c with a probability of 1 / c at most.

    So one of eight is by 9 nats or more once in a thousand times.
    """
    if planted:
        monkeypatch.setattr(annealed_pass, "WIDE_DIM", 1000)
    assert (passes_in_many_dimensions().max() < 9.0) == (not planted)


def full_step(log_z, off, error):
    return log_z + off - off[0], True


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("planted", [False, True])
def test_a_first_round_that_ends_before_the_posterior_does_not_strand_the_chains(
    planted, monkeypatch
):
    # 24 rungs in 100 dimensions: the first round of this seed does not get to the last ones.
    # With the full step of eq. (12) log Z-hat is off by 104 nats in the end, and does not settle.
    if planted:
        monkeypatch.setattr("pymc_tempering.warmup.log_z_rounds.updated", full_step)
    wide = testsystems.gaussian_posterior(dim=100)
    reference = compile_model(wide.model)
    kernel = on_all(HMC(), reference.path.dim)
    rng = np.random.default_rng(27)
    run = warm_up(reference, kernel, rng, ladder_move="metropolized_gibbs")
    ladder = run.plan.ladder
    good = run.converged and np.abs(ladder.log_z - wide.log_z(ladder.betas)).max() < 2.0
    assert good == (not planted)
