"""Bridges to binary variables and the continuous ones beside them, against enumeration."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, multivariate_t

import pymc_tempering as pmt
from pymc_tempering.bridge import binary
from pymc_tempering.bridge.binary import Regressions, fit_regressions
from pymc_tempering.bridge.bridge_sampling import bridge_states
from pymc_tempering.bridge.proposals import find_fit
from pymc_tempering.bridge.target import Target
from pymc_tempering.evidence.reference_check import with_bridge
from pymc_tempering.model.path import compile_path
from pymc_tempering.sampling import bridged

RNG = np.random.default_rng(3)
X = RNG.normal(size=(30, 4))
X[:, 1] = X[:, 0] + 0.2 * RNG.normal(size=30)
Y = X @ [0.5, 0.0, 0.4, 0.0] + RNG.normal(size=30)
SHARE = 0.3
STATES = np.array(list(product([0, 1], repeat=4)))
REPEATS = 100


def spike_and_slab():
    """Four coefficients with an indicator each; two of their columns are nearly collinear."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", SHARE, shape=4)
        slab = pm.Normal("slab", 0, 1, shape=4)
        pm.Normal("y", pm.math.dot(X, z * slab), 1.0, observed=Y)
    return model


def by_enumeration():
    """Log Z, the probability of each state, and the normal laws of its coefficients."""
    logs, laws = [], []
    for z in STATES:
        columns = X * z
        covariance = columns @ columns.T + np.eye(len(Y))
        log_prior = z @ np.log([SHARE] * 4) + (1 - z) @ np.log([1 - SHARE] * 4)
        logs.append(log_prior + multivariate_normal(np.zeros(30), covariance).logpdf(Y))
        precision = columns.T @ columns + np.eye(4)
        laws.append((np.linalg.solve(precision, columns.T @ Y), np.linalg.inv(precision)))
    log_z = logsumexp(logs)
    return log_z, np.exp(logs - log_z), laws


LOG_Z, CHANCES, LAWS = by_enumeration()
INCLUDED = CHANCES @ STATES


def exact_draws(n, rng):
    """Posterior draws, shape (4, n, 8), in the order of the raveled variables."""
    which = rng.choice(len(STATES), (4, n), p=CHANCES)
    slabs = np.array([rng.multivariate_normal(*LAWS[k]) for k in which.ravel()])
    return np.concatenate([STATES[which], slabs.reshape(4, n, 4)], axis=2).astype(float)


@pytest.fixture(scope="module")
def target():
    path = compile_path(spike_and_slab(), gradient=["slab"], values=True)
    return Target(path, 1)


def test_the_regressions_sum_to_one_and_draw_from_their_law():
    law = Regressions(np.full(4, 0.3), RNG.normal(size=4), np.tril(RNG.normal(size=(4, 4)), -1))
    chances = np.exp(law.log_density(STATES.astype(float)))
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    n = 40_000
    drawn = law.draw(n, np.random.default_rng(1)) @ [8, 4, 2, 1]
    shares = np.bincount(drawn.astype(int), minlength=16) / n
    assert (np.abs(shares - chances) < 4.5 * np.sqrt(chances / n)).all()


def test_regressions_find_the_law_of_draws():
    law = Regressions(np.full(3, 0.5), np.array([0.5, -1.0, 0.2]), np.zeros((3, 3)))
    law.slopes[1, 0], law.slopes[2, 0], law.slopes[2, 1] = 1.5, -1.0, 0.8
    zs = law.draw(50_000, np.random.default_rng(2))
    found = fit_regressions(zs, np.ones(len(zs)))
    own = Regressions(found.means, found.intercepts, found.slopes)
    some = np.array(list(product([0.0, 1.0], repeat=3)))
    assert np.allclose(own.log_density(some), law.log_density(some), atol=0.08)


def test_no_value_is_forgotten():
    """A value that no draw has keeps a chance of 1 in 1,000, whatever the regressions say."""
    zs = np.zeros((5000, 2))
    law = fit_regressions(zs, np.ones(len(zs)))
    assert law.log_density(np.array([[1.0, 0.0]]))[0] > np.log(0.9e-3)


@pytest.mark.slow("compiles models of its own")
def test_the_density_given_a_state_is_a_t_at_its_mode(target):
    proposal = find_fit("t", target)(exact_draws(500, np.random.default_rng(1))[0], RNG)
    for k in (0, 5, 10):
        mean, covariance = LAWS[k]
        states = np.column_stack([np.tile(STATES[k], (5, 1)), RNG.normal(size=(5, 4))])
        t = multivariate_t(mean, covariance, df=proposal.dof)
        log_z = proposal.regressions.log_density(states[:, :4])
        assert np.allclose(proposal.log_density(states), log_z + t.logpdf(states[:, 4:]), atol=1e-4)


def z_scores(target, repeats=REPEATS):
    scores = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        found = bridge_states(target, exact_draws(100, rng), rng=rng).evidence
        scores.append((found.log_z - LOG_Z) / found.mcse)
    return np.array(scores)


@pytest.mark.slow("repeats")
def test_log_z_is_right_within_its_error(target):
    """Of 100 scores: the mean within 4 errors (6e-5), the spread in [.75, 1.25] (1e-3)."""
    scores = z_scores(target)
    assert abs(scores.mean()) < 0.4
    assert 0.75 < scores.std() < 1.25


