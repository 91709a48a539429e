"""Annealing of models with discrete variables: log Z by enumeration, bounds, and reversals."""

import itertools
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from sampling.test_discrete_models import mixture_with_labels
from scipy import stats
from scipy.special import logsumexp
from support import boltzmann_machine
from support.boltzmann_machine import HIDDEN, VISIBLE, WEIGHTS
from support.exact_posteriors import with_density_of

import pymc_tempering as pmt
from pymc_tempering.annealed.schedule import (
    BetaSchedule,
    anneal_blocks,
    placed_blocks,
    prior_blocks,
)
from pymc_tempering.chain.particles import place, sweep
from pymc_tempering.chain.plan import Tuning
from pymc_tempering.kernels import Block, Compound, Gibbs, Slice
from pymc_tempering.references.compile import compile_model

QUIET = {"progressbar": False, "random_seed": 5}


@cache
def rbm():
    """8 visible and 5 hidden units: (model, log Z, exact draws as a DataTree)."""
    draws = boltzmann_machine.draws(np.random.default_rng(1), 4, 250)
    return boltzmann_machine.machine(), boltzmann_machine.LOG_Z, tree(draws)


@cache
def labels():
    """Six points of three normals with their labels: (model, log Z, exact draws)."""
    model, log_z, _ = mixture_with_labels()
    y, weights = np.array([-2.1, -1.6, 0.3, 1.8, 2.2, 2.9]), np.array([0.5, 0.3, 0.2])
    centers, var = np.array([-2.0, 0.0, 2.0]), 0.49
    z = np.array(list(itertools.product(range(3), repeat=6)))
    one_hot = z[..., None] == np.arange(3)
    n, total = one_hot.sum(axis=1), np.einsum("sik,i->sk", one_hot, y)
    precision = 1.0 + n / var
    mean = (centers + total / var) / precision
    log_p = np.log(weights)[z].sum(axis=1) - 0.5 * np.log(precision).sum(axis=1)
    log_p += 0.5 * (precision * mean**2).sum(axis=1)
    rng = np.random.default_rng(2)
    which = rng.choice(len(z), (4, 250), p=np.exp(log_p - logsumexp(log_p)))
    mu = mean[which] + rng.normal(size=(4, 250, 3)) / np.sqrt(precision[which])
    return model, log_z, tree({"mu": mu, "z": z[which]})


def tree(draws):
    data = {name: (("chain", "draw", f"{name}_dim_0"), values) for name, values in draws.items()}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data)})


MODELS = {"rbm": rbm, "labels": labels}
UPWARD = {
    "ais": pmt.ais,
    "smc": pmt.smc,
    "integration": pmt.thermodynamic_integration,
}


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", UPWARD)
def test_evidence_is_that_of_enumeration(method, name):
    """|z| < 4 each, at an mcse of 0.1 at most: false alarm 6e-5."""
    model, exact, _ = MODELS[name]()
    evidence = UPWARD[method](model, **QUIET)
    assert evidence.verdict == "ok"
    assert evidence.mcse < 0.1
    assert abs(evidence.log_z - exact) < 4.0 * evidence.mcse


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore:The draws come without their log density")
@pytest.mark.parametrize("name", MODELS)
def test_bounds_hold_the_exact_value_between_them(name):
    model, exact, idata = MODELS[name]()
    both = pmt.sandwich(idata, model, **QUIET)
    assert both.lower.log_z < exact + 4.0 * both.lower.mcse
    assert both.upper.log_z > exact - 4.0 * both.upper.mcse
    assert abs(both.gap) < 0.5
    upper = pmt.reverse_ais(idata, model, **QUIET)
    assert upper.bias_direction == "above"
    assert upper.log_z > exact - 4.0 * upper.mcse


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore:Only .* particles count")  # with few rungs
def test_raise_lies_below_and_comes_closer_with_more_rungs():
    """Three visible states: log p_ann(v) is at most log p(v) + 4 mcse, and less far from it."""
    model, log_z, idata = rbm()
    rows = idata["posterior"]["v"].values.reshape(-1, 8)[[0, 300, 700]]
    exact = rows @ VISIBLE + np.log1p(np.exp(HIDDEN + rows @ WEIGHTS)).sum(axis=1) - log_z
    distance = []
    for rungs in (10, 40):
        bounds = [pmt.annealed.raise_({"v": v}, model, betas=rungs, **QUIET) for v in rows]
        off = np.array([bound.log_z for bound in bounds]) - exact
        assert np.all(off < 4.0 * np.array([bound.mcse for bound in bounds]))
        distance.append(np.sqrt(np.mean(off**2)))
    assert distance[1] < 0.5 * distance[0]
    assert distance[1] < 0.1


