"""The contract of a kernel, on a path whose law is known at every beta; a new kernel is one row."""

import numpy as np
import pytest
from scipy import stats
from support.gaussian_path import (
    DATA,
    MEAN,
    PLANTED,
    WALL,
    batch_z,
    gaussian_density,
    law,
    law_pvalues,
    nan_density,
    walled_density,
)
from support.moves import Moves

import pymc_tempering as pmt
from pymc_tempering.kernels import (
    ACCEPTANCE,
    DIVERGED,
    HMC,
    N_EVALUATIONS,
    NUTS,
    Block,
    Compound,
    RandomWalkMetropolis,
    Slice,
)
from pymc_tempering.kernels.custom import unbound
from pymc_tempering.model.compiled import new_point

# name: (factory, step size in units of the rung's own standard deviations)
ROWS = {
    "hmc": (HMC, 0.8),
    "hmc, one step": (lambda: HMC(path_length=1e-9), 1.2),
    "hmc, long": (lambda: HMC(path_length=4.0, max_steps=64), 1.3),
    "hmc, dense": (lambda: HMC(metric="dense"), 0.8),
    "nuts": (NUTS, 0.8),
    "nuts, coarse": (NUTS, 1.4),
    "nuts, cut short": (lambda: NUTS(max_treedepth=2), 0.9),
    "slice": (Slice, 1.0),
    "slice, lines": (lambda: Slice(lines=3), 1.0),
    "metropolis": (lambda: RandomWalkMetropolis(n_steps=6), 1.0),
}
REAL = Block.real(2)
BETAS = (0.02, 0.12, 0.45, 1.0)  # those of toys.BETAS, which a planted bug looks up

every_kernel = pytest.mark.parametrize("name", ROWS)
every_beta = pytest.mark.parametrize("beta", BETAS)


def moves_of(kernel, step, beta, seed, density=gaussian_density, block=REAL):
    """A point under a kernel at one beta."""
    scales = law(beta)[1][block.indices]
    return Moves(kernel, density, 2, block, step, scales, beta=beta, seed=seed)


def moved(kernel, step, beta, seed, n=1500, times=4):
    """Exact draws from pi_beta, (n, 2), and where the kernel takes them."""
    moves = moves_of(kernel, step, beta, seed)
    mean, sd = law(beta)
    before = mean + sd * moves.rng.standard_normal((n, 2))
    return before, moves.each(before, times)[0]


@every_beta
@every_kernel
def test_exact_draws_keep_their_law(name, beta):
    # p > 1e-4 in four KS tests: false alarm 4e-4 a case, seed fixed
    factory, step = ROWS[name]
    before, after = moved(factory(), step, beta, seed=1)
    assert law_pvalues(before, beta).min() > 1e-4
    assert law_pvalues(after, beta).min() > 1e-4
    assert abs(stats.spearmanr(before[:, 0], after[:, 0]).statistic) < 0.9  # it does move


@pytest.mark.parametrize("bug", ["no accept step", "beta off by a rung"])
def test_planted_bugs_change_the_law(bug):
    _, after = moved(PLANTED[bug](), 1.2, 0.45, seed=1)
    assert law_pvalues(after, 0.45).min() < 1e-12


@every_kernel
def test_a_long_run_has_the_exact_moments(name):
    # |z| < 4 of four moments: false alarm 3e-4, seed fixed
    factory, step = ROWS[name]
    moves = moves_of(factory(), step, 0.45, seed=2)
    moves.start(MEAN + 8.0)  # far out in the tail, to be forgotten
    draws = moves.follow(8000)[0][500:]
    mean, sd = law(0.45)
    z = (draws - mean) / sd
    scores = batch_z(np.column_stack([z, z**2]), [0.0, 0.0, 1.0, 1.0])
    assert np.abs(scores).max() < 4.0


@every_kernel
def test_values_and_gradients_are_those_of_the_state(name):
    factory, step = ROWS[name]
    moves = moves_of(factory(), 1.4 * step, 0.45, seed=3)  # rejections too
    moves.start(MEAN)
    fresh = new_point(2)
    accepted = 0
    before = MEAN
    for _ in range(300):
        x = moves()
        gaussian_density(x, fresh.values, fresh.grads)
        np.testing.assert_array_equal(moves.point.values, fresh.values)
        if moves.kernel.uses_gradient:
            np.testing.assert_array_equal(moves.point.grads, fresh.grads)
        assert 0.0 <= moves.info[ACCEPTANCE] <= 1.0
        assert moves.info[N_EVALUATIONS] >= 1.0
        assert moves.info[DIVERGED] == 0.0
        accepted += (x != before).any()
        before = x
    assert 10 < accepted <= (300 if moves.kernel.target_accept is None else 299)