@pytest.mark.slow("compiles models of its own")
def test_a_missing_determinant_is_seen(target, monkeypatch):
    """Planted: t's of all states with the constant of a unit matrix."""
    original = binary.BinaryProposal.log_density

    def without(self, states):
        at = self.modes.find(states[:, self.modes.binary])
        return original(self, states) - self.modes.log_dets[at]

    monkeypatch.setattr(binary.BinaryProposal, "log_density", without)
    assert abs(z_scores(target, 3).mean()) > 10.0


@pytest.mark.slow("repeats")
def test_draws_of_one_mode_alone_leave_no_error(target):
    """Planted: the first indicator is in in all draws. The proposal finds what they lack."""
    rng = np.random.default_rng(5)
    draws = exact_draws(4000, rng)
    one = draws[:, :, 0] == 1.0
    alone = np.array([chain[rows][:400] for chain, rows in zip(draws, one, strict=True)])
    found = bridge_states(target, alone, rng=rng).evidence
    assert found.log_z < LOG_Z - 0.4
    assert (found.mcse, found.verdict) == (np.inf, "unchecked")
    assert any("the sampler missed a mode" in text for text in found.warnings)


@pytest.fixture(scope="module")
def run():
    return pmt.sample(model=spike_and_slab(), random_seed=1, quiet=True, progressbar=False)


@pytest.mark.slow("repeats")
def test_a_default_run_has_the_value_and_the_error_of_the_bridge(run):
    found = pmt.log_marginal_likelihood(run)
    assert found.verdict == "ok"
    assert found.mcse < 0.5 * found.details["unbridged_mcse"]
    assert abs(found.log_z - LOG_Z) < 4 * found.mcse < 0.06
    assert pmt.log_marginal_likelihood(run, method="rts").mcse == found.details["unbridged_mcse"]


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("limit", ["MOST_BINARY", "MOST_SHARE"])
def test_a_bridge_that_takes_long_is_not_made(monkeypatch, limit):
    monkeypatch.setattr(bridged, limit, 0)
    short = pmt.sample(150, model=spike_and_slab(), random_seed=1, quiet=True, progressbar=False)
    assert "unbridged_mcse" not in pmt.log_marginal_likelihood(short).details


@pytest.mark.slow("compiles models of its own")
def test_a_selection_of_draws_has_the_value_of_its_chains(run):
    half = run.isel(draw=slice(0, 500))
    assert "unbridged_mcse" not in pmt.log_marginal_likelihood(half, method="rts").details
    found = pmt.log_marginal_likelihood(half)
    assert found.log_z == pmt.log_marginal_likelihood(half, method="rts").log_z


@pytest.mark.slow("compiles models of its own")
def test_more_draws_have_a_bridge_of_their_own(run):
    longer = pmt.extend(run, draws=200, model=spike_and_slab(), quiet=True, progressbar=False)
    found = pmt.log_marginal_likelihood(longer)
    assert "unbridged_mcse" in found.details
    assert found.log_z != pmt.log_marginal_likelihood(run).log_z
    assert abs(found.log_z - LOG_Z) < 4 * found.mcse


@pytest.mark.slow("compiles models of its own")
def test_indicators_have_their_exact_probabilities(run):
    """Within 4.5 errors by the effective sample size, of 4 indicators (3e-5)."""
    from arviz_stats import ess

    z = run["posterior"]["z"]
    errors = np.sqrt(INCLUDED * (1 - INCLUDED) / ess(z).values)
    assert (np.abs(z.mean(("chain", "draw")).values - INCLUDED) < 4.5 * errors).all()


@pytest.mark.slow("compiles models of its own")
def test_a_bridge_that_contradicts_the_chains_is_told(run):
    chains = pmt.log_marginal_likelihood(run, method="rts")
    off = with_bridge(chains, (chains.log_z + 6 * chains.mcse, 0.001))
    assert off.verdict == "disagreed"
    assert off.mcse >= 5.9 * chains.mcse
    assert off.log_z == chains.log_z
    assert any("a bridge to their draws differ" in text for text in off.warnings)


@pytest.mark.slow("compiles models of its own")
def test_proposals_that_know_no_binary_variables_are_refused(run):
    with pytest.raises(ValueError, match="'t', 'mixture' for a model with binary variables"):
        pmt.bridge_sampling(run, spike_and_slab(), proposal="warp", quiet=True)


def test_importance_sampling_and_bridge_sampling_take_binary_variables(run):
    for method in (pmt.bridge_sampling, pmt.importance_sampling):
        found = method(run, spike_and_slab(), random_seed=2, quiet=True)
        assert abs(found.log_z - LOG_Z) < 4 * found.mcse < 0.08


def test_binary_variables_alone():
    """Eight spins in a field: the regressions are all there is."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=8)
        pm.Potential("tie", 0.8 * (z[1:] * z[:-1]).sum() + 1.5 * z[0] * z[5] * z[7])
    run = pmt.sample(500, model=model, kernel={"z": "gibbs"}, random_seed=3, quiet=True)
    states = np.array(list(product([0, 1], repeat=8)))
    tie = 0.8 * (states[:, 1:] * states[:, :-1]).sum(1) + 1.5 * states[:, [0, 5, 7]].prod(1)
    exact = logsumexp(tie + states.sum(1) * np.log(0.4) + (8 - states.sum(1)) * np.log(0.6))
    found = pmt.log_marginal_likelihood(run)
    assert "unbridged_mcse" in found.details
    assert abs(found.log_z - exact) < 4 * found.mcse < 0.08