def test_raise_refuses_data_that_are_no_whole_numbers():
    with pytest.raises(pmt.exceptions.DataMismatchError, match="'v' must be whole numbers"):
        pmt.annealed.raise_({"v": np.full(8, 0.5)}, rbm()[0], progressbar=False)


@pytest.mark.slow("compiles models of its own")
def test_hais_names_what_it_misses():
    with pytest.raises(
        pmt.exceptions.ModelError, match="hais keeps the momentum of real variables"
    ):
        pmt.annealed.hais(rbm()[0], progressbar=False)
    model, exact, _ = labels()
    evidence = pmt.annealed.hais(model, **QUIET)
    assert abs(evidence.log_z - exact) < 4.0 * evidence.mcse < 0.4


def flip_one(state, beta, rng):
    """Turn over the first visible unit: leaves nothing invariant, but nobody has to ask."""
    return {"v": np.append(1 - state["v"][0], state["v"][1:])}


@pytest.mark.slow("compiles models of its own")
def test_a_kernel_of_ones_own_must_state_its_reversal():
    model, _, idata = rbm()
    mapping = {"v": pmt.kernels.CustomKernel(flip_one)}
    for refused in (
        lambda: pmt.reverse_ais(idata, model, transition=mapping, progressbar=False),
        lambda: pmt.annealed.raise_(
            {"v": np.ones(8)}, model, transition=mapping, progressbar=False
        ),
        lambda: pmt.sandwich(
            idata, model, transition={"v": pm.BinaryGibbsMetropolis}, progressbar=False
        ),
    ):
        with pytest.raises(pmt.exceptions.KernelError, match=r"reversal in time .* is not known"):
            refused()


@cache
def forbidden():
    """Two fair bits that may not both be on: a quarter of the prior has no likelihood."""
    with pm.Model() as model:
        b = pm.Bernoulli("b", 0.5, shape=2)
        pm.Potential("not both", pm.math.switch(pt.eq(b.sum(), 2), -np.inf, 0.0))
    rng = np.random.default_rng(7)
    draws = np.array([[0, 0], [0, 1], [1, 0]])[rng.integers(3, size=(4, 250))]
    return model, np.log(0.75), with_density_of(tree({"b": draws}), model)


@pytest.mark.slow("compiles models of its own")
def test_a_part_of_the_prior_without_likelihood_enters_every_bound():
    """All weights are equal but for the share of the prior, which is known to 0.004 nats."""
    model, exact, idata = forbidden()
    up = pmt.ais(model, **QUIET)
    both = pmt.sandwich(idata, model, **QUIET)
    bound = pmt.annealed.raise_({"b": [0, 1]}, model, **QUIET)
    for found, value in (
        (up, exact), (both.lower, exact), (both.upper, exact), (bound, np.log(1.0 / 3.0)),
    ):  # fmt: skip
        assert abs(found.log_z - value) < 4.0 * found.mcse < 0.3
    assert both.verdict == "ok"


@pytest.mark.slow("compiles models of its own")
def test_several_step_methods_in_turn_are_not_their_own_reversal():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + b, 1.0, observed=0.5)
    kernel = pmt.kernels.StepKernel(pm.Metropolis, reversal="self")
    with pytest.raises(pmt.exceptions.KernelError, match="one after the other"):
        pmt.annealed.raise_({"a": 0.0}, model, transition=kernel, progressbar=False)


# The reversal of a compound on a small law by enumeration: how often x leads to y.

COUPLED = np.array([[0.0, 1.6, -1.2], [1.6, 0.0, 0.9], [-1.2, 0.9, 0.0]])
CORNERS = np.array(list(itertools.product([0, 1], repeat=3)), dtype=float)


@cache
def triangle():
    """Three coupled binary variables, and their law at beta = 1."""
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=3)
        pm.Potential("energy", 0.5 * pt.dot(x, pt.dot(COUPLED, x)) + 0.7 * x[0])
    prior = compile_model(model, gradient=(), values=True)
    log_p = 0.5 * np.einsum("ni,ij,nj->n", CORNERS, COUPLED, CORNERS) + 0.7 * CORNERS[:, 0]
    return prior, np.exp(log_p - logsumexp(log_p))


