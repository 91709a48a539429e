"""Steps of a population along the path: the next beta, and resampling."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pymc_tempering.core.weighting import (
    conditional_ess,
    next_beta,
    systematic_resampling,
)
from pymc_tempering.exceptions import LikelihoodError


def test_next_beta_has_the_conditional_ess_asked_for():
    log_ratio = 30.0 * np.random.default_rng(6).normal(size=500)
    log_ratio[:50] = -np.inf
    beta = next_beta(log_ratio, 0.2, 0.5)
    assert conditional_ess(log_ratio, beta - 0.2) == pytest.approx(0.5, abs=1e-3)
    assert next_beta(1e-3 * log_ratio, 0.2, 0.5) == 1.0


def test_log_ratios_without_bound_are_refused():
    log_ratio = np.append(np.zeros(100), np.full(100, -8e307))
    with pytest.raises(LikelihoodError, match="check its scale"):
        next_beta(log_ratio, 0.0, 0.99)
    with pytest.raises(LikelihoodError, match=r"ends at beta = 0\.5,.* no finite integral"):
        next_beta(log_ratio, 0.5, 0.99)
    with pytest.raises(LikelihoodError, match=r"ends at beta = 0\.5,.* no finite integral"):
        next_beta(1e-288 * log_ratio, 0.5, 0.99)  # a step that is lost in rounding


def test_resampling_keeps_the_mean():
    """Each particle is drawn n W_i times in expectation; |z| < 4.5 over 30: false alarm 2e-4."""
    rng = np.random.default_rng(7)
    log_w = rng.normal(size=30) - 1000.0
    log_w[3] = -np.inf
    counts = np.array(
        [np.bincount(systematic_resampling(log_w, rng), minlength=30) for _ in range(2000)]
    )
    expected = 30.0 * np.exp(log_w - logsumexp(log_w))
    error = np.maximum(counts.std(axis=0), 1e-9) / np.sqrt(2000)
    assert counts[:, 3].sum() == 0
    keep = np.arange(30) != 3
    assert np.all(np.abs(counts.mean(axis=0) - expected)[keep] < 4.5 * error[keep] + 1e-9)


def test_systematic_resampling_keeps_the_expected_numbers():
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.ones(50))
    counts = np.bincount(systematic_resampling(np.log(weights), rng), minlength=50)
    assert counts.sum() == 50
    assert np.abs(counts - 50 * weights).max() <= 1.0
