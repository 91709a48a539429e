"""Bridge sampling gives log Z with an honest error, and says where the draws cannot carry it."""

import sys
import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats
from scipy.special import i0e, logsumexp
from support.compiled_systems import system
from support.exact_posteriors import (
    autoregressive,
    beta_draws,
    gaussian_draws,
    mode_draws,
    plain_target,
    posterior_tree,
    target,
    two_modes,
    with_log_density,
)

import pymc_tempering as pmt
from pymc_tempering.bridge import optimal_bridge
from pymc_tempering.bridge.bridge_sampling import bridge_draws, bridge_states
from pymc_tempering.bridge.proposals import fit_normal, fit_t
from pymc_tempering.bridge.target import find_target
from pymc_tempering.summed import angles

REPEATS = 200
# The standard deviation of 300 z-scores is that of a normal within 4 of its errors (6e-5).
SPREAD = 4.0 / np.sqrt(2 * REPEATS)


def pair_of_normals(n1=400, n2=300, seed=1):
    """Log ratios of exp(3) N(0.3, 1.2) over N(0, 1) at draws of each, shapes (4, n1/4), (n2,)."""
    rng = np.random.default_rng(seed)
    one, other = stats.norm(0.3, 1.2), stats.norm()
    x, y = rng.normal(0.3, 1.2, n1), rng.normal(size=n2)
    ratio = [3.0 + one.logpdf(v) - other.logpdf(v) for v in (x, y)]
    return ratio[0].reshape(4, -1), ratio[1]


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_the_root_is_the_fixed_point_of_meng_and_wong(share):
    at_draws, proposed = (np.ravel(r) for r in pair_of_normals())
    log_z = 0.0
    for _ in range(500):  # their iteration as it stands in the paper, equation (4.1)
        r1, r2 = np.exp(at_draws - log_z), np.exp(proposed - log_z)
        numerator = np.mean(r2 / (share * r2 + 1.0 - share))
        log_z += np.log(numerator / np.mean(1.0 / (share * r1 + 1.0 - share)))
    assert optimal_bridge.bridge_log_z(at_draws, proposed, share) == pytest.approx(log_z, abs=1e-10)


def test_the_root_is_bennetts_acceptance_ratio():
    at_draws, proposed = (np.ravel(r) for r in pair_of_normals())
    share = at_draws.size / (at_draws.size + proposed.size)
    log_z = optimal_bridge.bridge_log_z(at_draws, proposed, share)
    shift = np.log(at_draws.size / proposed.size) - log_z
    fermi = [1.0 / (1.0 + np.exp(v)) for v in (at_draws + shift, -proposed - shift)]
    assert fermi[0].sum() == pytest.approx(fermi[1].sum(), rel=1e-9)


def test_scale_and_far_ratios_change_nothing_else():
    at_draws, proposed = pair_of_normals()
    plain = optimal_bridge.fit_bridge(at_draws, proposed)
    for shift in (-1e5, 1e5):
        moved = optimal_bridge.fit_bridge(at_draws + shift, proposed + shift)
        assert moved.log_z - shift == pytest.approx(plain.log_z, abs=1e-8)
        assert moved.variance == pytest.approx(plain.variance, rel=1e-6)


def test_zero_target_at_draws_of_the_proposal_counts():
    # Half of the proposal's draws without density: Z falls by half, as its own mass does.
    at_draws, proposed = pair_of_normals(4000, 4000)
    twice = np.concatenate([proposed, np.full(proposed.size, -np.inf)])
    plain, halved = (
        optimal_bridge.fit_bridge(at_draws, proposed),
        optimal_bridge.fit_bridge(at_draws, twice),
    )
    error = np.sqrt(plain.variance + halved.variance)
    assert abs(plain.log_z - halved.log_z - np.log(2.0)) < 4 * error < 0.3
    assert optimal_bridge.fit_bridge(at_draws, np.full(50, -np.inf)).variance == np.inf


