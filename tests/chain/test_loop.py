"""The compiled loop: exact laws at each rung, sums recounted from single iterations, and chunks."""

from functools import cache

import numba
import numpy as np
import pytest
from numba import types
from scipy.special import logsumexp
from support.gaussian_path import (
    BETAS,
    PLANTED,
    SKEWED,
    WALL,
    batch_z,
    chain_on,
    gaussian_density,
    law,
    law_pvalues,
    log_z,
    make_plan,
    nan_density,
    recount,
    thin,
    walled_density,
)

from pymc_tempering.chain.chains import clear_record, make_runner, new_record
from pymc_tempering.chain.loop import (
    CHAIN,
    LADDER_MOVES,
    N_DRAWS,
    RECORD,
    RUNG,
    RUNGS,
    SCALAR_STATS,
    WORK,
    new_work,
    run,
)
from pymc_tempering.chain.particles import place_under, sweep
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.model.compiled import DENSITY, EXPLORE, MATRIX, PARTS, RNG, new_point
from pymc_tempering.model.jit import njit

every_move = pytest.mark.parametrize("move", LADDER_MOVES)
both_weights = pytest.mark.parametrize("weights", ["uniform", "skewed"])
WEIGHTS = {"uniform": np.full(5, np.log(0.2)), "skewed": SKEWED}


@njit(
    types.void(DENSITY, EXPLORE, PARTS, RUNGS, CHAIN, RECORD, MATRIX, RNG, WORK, MATRIX,
               numba.int64[::1]),
)  # fmt: skip
def watch(density, explore, parts, rungs, chain, record, references, rng, work, xs, at):
    """Run one iteration at a time, and note where it was."""
    for i in range(xs.shape[0]):
        at[i] = chain.counters[RUNG]
        chain.counters[N_DRAWS] = 0
        run(density, explore, parts, rungs, chain, record, references, rng, work, 2, 1)
        xs[i] = chain.point.x


def states(plan, n, seed):
    """States (n, 2) and rungs (n,) of all iterations of one chain."""
    state = chain_on(plan, seed)
    xs, at = np.empty((n, 2)), np.empty(n, dtype=np.int64)
    path = plan.reference.path
    watch(
        path.density, plan.kernel.explore, plan.kernel.parts, plan.rungs, state.chain,
        new_record(2, 5, 2),
        plan.reference.draw(n, state.reference_rngs), state.rng, new_work(plan.kernel, 5, 2),
        xs, at,
    )  # fmt: skip
    return xs, at


def rung_scores(plan, n=40_000, seed=1):
    """Smallest KS p-value and largest |z| of the moments at each rung, and z of occupancies."""
    xs, at = states(plan, n, seed)
    p, z = [], []
    for k, beta in enumerate(BETAS):
        here = xs[at == k]
        mean, sd = law(beta)
        s = (here - mean) / sd
        moments = np.column_stack([s, s**2, s[:, 0] * s[:, 1]])
        z.append(np.abs(batch_z(moments, [0.0, 0.0, 1.0, 1.0, 0.0])).max())
        p.append(law_pvalues(thin(here), beta).min())
    visits = (at[:, None] == np.arange(5)).astype(float)
    occupancy = batch_z(visits, np.exp(plan.ladder.log_weights))
    return np.array(p), np.array(z), np.abs(occupancy)


@both_weights
@every_move
def test_each_rung_has_its_law_and_its_share(move, weights):
    # 20 KS p > 1e-4, 25 moments and 5 occupancies |z| < 4.5: false alarm 2e-3 a case, seed fixed
    p, z, occupancy = rung_scores(make_plan(move, log_weights=WEIGHTS[weights]))
    assert p.min() > 1e-4
    assert z.max() < 4.5
    assert occupancy.max() < 4.5


@pytest.mark.slow("repeats", every=3)
@every_move
@pytest.mark.parametrize("bug", ["no accept step", "beta off by a rung"])
def test_planted_bugs_in_the_exploration_break_the_laws(bug, move):
    p, z, _ = rung_scores(make_plan(move, kernel=PLANTED[bug]()))
    assert p[1:].min() < 1e-12
    assert z[1:].max() > 8.0


@pytest.mark.slow("repeats", every=3)
@every_move
def test_planted_bugs_in_the_ladder_break_the_occupancies(move):
    for log_zs in (np.append(0.0, log_z(BETAS)[:-1]), -log_z(BETAS)):
        _, at = states(make_plan(move, log_zs=log_zs, log_weights=SKEWED), 4000, seed=1)
        hot = (at == 0).astype(float)
        assert abs(batch_z(hot, np.exp(SKEWED[0]), 20)) > 8.0


@every_move
def test_wrong_constants_lead_to_occupancies_that_say_by_how_much(move):
    # c_k / r_k is proportional to Z_k / Z-hat_k; |z| < 4.5 at five rungs: false alarm 3e-5
    wrong = log_z(BETAS) + np.array([0.0, 0.4, -0.5, 0.3, -0.2])
    plan = make_plan(move, log_zs=wrong, log_weights=SKEWED)
    share = SKEWED + log_z(BETAS) - wrong
    _, at = states(plan, 40_000, seed=2)
    visits = (at[:, None] == np.arange(5)).astype(float)
    assert np.abs(batch_z(visits, np.exp(share - logsumexp(share)))).max() < 4.5


@cache
def recorded(move, density=gaussian_density, wall=np.inf, n_draws=400, seed=3):
    plan = make_plan(move, density=density, log_weights=SKEWED, wall=wall)
    state, record = chain_on(plan, seed), new_record(n_draws, 5, 2, 50_000)
    make_runner(plan)(state, record, n_draws, 50_000)
    assert state.n_draws == n_draws
    return plan, state, record


