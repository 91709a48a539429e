"""Learning the weights of the ladder: RTS, Wang-Landau, SAMS against exact log Z and variance."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pymc as pm
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import logsumexp
from support.compiled_systems import prior, system
from support.gaussian_path import (
    BETAS,
    DATA,
    MEAN,
    NOISE,
    SD,
    SKEWED,
    WALL,
    gaussian_density,
    law,
    log_z,
    make_plan,
    walled_density,
)
from support.side_runs import run_beside

import pymc_tempering as pmt
from pymc_tempering.chain.chains import make_runner, new_record, start_chain
from pymc_tempering.kernels import ACCEPTANCE, HMC, on_all
from pymc_tempering.model.compiled import KERNEL_SIGNATURE
from pymc_tempering.model.jit import njit
from pymc_tempering.references.compiled_mixture import evaluate
from pymc_tempering.warmup.log_z_rounds import (
    BURN_IN,
    LOG_F,
    POWER,
    SAMS,
    WANG_LANDAU,
    WEIGHT_ADAPTATIONS,
    Adapting,
    T,
    adapt_round,
    new_schedule,
)
from pymc_tempering.warmup.warm_up import settle, warm_up

METHODS = {"wang_landau": WANG_LANDAU, "sams": SAMS}
both = pytest.mark.parametrize("method", METHODS)
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


@njit(KERNEL_SIGNATURE)
def _exact_draw(density, point, beta, block, params, scratch, rng, info):
    """Draw from pi_beta itself, so that only the ladder's own memory is left."""
    for i in range(2):
        precision = SD[i] ** -2 + beta * NOISE[i] ** -2
        mean = (MEAN[i] / SD[i] ** 2 + beta * DATA[i] / NOISE[i] ** 2) / precision
        point.x[i] = mean + rng.standard_normal() / np.sqrt(precision)
    evaluate(density, point)
    info[:] = 0.0
    info[ACCEPTANCE] = 1.0


EXACT = replace(HMC(), name="exact", transition=_exact_draw)


@cache
def exact_plan():
    """Exact weights and unequal targets on the toy, with exact draws."""
    return make_plan("gibbs", kernel=EXACT, log_weights=SKEWED)


@cache
def asymptotic_covariance(counts):
    """n * covariance of log Z-hat (K - 1, K - 1) of the Gibbs chain at exact weights.

    The rungs are a Markov chain with P = E[q_l | x ~ pi_k], and what the methods average is
    w_k / r_k - w_1 / r_1: with w = q(. | x) for RTS and SAMS, whose lagged covariances are
    S P^s - r r' for S = E[q q'], with w the indicator of the rung for counts, diag(r) P^s - r r'.
    """
    ladder = exact_plan().ladder
    r = np.exp(ladder.log_weights)
    nodes, weights = hermegauss(60)
    weights = np.outer(weights, weights).ravel() / weights.sum() ** 2
    second = np.zeros((r.size, r.size))
    for k, beta in enumerate(ladder.betas):
        mean, sd = law(beta)
        x, y = np.meshgrid(mean[0] + sd[0] * nodes, mean[1] + sd[1] * nodes, indexing="ij")
        log_ratio = -0.5 * (((DATA[0] - x) / NOISE[0]) ** 2 + ((DATA[1] - y) / NOISE[1]) ** 2)
        q = ladder.probabilities(log_ratio.ravel())
        second += r[k] * (q * weights) @ q.T
    moves = second / r[:, None]
    ones = np.outer(np.ones(r.size), r)
    future = np.linalg.inv(np.eye(r.size) - moves + ones) - ones  # sum of P^s - 1 r', s >= 0
    first = np.diag(r) if counts else second
    total = first @ future + (first @ future).T - (first - np.outer(r, r))
    contrast = np.diag(1 / r)
    contrast[:, 0] -= 1 / r[0]
    return (contrast @ total @ contrast.T)[1:, 1:]


def adapted(method, n, repeats, *, factor=1.0, plan=None, seed=1):
    """Errors of log Z-hat (repeats, K - 1) of one chain of n iterations, from exact weights."""
    plan = plan or exact_plan()
    schedule = new_schedule(factor=factor)
    if method == "sams":  # after a burn-in of 200
        schedule[[T, BURN_IN, LOG_F]] = 200.0, 200.0, 0.0
    found = []
    for rng in np.random.default_rng(seed).spawn(repeats):
        record = new_record(n, BETAS.size, 2, n)
        state = start_chain(plan, rng)
        own = schedule.copy(), np.zeros(BETAS.size)
        found.append(adapt_round(plan, METHODS[method], state, record, *own, [(0, n)])[0])
    return (np.array(found) - log_z(BETAS))[:, 1:]


