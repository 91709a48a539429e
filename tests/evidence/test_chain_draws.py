"""Errors of reweighted chains are the real ones, with the covariance of log Z and the ratio.

200 sets of autocorrelated draws from a normal posterior whose prior's scale is multiplied; log Z by
two bridges from one fixed normal. A standard deviation of 200 z-scores is within [0.8, 1.2] but for
1 in 10,000 seeds, their mean within 0.3.
"""

from functools import cache

import numpy as np
import pytest
from scipy import stats
from support.exact_posteriors import autoregressive

from pymc_tempering.bridge.optimal_bridge import draw_effects, fit_bridge
from pymc_tempering.evidence import Evidence, reweight as chain_draws
from pymc_tempering.evidence.reweight import ChainDraws, moments, reweight

Y, SIGMA = 2.0, 0.8
FACTORS = np.array([0.6, 1.0, 1.5])
EXACT = stats.norm.logpdf(Y, 0.0, np.sqrt(FACTORS**2 + SIGMA**2))
VARIANCE = 1.0 / (1.0 + SIGMA**-2)
MEAN = VARIANCE * Y / SIGMA**2
PROPOSAL = stats.norm(MEAN - 2.0 * np.sqrt(VARIANCE), 1.2 * np.sqrt(VARIANCE))
"""Off to one side, so that what the draws do to log Z and to the ratio is correlated."""
N, CHAINS, DRAWS, RHO = 200, 4, 250, 0.6


def log_ratio(x):
    """Log of prior times likelihood over the proposal."""
    return stats.norm.logpdf(x) + stats.norm.logpdf(Y, x, SIGMA) - PROPOSAL.logpdf(x)


def change_of(x, factors=FACTORS):
    return (
        stats.norm.logpdf(x.ravel()[:, None], 0.0, factors) - stats.norm.logpdf(x.ravel())[:, None]
    )


def bridged(x, rng):
    """Draws with their effects on log Z, and an evidence whose error is theirs."""
    ratio, half = log_ratio(x), DRAWS // 2
    pair = tuple(
        fit_bridge(part, log_ratio(PROPOSAL.rvs(CHAINS * half, random_state=rng)))
        for part in (ratio[:, half:], ratio[:, :half])
    )
    shared = sum(one.proposal_variance for one in pair) / 4.0
    draws = ChainDraws(draw_effects(pair, (ratio, ratio)), shared, sum(one.ess for one in pair))
    log_z = (pair[0].log_z + pair[1].log_z) / 2.0
    mcse = float(draws.errors_with_log_z(np.zeros((x.size, 1)))[0])
    return draws, Evidence(log_z, mcse, "bridge_sampling", "ok")


@cache
def runs():
    rng = np.random.default_rng(3)
    found = []
    for _ in range(N):
        x = MEAN + np.sqrt(VARIANCE) * autoregressive(rng, (CHAINS, DRAWS, 1), RHO)[..., 0]
        found.append((x, *bridged(x, rng)))
    return found


def z_scores(error="joint"):
    """z-scores of log Z and of log BF, shape (runs, factors) each."""
    rows = []
    for x, draws, evidence in runs():
        found = reweight(draws, change_of(x), evidence)
        mcse = found.mcse
        if error == "added":  # as if the two parts were independent
            mcse = np.hypot(evidence.mcse, found.log_ratio_mcse)
        with np.errstate(invalid="ignore"):
            bf = (found.log_ratio - (EXACT - EXACT[1])) / found.log_ratio_mcse
        rows.append(((evidence.log_z + found.log_ratio - EXACT) / mcse, bf))
    return (np.array(part) for part in zip(*rows, strict=True))


def sound(z):
    return np.all(np.abs(z.std(axis=0) - 1.0) < 0.2) and np.all(np.abs(z.mean(axis=0)) < 0.3)


@pytest.mark.slow("repeats")
def test_errors_are_the_real_ones():
    z, bf = z_scores()
    assert sound(z)
    assert sound(np.delete(bf, 1, axis=1))


@pytest.mark.slow("repeats")
def test_errors_that_are_added_up_are_found():
    """Planted: log Z and the ratio as if they came from different draws."""
    assert not sound(next(z_scores(error="added")))


def test_effects_without_a_sign_are_found(monkeypatch):
    """Planted: the draws' effects on log Z with the other sign."""
    real = ChainDraws.errors_with_log_z

    def turned(self, effects):
        return real(self, -effects)

    monkeypatch.setattr(ChainDraws, "errors_with_log_z", turned)
    assert not sound(next(z_scores()))


def test_autocorrelation_that_is_left_out_is_found(monkeypatch):
    monkeypatch.setattr(chain_draws, "effective_size", lambda values: float(values.size))
    z, bf = z_scores()
    assert not sound(z)
    assert not sound(np.delete(bf, 1, axis=1))


def test_moments_have_the_error_of_correlated_draws():
    rows = []
    for x, draws, _ in runs():
        mean, _, mcse = moments(draws, change_of(x, FACTORS[2:]), x.reshape(-1, 1))[:, 0, 0]
        variance = 1.0 / (FACTORS[2] ** -2 + SIGMA**-2)
        rows.append((mean - variance * Y / SIGMA**2) / mcse)
    assert abs(np.std(rows) - 1.0) < 0.22  # 200 z-scores, the same false-alarm rate


def test_few_and_stuck_draws_have_no_error():
    x, draws, evidence = runs()[0]
    far = reweight(draws, change_of(x, np.array([0.02])), evidence)
    assert np.isinf(far.mcse[0])
    assert far.khat[0] > draws.khat_limit
    stuck = np.repeat(x[:, :5], DRAWS // 5, axis=1)  # five values a chain, each 50 times
    found = reweight(draws, change_of(stuck), evidence)
    assert np.isinf(found.mcse[[0, 2]]).all()


def test_copies_of_draws_widen_what_the_tail_may_hide():
    """A large weight that is met ten times in a row is one large weight, not ten."""
    x, draws, evidence = runs()[1]
    alone = reweight(draws, change_of(x, FACTORS[:1]), evidence)
    many = ChainDraws(draws.log_z_effects, draws.other_variance, draws.log_z_effects.size / 10)
    assert many.copies == pytest.approx(10.0)
    assert many.khat_limit < draws.khat_limit
    wide = reweight(many, change_of(x, FACTORS[:1]), evidence)
    assert (wide.mcse[0] > alone.mcse[0]) == (alone.khat[0] > 0.0)