def z_scores(draw, name, proposal, repeats=REPEATS):
    result = []
    for i in range(repeats):
        rng = np.random.default_rng([5, i])
        evidence = bridge_states(target(name), draw(rng), rng=rng, proposal=proposal).evidence
        result.append((evidence.log_z - system(name).log_evidence) / evidence.mcse)
    return np.array(result)


CASES = {
    "independent": ("long_path", "t", lambda rng: gaussian_draws("long_path", rng, (4, 100))),
    "correlated": (
        "gaussian",
        "normal",
        lambda rng: gaussian_draws("gaussian", rng, (4, 300), 0.6),
    ),
    "antithetic": ("gaussian", "warp", lambda rng: gaussian_draws("gaussian", rng, (2, 300), -0.4)),
    "skewed": ("beta_binomial", "normal", lambda rng: beta_draws(rng, (4, 200), 0.5)),
}


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("case", CASES)
def test_the_stated_error_is_the_real_one(case):
    name, proposal, draw = CASES[case]
    z = z_scores(draw, name, proposal)
    assert abs(z.std() - 1.0) < SPREAD
    assert abs(z.mean()) < 0.25  # a bias of order 1/n beside an error of order 1/sqrt(n)
    assert np.mean(np.abs(z) > 1.96) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / REPEATS)


def independent_halves(bridges, ratios):
    return 0.0


def white(values):
    return float(values.size)


def other_share(solve):
    return lambda log_ratio, proposed, share: solve(log_ratio, proposed, share) + 0.02


@pytest.mark.slow("repeats", quick=["autocorrelation"])
@pytest.mark.parametrize("bug", ["halves", "autocorrelation", "shift"])
def test_calibration_sees_planted_bugs(bug, monkeypatch):
    if bug == "halves":
        module = sys.modules["pymc_tempering.bridge.bridge_sampling"]
        monkeypatch.setattr(module, "fit_correlation", independent_halves)
    elif bug == "autocorrelation":
        monkeypatch.setattr(optimal_bridge, "effective_size", white)
    else:
        monkeypatch.setattr(
            optimal_bridge, "bridge_log_z", other_share(optimal_bridge.bridge_log_z)
        )
    name, proposal, draw = CASES["correlated" if bug == "autocorrelation" else "independent"]
    z = z_scores(draw, name, proposal, REPEATS if bug == "halves" else 100)
    assert abs(z.std() - 1.0) > SPREAD or abs(z.mean()) > 0.25


def test_every_proposal_is_right_in_ten_dimensions():
    rng = np.random.default_rng(3)
    draws = gaussian_draws("long_path", rng, (4, 500))
    for proposal in ("t", "normal", "warp", "mixture"):
        evidence = bridge_states(target("long_path"), draws, rng=rng, proposal=proposal).evidence
        assert evidence.verdict == "ok"
        assert abs(evidence.log_z - system("long_path").log_evidence) < 4 * evidence.mcse < 0.06
        per_draw = {"t": 2, "normal": 2, "warp": 5, "mixture": 4}[proposal]
        assert evidence.n_evaluations == per_draw * 2000


def test_fits_find_the_law_of_their_draws():
    rng = np.random.default_rng(4)
    matrix = np.array([[2.0, 0.0], [1.0, 0.5]])
    t = stats.multivariate_t([1.0, -1.0], matrix @ matrix.T, df=5, seed=rng)
    found = fit_t(t.rvs(20_000))
    assert found.dof == 5.0
    np.testing.assert_allclose(found.mean, [1.0, -1.0], atol=0.06)
    np.testing.assert_allclose(found.cholesky, matrix, atol=0.06)
    x = t.rvs(5)
    exact = stats.multivariate_t(found.mean, found.cholesky @ found.cholesky.T, df=5).logpdf(x)
    np.testing.assert_allclose(found.log_density(x), exact)
    normal = fit_normal(t.rvs(1000))
    law = stats.multivariate_normal(normal.mean, normal.cholesky @ normal.cholesky.T)
    np.testing.assert_allclose(normal.log_density(x), law.logpdf(x))
    drawn = found.draw(50_000, rng)
    np.testing.assert_allclose(np.median(drawn, axis=0), found.mean, atol=0.05)
    assert (
        stats.kstest((drawn[:, 0] - found.mean[0]) / found.cholesky[0, 0], "t", (5,)).pvalue > 1e-4
    )