def size(errors, n, counts):
    """Mean of n * e' V^-1 e / (K - 1): 1 where the covariance is V / n."""
    inverse = np.linalg.inv(asymptotic_covariance(counts))
    return float(n * np.einsum("ij,jk,ik->i", errors, inverse, errors).mean() / len(inverse))


N, REPEATS = 1000, 200
"""800 squares in a size: its sd is 0.05."""


@pytest.mark.slow("repeats")
@both
def test_the_errors_have_the_asymptotic_covariance_and_decay_as_1_over_t(method):
    # sd 0.05, and some 0.1 for what is not yet asymptotic: Wang-Landau forgets its halvings as 1/t.
    counts = method == "wang_landau"
    short, long = (size(adapted(method, n, REPEATS), n, counts) for n in (N, 8 * N))
    assert 0.8 < long < 1.35
    assert 0.7 < short < 2.0
    assert 8 * short / long > 5.5  # the variance, in 8 times the length


@pytest.mark.slow("compiles models of its own")
def test_chains_of_sams_are_together_as_precise_as_those_of_rts():
    # Four chains each, at equal work; sd 0.05 to 0.07.
    plan = exact_plan()
    schedule = new_schedule()
    schedule[[T, BURN_IN, LOG_F]] = 200.0, 200.0, 0.0
    errors = {"rts": [], "sams": []}
    for rng in np.random.default_rng(2).spawn(100):
        for method, found in errors.items():
            states = [start_chain(plan, child) for child in rng.spawn(4)]
            learn = WEIGHT_ADAPTATIONS[method](states, 1)
            if method == "sams":
                learn.schedules = [schedule.copy() for _ in states]
            found.append((learn(plan, N).log_z - log_z(BETAS))[1:])
    for found in errors.values():
        assert 0.7 < size(np.array(found), 4 * N, False) < 1.3


@pytest.mark.slow("compiles models of its own")
def test_halving_alone_ends_on_a_plateau():
    # The planted bug of Wang-Landau: no 1 / t gains.
    short, long = (adapted("wang_landau", n, 100, factor=0.0) for n in (N, 8 * N))
    assert (short**2).mean() / (long**2).mean() < 1.5
    assert size(long, 8 * N, True) > 4.0


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(("factor", "least"), [(3.0, 1.45), (-1.0, 100.0)])
def test_a_wrong_gain_is_seen(factor, least):
    # Planted bugs of SAMS: too large, 9 / 5 of the variance in the end, and the wrong sign.
    n = N if factor < 0 else 4 * N
    assert size(adapted("sams", n, REPEATS, factor=factor), n, False) > least


@pytest.mark.slow("compiles models of its own")
def test_a_gain_that_is_too_small_is_seen():
    # What the start is off by is forgotten as 1 / t, with the planted bug as t^-0.3.
    off = np.array([0.0, 0.3, -0.3, 0.3, 0.6])
    ladder = exact_plan().ladder
    plan = exact_plan().with_ladder(ladder.with_log_z(ladder.log_z + off))
    right, small = (
        np.abs(adapted("sams", 2 * N, 50, factor=factor, plan=plan).mean(axis=0)).max()
        for factor in (1.0, 0.3)
    )
    assert right < 0.06  # 0.02 and 4 sd of 0.01
    assert small > 0.15


@pytest.mark.parametrize("move", ["gibbs", "nonreversible"])
def test_with_a_gain_of_zero_the_chain_is_the_ordinary_one(move):
    plan = make_plan(move, log_weights=SKEWED)
    one, other = (start_chain(plan, np.random.default_rng(5)) for _ in range(2))
    record, expected = (new_record(700, BETAS.size, 2, 700) for _ in range(2))
    schedule = new_schedule(factor=0.0)
    schedule[[T, BURN_IN, LOG_F]] = 9.0, 9.0, 0.0
    found, sums = adapt_round(plan, SAMS, one, record, schedule, np.zeros(BETAS.size), [(0, 700)])
    make_runner(plan)(other, expected, 701, 700)
    np.testing.assert_allclose(found, plan.ladder.log_z, rtol=1e-14)
    np.testing.assert_array_equal(record.trace_log_ratio, expected.trace_log_ratio)
    np.testing.assert_array_equal(record.trace_rung, expected.trace_rung)
    q = plan.ladder.probabilities(record.trace_log_ratio)
    np.testing.assert_allclose(sums.sum(axis=0), q.sum(axis=1))
    assert schedule[T] == 709