def test_a_stale_value_is_noticed():
    moves = moves_of(PLANTED["stale values"](), 0.8, 0.45, seed=3)
    moves.start(MEAN)
    fresh = new_point(2)
    stale = 0
    for _ in range(50):
        gaussian_density(moves(), fresh.values, fresh.grads)
        stale += moves.point.values[1] != fresh.values[1]
    assert stale > 3


@pytest.mark.parametrize("density", [walled_density, nan_density], ids=["-inf", "nan"])
@every_kernel
def test_where_the_density_fails_is_never_entered_and_counts_as_divergence(name, density):
    # KS against the Gaussian cut off at the wall, thinned by 5: false alarm 1e-4, seed fixed
    factory, step = ROWS[name]
    beta = 0.12
    mean, sd = law(beta)
    moves = moves_of(factory(), step, beta, seed=4, density=density)
    moves.start(DATA)
    draws, told, known = moves.follow(8000)
    diverged = told[:, DIVERGED] > 0
    if moves.kernel.name == "nuts":  # an earlier part of the tree may hold the new state
        assert (told[diverged, ACCEPTANCE] < 1.0).all()
    else:
        np.testing.assert_array_equal(np.diff(draws, axis=0, prepend=[DATA])[diverged], 0.0)
        assert (told[diverged, ACCEPTANCE] == 0.0).all()
    assert np.isfinite(known[:, : None if moves.kernel.uses_gradient else 2]).all()
    assert draws[:, 0].max() <= WALL
    assert diverged.sum() > 50 or not moves.kernel.uses_gradient
    cut = stats.truncnorm(-np.inf, (WALL - mean[0]) / sd[0], mean[0], sd[0])
    assert stats.kstest(draws[::10, 0], cut.cdf).pvalue > 1e-4


@every_kernel
def test_a_block_moves_alone_and_keeps_its_law(name):
    # The toy's coordinates are independent; KS at p > 1e-4, seed fixed
    factory, step = ROWS[name]
    beta = 0.45
    mean, sd = law(beta)
    second = Block(np.array([1]), *(np.array([v]) for v in (-np.inf, np.inf, False)))
    moves = moves_of(factory(), step, beta, seed=7, block=second)
    z = moves.rng.standard_normal(1500)
    starts = np.column_stack([np.full(z.size, DATA[0]), mean[1] + sd[1] * z])
    ends, _, known = moves.each(starts, times=3)
    np.testing.assert_array_equal(ends[:, 0], DATA[0])
    if moves.kernel.uses_gradient:
        fresh = new_point(2)
        for x, grads in zip(ends, known[:, 2:], strict=True):
            gaussian_density(x, fresh.values, fresh.grads)
            np.testing.assert_array_equal(grads, fresh.grads.ravel())
    assert stats.kstest((ends[:, 1] - mean[1]) / sd[1], "norm").pvalue > 1e-4


@every_kernel
def test_the_generator_alone_decides(name):
    factory, step = ROWS[name]
    runs = []
    for seed in (5, 5, 6):
        moves = moves_of(factory(), step, 0.45, seed)
        moves.start(MEAN)
        runs.append(np.array([moves() for _ in range(50)]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


@pytest.mark.parametrize("target", [0.0, 1.0, -1, 1.5, np.nan])
def test_a_target_acceptance_outside_of_0_and_1_is_refused(target):
    with pytest.raises(ValueError, match=r"target_accept must lie between 0 and 1"):
        HMC(target_accept=target)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("path_length", 0), ("path_length", -1.0), ("path_length", "long"), ("max_steps", 0),
        ("max_steps", 2.5),
    ],
)  # fmt: skip
def test_hmc_refuses_trajectories_without_length(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be .* not {value!r}"):
        HMC(**{argument: value})


def test_kernels_that_cannot_move():
    with pytest.raises(ValueError, match="needs at least one kernel, and one block for each"):
        Compound((), ())
    with pytest.raises(pmt.exceptions.KernelError, match="has no model yet"):
        unbound()