def test_a_posterior_around_the_end_of_the_circle(monkeypatch):
    # von Mises prior and likelihood: log Z = log I0(k) - log(2 pi I0(k1) I0(k2)), all mass near pi.
    with pm.Model() as model:
        angle = pm.VonMises("angle", 3.0, 2.0)
        pm.VonMises("y", angle, 4.0, observed=-3.0)
    total = 2.0 * np.exp(3.0j) + 4.0 * np.exp(-3.0j)
    log_i0 = [np.log(i0e(k)) + k for k in (abs(total), 2.0, 4.0)]
    exact = log_i0[0] - log_i0[1] - log_i0[2] - np.log(2 * np.pi)
    rng = np.random.default_rng(5)
    x = rng.vonmises(np.angle(total), abs(total), size=(4, 1000))
    assert x.min() < -3.0 < 3.0 < x.max()
    found, states = find_target(posterior_tree(angle=x), model, 2)
    for proposal in ("t", "warp", "mixture"):
        evidence = bridge_states(found, states, rng=rng, proposal=proposal).evidence
        assert evidence.verdict == "ok"
        assert abs(evidence.log_z - exact) < 4 * evidence.mcse < 0.03
    # the planted bug: the circle cut open at pi, in the middle of the posterior
    monkeypatch.setattr(angles, "emptiest", lambda modes: np.full(modes.shape[1:], np.pi))
    with pm.Model() as again:
        angle = pm.VonMises("angle", 3.0, 2.0)
        pm.VonMises("y", angle, 4.0, observed=-3.0)
    cut, states = find_target(posterior_tree(angle=x), again, 2)
    worse = bridge_states(cut, states, rng=rng, proposal="t").evidence
    assert worse.mcse > 5 * evidence.mcse


def short_of(draws, seed=6, proposal="t"):
    system, found = two_modes()
    rng = np.random.default_rng(seed)
    evidence = bridge_states(found, draws(rng), rng=rng, proposal=proposal).evidence
    return evidence, evidence.log_z - system.log_evidence


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("proposal", ["t", "mixture"])
def test_mixed_chains_on_two_modes_are_right(proposal):
    evidence, error = short_of(
        lambda rng: mode_draws(rng, (rng.random((4, 500)) > 0.65).astype(int)), proposal=proposal
    )
    assert evidence.verdict == "ok"
    assert abs(error) < 4 * evidence.mcse < 0.4


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("proposal", ["t", "mixture"])
def test_chains_stuck_in_different_modes_disagree(proposal):
    evidence, error = short_of(
        lambda rng: mode_draws(rng, np.repeat([[0], [1], [1], [1]], 500, axis=1)), proposal=proposal
    )
    assert evidence.verdict in ("disagreed", "unchecked")
    assert evidence.mcse > abs(error) / 3
    assert any("R-hat" in sentence for sentence in evidence.warnings)


def test_a_mode_that_all_chains_missed_is_missed_as_documented():
    alone = short_of(lambda rng: mode_draws(rng, np.zeros((4, 500), int)))
    assert alone[0].verdict == "ok"  # nothing in the draws can tell
    assert alone[1] == pytest.approx(np.log(0.65), abs=0.02)
    assert alone[0].mcse < 0.01


def test_a_missed_mode_that_the_proposal_finds_is_an_alarm():
    # 5 % of the draws of the mixture come from the prior, of which 1 in 100 hits the other mode.
    evidence, _ = short_of(lambda rng: mode_draws(rng, np.zeros((4, 4000), int)), 6, "mixture")
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert any("missed a mode or a tail" in sentence for sentence in evidence.warnings)