def replay(method, log_ratio, rungs, log_weights):
    """What the schedule does to log Z-hat, in plain Python, from the trace."""
    r, n_rungs = np.exp(log_weights), len(log_weights)
    estimate, histogram, gains = np.zeros(n_rungs), np.zeros(n_rungs), []
    log_f, clock, decaying = 1.0, 0, False
    for i, (ratio, rung) in enumerate(zip(log_ratio, rungs, strict=True), start=1):
        log_q = BETAS * ratio + log_weights - estimate
        q = np.exp(log_q - logsumexp(log_q))
        seen = q if method == "sams" else np.eye(n_rungs)[rung]
        if not decaying:
            histogram += seen
        flat = i % n_rungs == 0 and histogram.min() >= 1
        flat &= (histogram >= 0.2 * r * histogram.sum()).all()
        if method == "sams":
            clock += 1
            gain = min(r.min(), clock**-POWER) if decaying else r.min()
            if flat and not decaying:
                decaying, clock = True, r.min() ** (-1 / POWER)
        else:
            if flat and not decaying:
                histogram[:] = 0
                log_f /= 2
                decaying = log_f / n_rungs <= 1 / i
            gain = 1 / i if decaying else log_f / n_rungs
        estimate = estimate + gain * seen / r
        gains.append(gain)
    return estimate - estimate[0], gains[-1]


@both
def test_the_schedule_is_the_stated_one(method):
    plan = make_plan("gibbs", log_weights=SKEWED, log_zs=np.zeros(BETAS.size))
    record, schedule = new_record(3000, BETAS.size, 2, 3000), new_schedule()
    state = start_chain(plan, np.random.default_rng(6))
    found, _ = adapt_round(
        plan, METHODS[method], state, record, schedule, np.zeros(BETAS.size), [(0, 3000)]
    )
    expected, gain = replay(method, record.trace_log_ratio, record.trace_rung, SKEWED)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert schedule[-2] == pytest.approx(gain)
    assert schedule[LOG_F] == 0.0


FLAT_START = {
    "gibbs": {"move": "gibbs"},
    "metropolized": {"move": "metropolized_gibbs"},
    "nonreversible": {"move": "nonreversible"},
    "zero likelihood": {"move": "gibbs", "density": walled_density, "wall": WALL},
}


def from_flat(method, *, seed=1, schedule=None, max_rounds=8, **kwargs):
    """Learn weights on the toy from log Z-hat = 0."""
    plan = make_plan(**{"density": gaussian_density, "log_weights": SKEWED} | kwargs,
                     log_zs=np.zeros(BETAS.size))  # fmt: skip
    states = [start_chain(plan, rng) for rng in np.random.default_rng(seed).spawn(4)]
    learn = Adapting(states, 1, METHODS[method], schedule)
    return settle(plan, learn, None, max_rounds)


@both
@pytest.mark.parametrize("case", FLAT_START)
def test_weights_are_found_from_flat_ones(method, case):
    # Some 4,000 iterations at least. The toy's n * variance is below 24 at exact draws; HMC draws
    # remember, twice as much at most: sd 0.11, and 5 of them. The start is off by 3.5.
    wall = FLAT_START[case].get("wall", np.inf)
    plan, rounds, converged = from_flat(method, **FLAT_START[case], max_rounds=4)
    assert converged or case == "zero likelihood"  # a wall keeps the acceptance low
    assert np.abs(plan.ladder.log_z - log_z(BETAS, wall)).max() < 0.55
    assert rounds[-1].gain < 0.01
    assert rounds[-1].log_z == pytest.approx(plan.ladder.log_z[-1])


def test_a_wrong_sign_never_settles():
    schedule = new_schedule(factor=-1.0)
    schedule[[T, BURN_IN, LOG_F]] = 50.0, 50.0, 0.0
    plan, _, converged = from_flat("sams", move="gibbs", schedule=schedule, max_rounds=4)
    assert not converged
    assert np.abs(plan.ladder.log_z - log_z(BETAS)).max() > 3.0


@cache
def warmed(name, method, seed=0):
    kernel = on_all(HMC(), prior(name).path.dim)
    return warm_up(
        prior(name), kernel, np.random.default_rng(seed), ladder_move="metropolized_gibbs",
        weight_adaptation=method,
    )  # fmt: skip


@both
@pytest.mark.parametrize("name", ["gaussian", "long_path", "two_modes"])
def test_the_warm_up_freezes_good_weights_and_the_evidence_is_right(name, method):
    # 6 cases, |z| < 4: false alarm 4e-4. Occupancies within the factor of the stopping rule.
    found = warmed(name, method)
    plan = found.plan
    exact = system(name).log_z(plan.ladder.betas)
    assert found.converged
    assert np.abs(plan.ladder.log_z - exact).max() < 0.8
    leg = run_beside(plan, np.random.default_rng(3), n_chains=4, n_draws=1500, cores=1)
    assert abs(leg.evidence.log_z - exact[-1]) < 4 * leg.evidence.mcse
    visits = leg.cycles.visits.sum(axis=(0, 1))
    off = np.log(visits / visits.sum()) - plan.ladder.log_weights
    assert np.abs(off).max() < 0.8


