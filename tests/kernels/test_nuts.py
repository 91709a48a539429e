"""NUTS beyond the contract of all kernels: against a recursive one, and bugs only it can have."""

import pickle

import numpy as np
import pytest
from support.compiled_density import compiled_density
from support.gaussian_path import gaussian_density, law, law_pvalues
from support.moves import Moves
from support.planted import with_bug

from pymc_tempering.kernels import ACCEPTANCE, DIVERGED, N_EVALUATIONS, N_INFO, NUTS, Block, nuts
from pymc_tempering.kernels.assign import find_kernel
from pymc_tempering.model.compiled import new_point

DIM = 5
COV = np.array([[0.9 ** abs(i - j) * 1.5 ** (i + j) for i in range(DIM)] for j in range(DIM)])
PRECISION = np.linalg.inv(COV)


@compiled_density
def correlated_density(x, values, grads):
    values[:] = 0.0
    for i in range(DIM):
        slope = 0.0
        for j in range(DIM):
            slope -= PRECISION[i, j] * x[j]
        grads[0, i] = 0.3 * slope
        grads[1, i] = slope
        values[0] += 0.15 * x[i] * slope
        values[1] += 0.5 * x[i] * slope


# Against a plain recursive implementation that draws from the generator in the same order.


def recursive_nuts(x, beta, step, scale, max_treedepth, rng):
    """Return the next state, acceptance, leapfrog steps, and whether it diverged."""
    leaves, unsound = [], []

    def evaluate(x):
        values, grads = np.zeros(2), np.zeros((2, x.size))
        correlated_density(x, values, grads)
        return -(values[0] + beta * values[1]), scale * (grads[0] + beta * grads[1])

    def turns(momenta):
        """Whether neighbors and all that is between them turn back, for a list of momenta."""
        half = len(momenta) // 2
        parts = (momenta, momenta[: half + 1], momenta[half - 1 :])
        return any(min(sum(p) @ p[0], sum(p) @ p[-1]) <= 0 for p in parts)

    def build(state, depth):
        """Return momenta from the tree outward, the last state, whether it is sound."""
        if depth == 0:
            x, p, force = state
            p = p + 0.5 * direction * step * force
            x = x + direction * step * scale * p
            potential, force = evaluate(x)
            p = p + 0.5 * direction * step * force
            error = potential + 0.5 * p @ p - energy
            sound = error < 1000.0
            leaves.append(min(1.0, np.exp(-error)) if sound else 0.0)
            if not sound:
                unsound.append(error)
            else:
                new["weights"].append(np.exp(-error))
                if rng.random() * sum(new["weights"]) < new["weights"][-1]:
                    new["x"] = x
            return [p], (x, p, force), sound
        first, state, sound = build(state, depth - 1)
        if not sound:
            return first, state, False
        second, state, sound = build(state, depth - 1)
        momenta = first + second
        return momenta, state, sound and not turns(momenta)

    p = rng.standard_normal(x.size)
    potential, force = evaluate(x)
    energy = potential + 0.5 * p @ p
    ends = {1.0: (x, p, force), -1.0: (x, p, force)}
    tree, weight, sound = [p], 1.0, True
    for depth in range(max_treedepth):
        direction = 1.0 if rng.random() < 0.5 else -1.0
        new = {"weights": [], "x": None}
        momenta, ends[direction], sound = build(ends[direction], depth)
        if not sound:
            break
        added = sum(new["weights"])
        if rng.random() < min(1.0, added / weight):
            x = new["x"]
        weight += added
        tree = tree + momenta if direction > 0 else momenta[::-1] + tree
        if turns(tree):
            break
    return x, np.mean(leaves), len(leaves), len(unsound)