def test_the_alarm_of_a_missed_region_is_rare_without_one(monkeypatch):
    monkeypatch.setattr(optimal_bridge, "effective_size", white)
    # The chance of k highest ratios without a posterior draw is exact where target = proposal.
    rng = np.random.default_rng(7)
    chances = [
        optimal_bridge.fit_bridge(r[:400].reshape(4, 100), r[400:]).log_chance
        for r in (np.zeros(800) + 1e-9 * rng.standard_normal(800) for _ in range(1000))
    ]
    for k in (2, 5):
        assert abs(np.mean(np.array(chances) < -k * np.log(2) + 0.1) - 0.5**k) < 4 * np.sqrt(
            0.5**k / 1000
        )


def test_densities_that_hardly_overlap_give_no_error():
    rng = np.random.default_rng(8)
    states = gaussian_draws("gaussian", rng, (4, 100))
    states[:, 50:] += 30.0  # the second half is nowhere near the first
    evidence = bridge_states(target("gaussian"), states, rng=rng).evidence
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert "hardly overlap" in evidence.warnings[0]


def test_a_drift_shows_in_the_halves():
    def draws(rng):  # of the first mode 90 % and then 40 %, where 65 % is right
        share = np.repeat([0.9, 0.4], 250)
        return mode_draws(rng, (rng.random((4, 500)) > share).astype(int))

    evidence, error = short_of(draws, 1)
    assert evidence.verdict == "disagreed"
    assert "the second half of the draws differ" in " ".join(evidence.warnings)
    assert 0.3 < abs(error) < 2 * evidence.mcse


def test_few_draws_and_one_chain_are_said():
    rng = np.random.default_rng(10)
    slow = autoregressive(rng, (1, 2000, 1), 0.98) * 0.2
    states = np.log(15.5 / 10.0) + slow
    evidence = bridge_states(target("beta_binomial"), states, rng=rng).evidence
    assert "one chain" in " ".join(evidence.warnings)
    assert "independent ones" in " ".join(evidence.warnings)


@pytest.fixture(scope="module")
def mean_model():
    """x ~ N(0, 2), five observations of sd 1: posterior and evidence in closed form."""
    y = np.array([0.3, 1.2, -0.4, 0.9, 2.0])
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0)
        pm.Normal("y", x, 1.0, observed=y)
    covariance = np.eye(5) + 4.0
    exact = stats.multivariate_normal(np.zeros(5), covariance).logpdf(y)
    precision = 0.25 + 5.0
    return model, float(exact), y.sum() / precision, precision**-0.5


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", ["pymc", "nutpie"])
def test_nuts_draws_end_to_end(mean_model, name):
    model, exact, *_ = mean_model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pm.sample(
            400,
            tune=200,
            chains=2,
            cores=1,
            model=model,
            nuts_sampler=name,
            random_seed=1,
            progressbar=False,
            quiet=True,
        )
        with model:
            evidence = pmt.bridge_sampling(idata, random_seed=1)
            same = pmt.bridge_sampling(idata, random_seed=1)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - exact) < 4 * evidence.mcse < 0.05
    assert (same.log_z, same.mcse) == (evidence.log_z, evidence.mcse)
    assert "density evaluations" in repr(evidence)


def exact_posterior(mean_model, n=200):
    _, _, mean, sd = mean_model
    return np.random.default_rng(11).normal(mean, sd, size=(4, n))


def test_draws_of_another_model_are_an_alarm(mean_model):
    model, exact, mean, sd = mean_model
    x = exact_posterior(mean_model)
    idata = posterior_tree(x=x)
    own = stats.norm(mean, sd).logpdf(x) + exact
    for stored, verdict in ((own, "ok"), (-own, "ok"), (own + 0.1 * x**2, "unchecked")):
        stats_group = xr.Dataset({"lp": (("chain", "draw"), stored)})
        idata["sample_stats"] = xr.DataTree(stats_group)
        evidence = bridge_draws(idata, model, rng=np.random.default_rng(1)).evidence
        assert evidence.verdict == verdict
        assert np.isinf(evidence.mcse) == (verdict != "ok")