@both
def test_long_paths_are_climbed_from_flat_weights(method):
    # log Z is -88: gains that fall from the first iteration would be spent before.
    plan = warmed("long_path", "rts").plan
    flat = plan.with_ladder(plan.ladder.with_log_z(np.zeros(plan.ladder.n_rungs)))
    states = [start_chain(flat, rng) for rng in np.random.default_rng(4).spawn(4)]
    found, _, converged = settle(flat, Adapting(states, 1, METHODS[method]), None, 7)
    assert converged
    exact = system("long_path").log_z(plan.ladder.betas)
    assert np.abs(found.ladder.log_z - exact).max() < 0.8


@pytest.mark.slow("repeats")
@both
def test_the_stated_error_of_what_follows_is_the_real_one(method):
    # sd of 150 z-scores: its own sd is 0.06. Adaptive draws in the estimate would show here.
    z = []
    for seed in range(150):
        plan, _, _ = from_flat(method, seed=seed, move="metropolized_gibbs")
        leg = run_beside(plan, np.random.default_rng(seed), n_chains=2, n_draws=300, cores=1)
        z.append((leg.evidence.log_z - log_z(BETAS)[-1]) / leg.evidence.mcse)
    assert 0.8 < np.std(z) < 1.2
    assert abs(np.mean(z)) < 4 / np.sqrt(150)


def test_seeds_decide_whatever_the_cores():
    kernel = on_all(HMC(), prior("gaussian").path.dim)
    one, two = (
        warm_up(prior("gaussian"), kernel, np.random.default_rng(3), ladder_move="gibbs",
                weight_adaptation="sams", cores=cores)
        for cores in (1, 2)
    )  # fmt: skip
    np.testing.assert_array_equal(one.plan.ladder.log_z, two.plan.ladder.log_z)
    np.testing.assert_array_equal(one.plan.ladder.betas, two.plan.ladder.betas)


@cache
def sampled(**kwargs):
    return pmt.sample(
        500, model=system("gaussian").model, random_seed=1, cores=1, **QUIET, **kwargs
    )


@pytest.mark.slow("compiles models of its own", quick=["wang_landau-prior"])
@pytest.mark.parametrize("reference", ["prior", "auto"])
@both
def test_both_legs_of_a_run_use_it(method, reference):
    idata = sampled(weight_adaptation=method, reference=reference)
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(evidence.log_z - system("gaussian").log_evidence) < 4 * evidence.mcse
    group = idata["tempering"]
    assert group.attrs["weight_adaptation"] == method
    assert group.attrs["warmup_converged"] == 1
    gains = group["warmup_gain"].values
    assert gains[-1] < 0.01
    if reference == "auto":
        assert evidence.check.verdict == "agreed"


def test_the_default_is_rts():
    usual, named = sampled(reference="prior"), sampled(reference="prior", weight_adaptation="rts")
    for name in usual.posterior.data_vars:
        np.testing.assert_array_equal(usual.posterior[name], named.posterior[name])
    assert (usual["tempering"]["warmup_gain"] == 1.0).all()


def test_the_step_method_takes_it():
    model = system("gaussian").model
    method = partial(pmt.SimulatedTempering, model=model, random_seed=1, reference="prior")
    step = method(weight_adaptation="wang_landau")
    assert not np.array_equal(step.plan.ladder.log_z, method().plan.ladder.log_z)
    idata = pm.sample(300, step=step, model=model, chains=2, cores=1, random_seed=2, **QUIET)
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(evidence.log_z - system("gaussian").log_evidence) < 4 * evidence.mcse


@pytest.mark.parametrize("door", [pmt.sample, pmt.SimulatedTempering])
def test_another_word_is_refused_before_any_work(door):
    with pytest.raises(ValueError, match=r"weight_adaptation.*'rts', 'wang_landau', 'sams'.*'wl'"):
        door(model=system("gaussian").model, weight_adaptation="wl")


def test_weights_that_do_not_settle_are_said(monkeypatch):
    once = partial(warm_up, max_rounds=1)
    monkeypatch.setattr("pymc_tempering.sampling.fit_reference.warm_up", once)
    with pytest.warns(pmt.TemperingWarning, match=r"weights did not settle in 1 r.*more draws"):
        pmt.sample(
            100, model=system("gaussian").model, random_seed=1, reference="prior",
            weight_adaptation="sams", cores=1, **QUIET,
        )  # fmt: skip