@pytest.mark.slow("compiles models of its own", every=3)
@pytest.mark.parametrize(("step", "max_treedepth"), [(0.1, 10), (0.5, 10), (0.9, 10), (0.1, 3)])
def test_it_takes_the_steps_of_a_recursive_implementation(step, max_treedepth):
    kernel, beta = NUTS(max_treedepth=max_treedepth), 0.6
    scale = 0.9 * np.sqrt(np.diag(COV))
    params = kernel.pack(step, scale, Block.real(DIM))
    scratch = np.full((kernel.n_scratch, DIM), np.nan)
    point, info = new_point(DIM), np.zeros(N_INFO)
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    x, sizes, n_diverged = np.full(DIM, 3.0), set(), 0
    for _ in range(150):
        point.x[:] = x
        correlated_density(point.x, point.values, point.grads)
        kernel.transition(
            correlated_density, point, beta, np.arange(DIM), params, scratch, ours, info
        )
        x, acceptance, steps, diverged = recursive_nuts(x, beta, step, scale, max_treedepth, theirs)
        np.testing.assert_allclose(point.x, x, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(info[ACCEPTANCE], acceptance, rtol=1e-8)
        assert info[N_EVALUATIONS] == steps
        assert info[DIVERGED] == diverged
        sizes.add(steps)
        n_diverged += diverged
    assert len(sizes) >= 3 or max_treedepth == 3
    assert (n_diverged > 20) == (step == 0.9)  # beyond what leapfrog steps can follow
    assert max(sizes) <= 2**max_treedepth - 1
    assert ours.random() == theirs.random()


# The law, by many moves for numbers that show small bugs.


def smallest_pvalue(transition, step, beta=0.45, n=20_000, times=10):
    """Of four KS tests of exact draws from pi_beta that were moved."""
    mean, sd = law(beta)
    moves = Moves(
        NUTS(), gaussian_density, 2, Block.real(2), step, sd,
        beta=beta, seed=1, transition=transition,
    )  # fmt: skip
    xs = mean + sd * moves.rng.standard_normal((n, 2))
    return law_pvalues(moves.each(xs, times)[0], beta).min()


@pytest.mark.parametrize("step", [0.5, 0.8, 1.5])
def test_many_exact_draws_keep_their_law(step):
    # p > 1e-4 in four KS tests: false alarm 4e-4 a step size, seed fixed
    assert smallest_pvalue(nuts.nuts_transition, step) > 1e-4


# name: (what stands there, what a bug would put there, step size that shows it)
BUGS = {
    "last state of a subtree": (
        "if rng.random() < np.exp(-error - log_weight):", "if True:", 1.5,
    ),
    "states of a subtree that turned": (
        "if outcome != GROWN:", "if outcome == BROKEN:", 0.5,
    ),
    "always forward": ("forward = rng.random() < 0.5", "forward = True", 1.5),
    "weight of the last leaf alone": (
        "log_weight = larger + np.log1p(np.exp(min(log_weight, -error) - larger))",
        "log_weight = -error", 1.5,
    ),
    "weight of the last subtree alone": (
        "log_weight = larger + np.log1p(np.exp(min(log_weight, log_new) - larger))",
        "log_weight = log_new", 0.8,
    ),
}  # fmt: skip


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_change_the_law(bug):
    right, wrong, step = BUGS[bug]
    planted = with_bug(nuts, right, wrong)
    assert smallest_pvalue(planted["nuts_transition"], step) < 1e-12


def test_a_start_at_unlikely_energies_does_not_overflow():
    kernel = NUTS()
    point, info = new_point(DIM), np.zeros(N_INFO)
    point.x[:] = 1e4 * np.sqrt(np.diag(COV))
    correlated_density(point.x, point.values, point.grads)
    before = point.values.sum()
    params = kernel.pack(0.3, np.sqrt(np.diag(COV)), Block.real(DIM))
    scratch, rng = np.full((kernel.n_scratch, DIM), np.nan), np.random.default_rng(2)
    for _ in range(20):
        kernel.transition(
            correlated_density, point, 1.0, np.arange(DIM), params, scratch, rng, info
        )
        assert np.isfinite(point.x).all()
        assert np.isfinite(info).all()
    assert point.values.sum() > before + 1e6


@pytest.mark.parametrize("depth", [0, -1, 2.5, 21])
def test_a_depth_that_is_none_is_refused(depth):
    with pytest.raises(ValueError, match=rf"max_treedepth .* not {depth}"):
        NUTS(max_treedepth=depth)


@pytest.mark.slow("compiles models of its own")
def test_its_name_brings_the_target_acceptance_and_pickling_keeps_the_rest():
    assert find_kernel("nuts", 0.9).target_accept == 0.9
    again = pickle.loads(pickle.dumps(NUTS(0.7, max_treedepth=6)))
    one = Block.real(1)
    assert (again.target_accept, again.n_scratch) == (0.7, NUTS(max_treedepth=6).n_scratch)
    np.testing.assert_array_equal(again.pack(0.5, np.ones(1), one), [0.5, 6.0, 1.0])