def pairs(kernel, seed, n=20_000):
    """Counts of (x, y), shape (8, 8), of exact draws x and where a sweep brings them, y."""
    prior, law = triangle()
    rng = np.random.default_rng(seed)
    first = rng.choice(8, n, p=law)
    particles = place(prior, kernel, CORNERS[first], rng)
    row = kernel.pack(np.ones(kernel.n_blocks), np.ones(3), None, None)
    sweep(particles, 1.0, row)
    last = (particles.xs @ [4, 2, 1]).astype(int)
    return np.histogram2d(first, last, bins=[np.arange(9)] * 2)[0]


def homogeneity(one, two):
    """p-value of a chi-square test that two tables of counts have the same law."""
    used = one + two > 0
    return stats.chi2_contingency(np.array([one[used], two[used]])).pvalue


def compound():
    """Gibbs on two of the variables, slice sampling on the third."""
    bits = Block(np.array([0, 2]), np.zeros(2), np.ones(2), np.ones(2, dtype=bool))
    one = Block(np.array([1]), np.zeros(1), np.ones(1), np.ones(1, dtype=bool))
    return Compound((Gibbs(), Slice()), (bits, one))


@pytest.mark.slow("compiles models of its own")
def test_a_compound_runs_backward_by_its_reversal():
    """pi(x) P(x, y) = pi(y) P~(y, x), at p > 1e-4; planted: blocks, or coordinates, not turned."""
    kernel = compound()
    right = pairs(kernel, 1)
    assert homogeneity(right, pairs(kernel.reversed(), 2).T) > 1e-4
    blocks_as_they_were = Compound(kernel.kernels, tuple(b.reversed() for b in kernel.blocks))
    assert homogeneity(right, pairs(blocks_as_they_were, 2).T) < 1e-8
    coordinates_as_they_were = Compound(kernel.kernels[::-1], kernel.blocks[::-1])
    assert homogeneity(right, pairs(coordinates_as_they_were, 2).T) < 1e-8
    assert homogeneity(right, pairs(kernel, 2).T) < 1e-8  # it is not its own reversal


def share_of_ends(plan, n, seed):
    """How often annealing upward, with one more transition at beta = 1, ends in each corner."""
    prior, _ = triangle()
    rng = np.random.default_rng(seed)
    up = anneal_blocks(prior_blocks(prior, n, rng), plan, 1)
    ends = place(prior, plan.kernel, up.states, rng)
    sweep(ends, 1.0, plan.params[-1])
    return np.bincount((ends.xs @ [4, 2, 1]).astype(int), minlength=8) / n


@pytest.mark.slow("compiles models of its own")
def test_a_reversal_in_the_wrong_order_is_no_density_of_the_annealing_model(monkeypatch):
    """Weights of RAISE from each corner against the share of paths that end there: |z| < 4."""
    prior, law = triangle()
    betas, n = np.array([0.0, 1.0]), 10_000
    tuning = Tuning(betas, np.ones((2, 2)), np.ones((2, 3)), (None,) * 2, np.full((2, 2), np.nan))
    plan = BetaSchedule(compound(), tuning)
    share = share_of_ends(plan, n, 3)
    log_f = np.log(law) + prior_log_z()

    def largest_z(seed):
        z = []
        for corner, expected in enumerate(share):
            starts = np.tile(CORNERS[corner], (n, 1))
            blocks = placed_blocks(prior, starts, np.random.default_rng(seed + corner))
            w = np.exp(log_f[corner] + anneal_blocks(blocks, plan, 1, down=True).log_w)
            error = np.hypot(w.std() / np.sqrt(n), np.sqrt(expected * (1 - expected) / n))
            z.append((w.mean() - expected) / error)
        return np.max(np.abs(z))

    assert largest_z(10) < 4.0
    monkeypatch.setattr(Compound, "reversed", lambda self: self)
    monkeypatch.setattr(Tuning, "reversed", lambda self: self)
    assert largest_z(10) > 6.0


def prior_log_z():
    """Log of the sum of f over all corners: f = prior times the energy's exponential."""
    log_f = 0.5 * np.einsum("ni,ij,nj->n", CORNERS, COUPLED, CORNERS) + 0.7 * CORNERS[:, 0]
    return logsumexp(log_f - 3.0 * np.log(2.0))
