"""The running log Z of a changing density, against the Gaussian path in closed form."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from support.synthetic import GaussianToy

from pymc_tempering import TemperingWarning
from pymc_tempering.arrays import tracker as track
from pymc_tempering.arrays.tracker import PartitionTracker, variance_of_mean
from pymc_tempering.evidence import rts_log_z
from pymc_tempering.exceptions import LadderError

BETAS = np.array([0.0, 0.1, 0.35, 1.0])
WEIGHTS = 2.0 * BETAS  # the paper's r_k, far from equal
N_CHAINS, N_SWEEPS = 60, 4
RHO = 0.5  # correlation of a state with the one before, above beta = 0


@dataclass
class Loop:
    """Persistent chains on N(0, 1) -> y ~ N(x, sigma^2), whose observation y moves.

    `slope` is added to the log ratio per update: log Z_k then drifts by exactly beta_k * slope.
    """

    tracker: PartitionTracker
    rng: np.random.Generator
    slope: float = 0.0
    n_chains: int = N_CHAINS
    n_sweeps: int = N_SWEEPS
    time: int = 0

    def __post_init__(self):
        self.x = self.rng.standard_normal(self.n_chains)

    def step(self, toy, **kwargs):
        """One change of the parameters, sweeps, one update."""
        self.time += 1
        shift = self.slope * self.time
        ratios = []
        for _ in range(self.n_sweeps):
            rung = self.tracker.draw_rungs(toy.log_ratio(self.x) + shift, self.rng)
            self.x = toy.explore(self.x, self.tracker.betas[rung], RHO, self.rng)
            ratios.append(toy.log_ratio(self.x) + shift)
        self.tracker = self.tracker.update(np.array(ratios).T, **kwargs)
        return self.tracker


TOY = GaussianToy()


def start(toy=TOY, off=0.0, alpha=0.2, log_weights=WEIGHTS):
    """Return a tracker at the exact log Z, off by `off` at beta = 1."""
    log_z = toy.log_z(BETAS) + off * BETAS
    return PartitionTracker(BETAS, log_z, log_weights, alpha)


def run(loop, n_updates, toy=TOY, **kwargs):
    """Error of log Z at beta = 1 after the updates, and the tracker."""
    for _ in range(n_updates):
        loop.step(toy, **kwargs)
    return loop.tracker.log_z[-1] - toy.log_z(1.0) - loop.slope * loop.time, loop.tracker


def repeats(n, n_updates, slope=0.0, n_chains=N_CHAINS, **kwargs):
    """Error, mcse, bias and error between chains of repeats with seeds 0 to n - 1."""
    pairs = []
    for seed in range(n):
        loop = Loop(start(**kwargs), np.random.default_rng(seed), slope, n_chains)
        error, end = run(loop, n_updates)
        chains = variance_of_mean(end._past.noise[:, 0] / end._past.done[0])
        pairs.append((error, end.mcse, end.bias, np.sqrt(chains)))
    return np.array(pairs).T


def independent_states(past, ends, alpha, log_z):
    """Take the states of a chain for independent ones: an error that is too small."""
    center = ends.mean(axis=1, keepdims=True)
    return NEXT(past, center + (ends - center) / np.sqrt(N_SWEEPS), alpha, log_z)


NEXT = track.next_past


def wrong_sign(c, ladder):
    return -RIGHT(c, ladder)


def without_weights(c, ladder):
    return np.log(c) - np.log(c[0])


RIGHT = track._rts_step


def test_an_update_with_alpha_1_is_the_rts_estimate():
    log_ratio = np.random.default_rng(0).normal(-3.0, 1.5, (30, 4))
    before = start(off=0.7)
    q = before.probabilities(log_ratio)
    expected = rts_log_z(q.sum(axis=(1, 2)), before.log_z, before.log_weights)
    np.testing.assert_allclose(before.update(log_ratio, alpha=1.0).log_z, expected, rtol=1e-12)


def test_an_update_is_equation_24():
    log_ratio = np.random.default_rng(0).normal(-3.0, 1.5, 40)
    before = start(off=0.7)
    weight = np.exp(np.outer(BETAS, log_ratio) - before.log_z[:, None] + WEIGHTS[:, None])
    c, r = (weight / weight.sum(axis=0)).mean(axis=1), np.exp(WEIGHTS)
    expected = np.exp(before.log_z[-1]) * (r[0] * c[-1] / (r[-1] * c[0])) ** 0.2
    after = before.update(log_ratio)
    assert np.exp(after.log_z[-1]) == pytest.approx(expected, rel=1e-12)
    assert after.log_z[0] == 0.0
    assert (before.n_updates, after.n_updates) == (0, 1)
    np.testing.assert_array_equal(before.log_z, start(off=0.7).log_z)  # the old one stays


def test_with_exact_c_the_start_fades_and_a_drift_is_followed_with_the_stated_lag(monkeypatch):
    """Equilibrium without noise: log(c_k / c_1) - log(r_k / r_1) = log Z_k - log Z-hat_k."""
    truth = {"log_z": np.zeros(4)}
    monkeypatch.setattr(track, "_rts_step", lambda c, ladder: truth["log_z"] - ladder.log_z)
    now = PartitionTracker(BETAS, 3.0 * BETAS, alpha=0.3)
    states = np.zeros(20)
    for t in range(1, 6):
        now = now.update(states)
        assert now.log_z[-1] == pytest.approx(3.0 * 0.7**t)
        assert now.start_share == pytest.approx(0.7**t)
        assert now.mcse == pytest.approx(3.0 * 0.7**t)  # all that is left is the start
    for t in range(1, 101):
        truth["log_z"] = 0.1 * t * BETAS
        now = now.update(states)
    assert now.lag == pytest.approx(0.7 / 0.3, rel=1e-6)
    assert now.drift == pytest.approx(0.1, rel=1e-4)
    assert now.log_z[-1] == pytest.approx(10.0 - now.lag * 0.1, rel=1e-6)
    assert now.mcse == pytest.approx(now.lag * 0.1, rel=1e-4)


def sound(error, mcse, bias, between):
    """Whether errors of repeats have the stated mean and size."""
    near = abs(error.mean() - bias.mean()) < 4.0 * error.std(ddof=1) / np.sqrt(error.size)
    noise = np.std((error - bias) / between) if np.all(between > 0.0) else np.inf
    stated = np.sqrt(np.mean((error / mcse) ** 2))
    return near and error.std() < 0.15 and 0.7 < noise < 1.3 and 0.7 < stated < 1.15


@pytest.mark.slow("repeats")
def test_a_fixed_density_is_estimated_with_the_stated_error():
    # off by 2 nats at the start, of which 2 * 0.8^30 = 0.002 are left; 100 repeats: the root mean
    # square of z is known to 7 %, so that the false alarm is below 1e-3 (noise: 4 of its errors)
    assert sound(*repeats(100, 30, off=2.0))


@pytest.mark.parametrize("bug", [wrong_sign, without_weights])
def test_a_planted_bug_of_the_step_is_seen(monkeypatch, bug):
    monkeypatch.setattr(track, "_rts_step", bug)
    try:
        found = sound(*repeats(10, 30, off=0.2))
    except LadderError:
        found = False  # log Z ran away until a rung had no weight
    assert not found


def test_an_error_that_is_too_small_is_seen(monkeypatch):
    monkeypatch.setattr(track, "next_past", independent_states)
    error, _, bias, between = repeats(40, 20)
    assert np.std((error - bias) / between) > 1.3


def test_falling_shares_converge_where_nothing_changes():
    loop = Loop(start(off=1.0), np.random.default_rng(3))
    run(loop, 20)
    loop.tracker = PartitionTracker(BETAS, loop.tracker.log_z, WEIGHTS)
    for t in range(1, 601):
        loop.step(TOY, alpha=1.0 / t)
    end = loop.tracker
    error = end.log_z[-1] - TOY.log_z(1.0)
    assert end.start_share == 0.0
    assert abs(error) < 0.1  # 4 standard errors; 0.55 nats would be those of a single update
    assert abs(error) < 4.0 * end.mcse < 0.5


@pytest.mark.slow("repeats")
def test_a_steady_drift_is_followed_with_the_stated_lag_and_error():
    # slope 0.05 nats per update, (1 - alpha) / alpha = 4 updates behind; |z| < 4 over 60 repeats
    error, mcse, bias, _ = repeats(60, 40, slope=0.05)
    excess = error.mean() - bias.mean() + 4.0 * 0.05
    assert abs(excess) < 4.0 * error.std() / np.sqrt(60)
    assert np.mean(np.abs(error) > 2.5 * mcse) < 0.1
    # planted: as far behind as with alpha = 0.1
    assert abs(excess + 5.0 * 0.05) > 4.0 * error.std() / np.sqrt(60)


def test_a_tracker_that_does_not_forget_is_seen_to_fall_behind():
    """The planted bug: shares 1 / t, the mean of all updates, on a drift."""
    loop = Loop(start(), np.random.default_rng(0), slope=0.05)
    for t in range(1, 61):
        loop.step(TOY, alpha=1.0 / t)
    error = loop.tracker.log_z[-1] - TOY.log_z(1.0) - 0.05 * 60
    assert error < -1.0  # about half of 0.05 * 60
    assert loop.tracker.mcse > 0.5 * abs(error)  # and its own error says so


@pytest.mark.slow("compiles models of its own")
def test_an_observation_that_moves_is_tracked():
    """On average log Z is the exact log Z averaged over the past with the tracker's weights.

    y from 0.5 to 2.5 and back in 200 updates: log Z falls by 2.4 nats and rises again. |t| < 5 with
    19 degrees of freedom at 20 times: false alarm 2e-3. Within 4 of its error at 98 % of them.
    """
    toys = [GaussianToy(y=1.5 - np.cos(2.0 * np.pi * t / 200)) for t in range(201)]
    exact = np.array([toy.log_z(1.0) for toy in toys])
    lagged = exact.copy()
    for t in range(1, 201):
        lagged[t] = 0.8 * lagged[t - 1] + 0.2 * exact[t]
    runs = []
    for seed in range(20):
        loop = Loop(start(toys[0]), np.random.default_rng(seed))
        ends = [loop.step(toy) for toy in toys[1:]][9::10]
        runs.append([(end.log_z[-1], end.mcse, end.bias) for end in ends])
    log_z, mcse, bias = np.moveaxis(np.array(runs), 2, 0)
    error = log_z - bias - lagged[10::10]
    assert np.all(np.abs(error.mean(axis=0)) < 5.0 * error.std(axis=0, ddof=1) / np.sqrt(20))
    assert np.mean(np.abs(log_z - exact[10::10]) > 4.0 * mcse) < 0.02
    assert np.sqrt(np.mean((log_z - exact[10::10]) ** 2)) < 0.2


def test_rungs_are_drawn_from_their_probabilities():
    # 3 free counts of 40,000 draws, |z| < 4: false alarm 2e-4
    tracker_, log_ratio = start(), -1.3
    rungs = tracker_.draw_rungs(np.full(40_000, log_ratio), np.random.default_rng(1))
    q = tracker_.probabilities(log_ratio)
    assert q.shape == (4,)
    share = np.bincount(rungs, minlength=4) / 40_000
    assert np.all(np.abs(share - q) < 4.0 * np.sqrt(q * (1.0 - q) / 40_000))
    assert start().draw_rungs([-np.inf] * 50, np.random.default_rng(0)).max() == 0


def test_a_saved_tracker_goes_on_as_the_first():
    loop = Loop(start(), np.random.default_rng(0))
    _, now = run(loop, 5)
    again = pickle.loads(pickle.dumps(now))
    ratio = TOY.log_ratio(loop.x)
    one, two = now.update(ratio), again.update(ratio)
    np.testing.assert_array_equal(one.log_z, two.log_z)
    assert (one.mcse, one.drift, one.lag) == (two.mcse, two.drift, two.lag)
    with pytest.raises(ValueError, match="read-only"):
        now.log_z[1] = 0.0


def test_before_the_first_update_there_is_no_error():
    now = start()
    assert (now.mcse, now.start_share, now.n_updates) == (np.inf, 1.0, 0)
    assert now.window == pytest.approx(9.0)


def test_few_chains_have_no_error_and_say_so_once():
    with pytest.warns(TemperingWarning, match="19 chains are too few"):
        now = start().update(np.linspace(-4.0, 0.0, 19))
    assert now.update(np.linspace(-4.0, 0.0, 19)).mcse == np.inf
    assert np.isfinite(start().update(np.linspace(-4.0, 0.0, 20)).mcse)


@pytest.mark.parametrize("alpha", [0.0, -0.2, 1.5, np.nan])
def test_a_share_outside_0_to_1_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be"):
        start(alpha=alpha)
    with pytest.raises(ValueError, match="alpha must be"):
        start().update(np.zeros(20), alpha=alpha)


@pytest.mark.parametrize(
    ("log_ratio", "words"),
    [
        (np.array([[0.0, np.nan]] * 20), r"NaN or \+inf at 20 of 40 states, .* \(0, 1\)"),
        (np.full(20, np.inf), r"NaN or \+inf"),
        (np.zeros((20, 0)), r"\(20, 0\)"),
        (np.zeros((20, 2, 2)), r"\(20, 2, 2\)"),
        (1.0, r"not \(\)"),
        (np.full(20, -np.inf), r"No state has any weight at rung 1 \(beta = 0.1\)"),
    ],
)
def test_bad_log_ratios_are_refused(log_ratio, words):
    with pytest.raises((ValueError, LadderError), match=words):
        start().update(log_ratio)


def test_another_number_of_chains_is_refused():
    with pytest.raises(ValueError, match="has 30 chains, the updates before had 20"):
        start().update(np.linspace(-4.0, 0.0, 20)).update(np.linspace(-4.0, 0.0, 30))


def test_what_is_no_ladder_is_refused():
    with pytest.raises(LadderError, match="increase strictly"):
        PartitionTracker([0.0, 0.5, 0.5, 1.0], np.zeros(4))
    with pytest.raises(LadderError, match="one finite number"):
        PartitionTracker(BETAS, [0.0, 1.0, np.nan, 1.0])