def test_a_density_that_is_no_number_is_said():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("lost", pm.math.switch(x > 2.0, pm.math.log(1.0 - x), 0.0))
    x = stats.truncnorm(-np.inf, 2.0).rvs((4, 500), random_state=np.random.default_rng(12))
    with pytest.warns(pmt.TemperingWarning, match="not a number at 2"):
        pmt.bridge_sampling(
            with_log_density(posterior_tree(x=x), -(x**2) / 2), model, random_seed=1
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        warp = pmt.bridge_sampling(posterior_tree(x=x), model, proposal="warp", random_seed=1)
    assert abs(warp.log_z - stats.norm.logcdf(2.0)) < 4 * warp.mcse < 0.05
    with pytest.raises(pmt.exceptions.DataMismatchError, match="zero or not a number"):
        pmt.bridge_sampling(posterior_tree(x=x + 1.0), model, random_seed=1)


def test_bad_arguments_are_refused_before_any_work(mean_model):
    model = mean_model[0]
    for arguments, message in (
        ({"proposal": "cauchy"}, "one of 't', .*not 'cauchy'"),
        ({"draws": 5}, "at least 20, got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            pmt.bridge_sampling(None, model, **arguments)
    with pytest.raises(pmt.exceptions.ModelError, match="pass `model=`"):
        pmt.bridge_sampling(posterior_tree(x=exact_posterior(mean_model)))
    with pytest.raises(pmt.TemperingError, match="too few"):
        pmt.bridge_sampling(posterior_tree(x=exact_posterior(mean_model, 4)[:, :1]), model)
    with pytest.raises(pmt.TemperingError, match="do not vary"):
        pmt.bridge_sampling(posterior_tree(x=np.ones((4, 50))), model)
    with pm.Model() as improper:
        pm.Normal("y", pm.Flat("x"), 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.ImproperPriorError, match="x"):
        pmt.bridge_sampling(posterior_tree(x=np.ones((4, 50))), improper)


def test_threads_change_nothing(mean_model):
    model = mean_model[0]
    one, three = (
        find_target(posterior_tree(x=exact_posterior(mean_model, 400)), model, cores)
        for cores in (1, 3)
    )
    x = one[1].reshape(-1, 1)
    np.testing.assert_array_equal(one[0].log_density(x), three[0].log_density(x))
    assert plain_target(one[0].path).cores == 1
    assert np.isfinite(logsumexp(one[0].log_density(x)))


def test_draws_without_chains_and_models_without_gradients():
    with pm.Model() as model:
        pm.Poisson("y", pm.Exponential("rate", 1.0), observed=[1, 2])
    bare = xr.Dataset({"rate": ("step", np.ones(4)), "other": (("chain", "draw"), np.ones((2, 2)))})
    tree = xr.DataTree.from_dict({"posterior": bare})
    with pytest.raises(
        pmt.exceptions.DataMismatchError, match=r"'rate' has dimensions .* but needs 'chain'"
    ):
        pmt.bridge_sampling(tree, model)
    with pm.Model() as discrete:
        pm.Normal("y", pm.Poisson("k", 3.0), 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.DiscreteVariableError, match="have no gradients: k"):
        pmt.bridge_sampling(tree, discrete)


@pytest.mark.slow("compiles models of its own", quick=["cross_check"])
@pytest.mark.parametrize(
    "door",
    [
        pmt.bridge_sampling, pmt.importance_sampling, pmt.cross_check, pmt.prior_sensitivity,
        pmt.log_marginal_likelihood, lambda model: pmt.savage_dickey(model, null={"x": 0.0}),
    ],
)  # fmt: skip
def test_a_model_in_the_place_of_draws_is_told_so(door):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.NotTemperedError, match=r"has no draws yet.*sample"):
        door(model)