@pytest.mark.parametrize("walled", [False, True], ids=["", "walled"])
@every_move
def test_the_sums_of_each_cycle_are_those_recounted_from_the_trace(move, walled):
    density, wall = (walled_density, WALL) if walled else (gaussian_density, np.inf)
    plan, state, record = recorded(move, density, wall)
    n = state.n_trace
    cycles = recount(plan.ladder, record.trace_log_ratio[:n], record.trace_rung[:n])
    assert len(cycles) == state.n_draws
    for i, (sums, steps, tour_start, lowest, n_zero) in enumerate(cycles):
        scalars = dict(zip(SCALAR_STATS, record.scalars[i], strict=True))
        assert scalars["tempering_steps"] == steps
        assert scalars["tour_start"] == tour_start
        assert scalars["lowest_rung"] == lowest
        assert scalars["n_zero_likelihood"] == n_zero
        for name, values in zip(RUNG_STATS, record.per_rung[i], strict=True):
            if name != "accept_sum":
                np.testing.assert_allclose(values, sums[name], rtol=1e-9, atol=1e-9, err_msg=name)
    accept = record.per_rung[:400, RUNG_STATS.index("accept_sum")]
    visits = record.per_rung[:400, RUNG_STATS.index("visits")]
    assert (accept <= visits + 1e-9).all()
    np.testing.assert_array_equal(accept[:, 0], visits[:, 0])
    assert sum(cycle[2] for cycle in cycles) > 20  # tours there were
    assert (sum(cycle[4] for cycle in cycles) > 20) == walled


@every_move
def test_recorded_draws_are_the_states_at_beta_1(move):
    _, state, record = recorded(move)
    point = new_point(2)
    at_top = record.trace_log_ratio[: state.n_trace][record.trace_rung[: state.n_trace] == 4]
    for x, ratio, scalars in zip(record.x, at_top, record.scalars, strict=True):
        gaussian_density(x, point.values, point.grads)
        assert point.values[1] == ratio == scalars[SCALAR_STATS.index("log_ratio")]
        assert point.values.sum() == scalars[SCALAR_STATS.index("lp")]


@every_move
def test_a_likelihood_that_is_zero_somewhere_keeps_the_shares(move):
    # |z| < 4.5 at five rungs: false alarm 3e-5; log Z with the wall is exact, and Z(0) is still 1
    plan = make_plan(move, density=walled_density, wall=WALL, log_weights=SKEWED)
    xs, at = states(plan, 30_000, seed=4)
    visits = (at[:, None] == np.arange(5)).astype(float)
    assert np.abs(batch_z(visits, np.exp(SKEWED))).max() < 4.5
    assert (xs[at > 0, 0] <= WALL).all()
    assert law_pvalues(xs[at == 0], 0.0).min() > 1e-4  # all of the prior, beyond the wall too


@every_move
def test_not_a_number_is_counted_and_never_ends_the_run(move):
    plan = make_plan(move, density=nan_density, wall=WALL)
    state, record = chain_on(plan, 5), new_record(300, 5, 2)
    make_runner(plan)(state, record, 300, 100_000)
    assert state.n_draws == 300
    assert np.isfinite(record.x).all()
    assert np.isfinite(record.per_rung).all()
    assert (record.x[:, 0] <= WALL).all()
    assert record.scalars[:, SCALAR_STATS.index("n_divergences")].sum() > 50
    assert record.scalars[:, SCALAR_STATS.index("n_zero_likelihood")].sum() > 20


@every_move
def test_chunks_make_no_difference(move):
    whole_plan, whole_state, whole = recorded(move)
    state, record = chain_on(whole_plan, 3), new_record(400, 5, 2, 50_000)
    advance = make_runner(whole_plan)
    for chunk in [1, 1, 2, 7, 300, 13] * 1000:
        if advance(state, record, 400, chunk) < chunk:
            break
    n = state.n_trace
    assert n == whole_state.n_trace
    for mine, theirs in zip(record[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(record.trace_rung[:n], whole.trace_rung[:n])
    np.testing.assert_array_equal(record.trace_log_ratio[:n], whole.trace_log_ratio[:n])
    clear_record(state)
    assert (state.n_draws, state.n_trace) == (0, 0)


def test_an_advance_stops_at_the_iterations_or_the_draws_whichever_comes_first():
    plan = make_plan()
    state, record = chain_on(plan, 6), new_record(10, 5, 2)
    advance = make_runner(plan)
    assert advance(state, record, 10, 3) == 3
    assert state.n_iterations == 3
    advance(state, record, 10, 100_000)
    assert state.n_draws == 10
    assert state.n_iterations < 100_000
    assert advance(state, record, 10, 5) == 0


def test_a_circular_coordinate_is_wrapped():
    plan = make_plan(circular=np.array([0]))
    xs, at = states(plan, 5000, seed=7)
    assert np.abs(xs[at > 0, 0]).max() <= np.pi


def test_a_sweep_moves_each_particle_once():
    # KS p > 1e-4 in four tests: false alarm 4e-4, seed fixed
    plan, rng = make_plan(), np.random.default_rng(8)
    mean, sd = law(0.45)
    start = mean + sd * rng.standard_normal((2000, 2))
    particles = place_under(gaussian_density, plan.kernel, start.copy(), rng)
    log_ratio = sweep(particles, 0.45, plan.rungs.params[3])
    assert (particles.xs != start).any(axis=1).mean() > 0.7
    assert law_pvalues(particles.xs, 0.45).min() > 1e-4
    assert 0.7 < particles.accepted[0] / 2000 <= 1.0
    np.testing.assert_array_equal(log_ratio[0], particles.log_ratio)
