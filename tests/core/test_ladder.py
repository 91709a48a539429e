"""Reweighting along the path and the spacing of rungs, against the Gaussian path in closed form."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from support.gaussian_path import BETAS, DATA, NOISE, WALL, law, log_z

from pymc_tempering.core.ladder import Ladder, PathSample, check_betas, place_rungs
from pymc_tempering.exceptions import LadderError

COUNTS = np.array([4000, 3000, 5000, 3000, 4000])
FINE = np.array([0.0, 0.005, 0.02, 0.06, 0.12, 0.3, 0.45, 0.7, 1.0])


def path_sample(seed, counts=COUNTS, wall=np.inf):
    """Exact draws of each rung, as a `PathSample`."""
    rng = np.random.default_rng(seed)
    parts = []
    for beta, n in zip(BETAS, counts, strict=True):
        mean, sd = law(beta)
        x = mean + sd * rng.standard_normal((n, 2))
        if beta > 0:
            cut = stats.truncnorm(-np.inf, (wall - mean[0]) / sd[0], mean[0], sd[0])
            x[:, 0] = cut.rvs(n, random_state=rng)
        ratio = -0.5 * (((DATA - x) / NOISE) ** 2).sum(axis=1)
        parts.append(np.where(x[:, 0] > wall, -np.inf, ratio))
    return PathSample(np.concatenate(parts), BETAS, log_z(BETAS, wall), counts)


def total_variation(betas):
    """Distance between neighbors by a quasi-random sum over the two Gaussians, error < 1e-3."""
    normal = stats.norm.ppf(stats.qmc.Sobol(2, seed=0).random(2**16))
    out = []
    for low, high in pairwise(betas):
        mean, sd = law(low)
        x = mean + sd * normal
        ratio = -0.5 * (((DATA - x) / NOISE) ** 2).sum(axis=1)
        log_w = (high - low) * ratio - np.diff(log_z([low, high]))[0]
        out.append(np.maximum(0.0, 1.0 - np.exp(log_w)).mean())
    return np.array(out)


@pytest.mark.parametrize("wall", [np.inf, WALL], ids=["", "walled"])
def test_log_z_between_the_rungs_is_exact_within_its_error(wall):
    # 30 repeats, mean over them, |z| < 4 at eight betas: false alarm 5e-4, seeds fixed
    estimates = np.array(
        [path_sample(seed, COUNTS // 4, wall).log_z_at(FINE) for seed in range(30)]
    )
    assert (estimates[:, 0] == 0.0).all()
    error = estimates.std(axis=0, ddof=1)
    assert error.max() < 0.06
    z = (estimates.mean(axis=0) - log_z(FINE, wall))[1:] / (error[1:] / np.sqrt(30))
    assert np.abs(z).max() < 4.0


def test_rejections_in_parts_have_the_bits_of_all_at_once(monkeypatch):
    sample = path_sample(0)
    whole = sample.rejections(FINE)
    for rows in (1, 3, 8):
        monkeypatch.setattr("pymc_tempering.core.ladder.MAX_WEIGHTS", rows * sample.log_ratio.size)
        np.testing.assert_array_equal(sample.rejections(FINE), whole)
    assert sample.rejections(FINE[:1]).shape == (0,)


def test_rejections_are_the_total_variation_distances():
    # |z| < 4 at eight intervals over 30 repeats: false alarm 5e-4, seeds fixed
    estimates = np.array([path_sample(seed).rejections(FINE) for seed in range(30)])
    error = np.hypot(estimates.std(axis=0, ddof=1) / np.sqrt(30), 5e-4)
    assert np.abs((estimates.mean(axis=0) - total_variation(FINE)) / error).max() < 4.0


def test_betas_off_by_one_are_seen():
    """The planted bug: the draws of rung k + 1 taken for those of rung k."""
    sample = path_sample(0)
    shifted = PathSample(sample.log_ratio, BETAS, np.append(0.0, sample.log_z[:-1]), sample.counts)
    assert np.abs(shifted.log_z_at(FINE) - log_z(FINE)).max() > 0.3


@pytest.mark.parametrize("density", [1.5, 3.0, 6.0])
def test_placed_rungs_reject_equally(density):
    betas = place_rungs(path_sample(1), density)
    assert betas[0] == 0.0
    assert betas[-1] == 1.0
    exact = total_variation(betas)
    assert exact.max() / exact.min() < 1.25  # the barrier is a sum over intervals, not an integral
    barrier = total_variation(np.append(0.0, np.geomspace(1e-3, 1.0, 50))).sum()
    assert len(betas) - 1 == pytest.approx(density * barrier, abs=1.0)


def test_a_ladder_has_three_rungs_at_least():
    sample = path_sample(2)
    assert len(place_rungs(sample, 1e-6)) == 3


def test_a_flat_path_gets_a_ladder_too():
    flat = PathSample(np.zeros(100), np.array([0.0, 1.0]), np.zeros(2), np.array([50, 50]))
    betas = place_rungs(flat, 1.5)
    assert check_betas(betas) is not None
    np.testing.assert_allclose(flat.log_z_at(betas), 0.0, atol=1e-12)


def test_a_ladder_normalizes_its_weights_and_starts_log_z_at_0():
    ladder = Ladder(BETAS, log_z(BETAS) + 3.0, np.arange(5.0))
    assert logsumexp(ladder.log_weights) == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(ladder.log_z, log_z(BETAS))
    np.testing.assert_allclose(ladder.offsets, ladder.log_weights - ladder.log_z)
    other = ladder.with_log_z(np.ones(5))
    np.testing.assert_array_equal(other.log_z, np.zeros(5))
    np.testing.assert_allclose(other.log_weights, ladder.log_weights)


def test_a_ladder_keeps_its_own_copy():
    betas = BETAS.copy()
    ladder = Ladder(betas, np.zeros(5), np.zeros(5))
    betas[2] = 0.9
    assert ladder.betas[2] == BETAS[2]


@pytest.mark.parametrize(
    ("betas", "words"),
    [
        ([0.0, 0.5, 0.5, 1.0], "increase strictly"),
        ([0.0, 0.7, 0.5, 1.0], "increase strictly"),
        ([0.0, np.nan, 1.0], "increase strictly"),
        ([0.1, 0.5, 1.0], "from beta = 0 to beta = 1"),
        ([0.0, 0.5, 0.9], "from beta = 0 to beta = 1"),
        ([1.0, 0.5, 0.0], "from beta = 0 to beta = 1"),
        ([0.0], "at least two rungs"),
        ([], "at least two rungs"),
        ([[0.0, 1.0]], "at least two rungs"),
        (0.5, "at least two rungs"),
    ],
)
def test_betas_that_are_no_ladder_are_refused(betas, words):
    with pytest.raises(LadderError, match=words):
        check_betas(betas)


@pytest.mark.parametrize("bad", [[0.0, 1.0], [0.0, np.nan, 1.0], [0.0, np.inf, 1.0]])
@pytest.mark.parametrize("name", ["log_z", "log_weights"])
def test_numbers_that_do_not_fit_the_rungs_are_refused(name, bad):
    values = {"log_z": np.zeros(3), "log_weights": np.zeros(3)} | {name: bad}
    with pytest.raises(LadderError, match=f"{name} needs one finite number for each rung"):
        Ladder(np.array([0.0, 0.5, 1.0]), **values)
