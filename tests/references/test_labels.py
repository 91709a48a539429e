"""Labels that can be exchanged: found by the density alone, and fitted once for all labelings."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp

import pymc_tempering as pmt
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.labels import (
    all_labelings,
    near_each_other,
    one_labeling,
    relabeled,
)
from pymc_tempering.references.mixture import FullScales, Mixture
from pymc_tempering.references.mixture_fit import fit_mixture
from pymc_tempering.references.prior import evaluate_draws

K, SD, PRIOR_SD = 3, 0.5, 5.0
Y = np.array([-2.1, -1.8, -0.3, 0.1, 0.4, 2.2, 2.9])


def mixture_model(k=K, means=0.0, slopes=0, **of_means):
    """Build a mixture of normals; `slopes` further parameters of a regression, if there are any."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(k))
        mu = pm.Normal("mu", means, PRIOR_SD, shape=k, **of_means)
        pm.NormalMixture("y", w, mu, sigma=SD, observed=Y)
        if slopes:
            slope = pm.Normal("slope", shape=slopes)
            pm.Normal("z", np.arange(2.0 * slopes).reshape(2, slopes) @ slope, 1, observed=[1, 2])
    return model


def exact_log_z(k):
    """Sum over the component of each of the data; weights and means are known laws given these."""
    terms = []
    for of_each in product(range(k), repeat=Y.size):
        counts = np.bincount(of_each, minlength=k)
        sums, squares = (np.bincount(of_each, each, k) for each in (Y, Y**2))
        law = gammaln(k) - gammaln(k + Y.size) + gammaln(counts + 1.0).sum()
        ratio = (PRIOR_SD / SD) ** 2
        law -= 0.5 * Y.size * np.log(2 * np.pi * SD**2) + 0.5 * np.log1p(counts * ratio).sum()
        inside = squares - ratio * sums**2 / (1 + counts * ratio)
        terms.append(law - 0.5 * inside.sum() / SD**2)
    return logsumexp(terms)


def moved(prior):
    """Names of the value variables that the labelings change."""
    changed = np.abs(prior.labelings - np.eye(prior.path.dim)).max(axis=(0, 2)) > 0
    layout = prior.path.layout
    return {name for name, at in zip(layout.names, layout.slices, strict=True) if changed[at].any()}


@pytest.fixture(scope="module")
def prior():
    return compile_model(mixture_model())


@pytest.mark.slow("compiles models of its own")
def test_labels_of_a_mixture_are_found(prior):
    maps = prior.labelings
    assert len(maps) == 6
    assert moved(prior) == {"w_simplex__", "mu"}
    np.testing.assert_array_equal(maps[0], np.eye(prior.path.dim))
    np.testing.assert_allclose(np.abs(np.linalg.det(maps)), 1.0)
    xs = prior.sample[:5]
    before = evaluate_draws(prior.path, xs)
    for each in maps:
        np.testing.assert_allclose(evaluate_draws(prior.path, xs @ each.T), before, rtol=1e-8)


@pytest.mark.slow("compiles models of its own")
def test_what_has_the_same_length_by_chance_stays():
    found = compile_model(mixture_model(slopes=K))
    assert moved(found) == {"w_simplex__", "mu"}


@pytest.mark.slow("compiles models of its own")
def test_a_share_that_is_a_single_number_goes_with_its_labels():
    with pm.Model() as model:
        share = pm.Beta("share", 2, 2)
        mu = pm.Normal("mu", 0, 5, shape=2)
        pm.NormalMixture("y", pm.math.stack([share, 1 - share]), mu, sigma=1, observed=Y)
        pm.Normal("z", pm.Normal("slope"), 1, observed=[1.0, 2.0])
    prior = compile_model(model)
    assert len(prior.labelings) == 2
    assert moved(prior) == {"share_logodds__", "mu"}


IN_ORDER = {"transform": pm.distributions.transforms.ordered, "initval": np.arange(K)}


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("more", [{"means": [-1.0, 0.0, 1.0]}, IN_ORDER])
def test_labels_that_mean_something_are_none(more):
    assert compile_model(mixture_model(**more)).labelings is None


@pytest.mark.slow("compiles models of its own")
def test_more_labelings_than_pay_are_not_made():
    assert compile_model(mixture_model(k=6)).labelings is None


def random_mixture(dim, rng):
    factors = np.tril(rng.normal(size=(2, dim, dim)), -1) + 2 * np.eye(dim)
    return Mixture(
        np.array([0.3, 0.7]), 6 * rng.normal(size=(2, dim)), FullScales(factors),
        np.array([5.0, 9.0]), 0.05,
    )  # fmt: skip


@pytest.mark.slow("compiles models of its own")
def test_a_copied_mixture_is_the_same_in_all_labelings(prior):
    rng = np.random.default_rng(1)
    one = random_mixture(prior.path.dim, rng)
    every = all_labelings(one, prior.labelings)
    assert every.n_components == 12
    assert every.weights.sum() == pytest.approx(1.0)
    xs = every.draw(50, rng)
    density = logsumexp(every.log_t(xs), axis=1)
    for each in prior.labelings:
        np.testing.assert_allclose(logsumexp(every.log_t(xs @ each.T), axis=1), density)
    np.testing.assert_allclose(one_labeling(every).log_t(xs), one.log_t(xs))


@pytest.mark.slow("compiles models of its own")
def test_draws_come_back_to_one_labeling(prior):
    rng = np.random.default_rng(2)
    narrow = random_mixture(prior.path.dim, rng)
    every = all_labelings(narrow, prior.labelings)
    xs = every.draw(400, rng)
    back = relabeled(every, xs)
    first = logsumexp(narrow.log_t(back), axis=1)
    for each in prior.labelings:
        assert (logsumexp(narrow.log_t(back @ each.T), axis=1) <= first + 1e-9).all()
    assert np.unique(np.round(relabeled(every, back) - back, 9)).size == 1


@pytest.mark.slow("compiles models of its own")
def test_draws_are_brought_near_each_other(prior):
    rng = np.random.default_rng(3)
    own = np.array([0.5, -0.5, -4.0, 0.0, 5.0]) + 0.3 * rng.normal(size=(300, 5))
    maps = prior.labelings[rng.integers(6, size=300)]
    near = near_each_other(np.einsum("nij,nj->ni", maps, own), prior.labelings)
    assert near.std(axis=0).max() < 0.4


@pytest.mark.slow("compiles models of its own")
def test_one_mode_is_fitted_as_one():
    """Two numbers of which the data know the sum can be exchanged; their posterior has one mode."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", shape=2).sum(), 1, observed=1.0)
    prior = compile_model(model)
    assert len(prior.labelings) == 2
    law = np.linalg.inv(np.eye(2) + np.ones((2, 2)))
    draws = np.random.default_rng(4).multivariate_normal(law.sum(axis=1), law, 2000)
    made = fit_mixture(draws, np.random.default_rng(5), labelings=prior.labelings)
    assert made.labelings is None
    assert made.n_components == 1


N_RUNS, LIMIT = 4, 18.47
"""Runs of each number of components, and the quantile of the sum of their squared errors that is
exceeded once in a thousand times."""


def errors(k):
    """Errors of runs in stated errors, and the stated ones (nats)."""
    found = [
        pmt.log_marginal_likelihood(
            pmt.sample(model=mixture_model(k), random_seed=seed, cores=1, quiet=True)
        )
        for seed in range(N_RUNS)
    ]
    assert {each.verdict for each in found} == {"ok"}
    mcse = np.array([each.mcse for each in found])
    return (np.array([each.log_z for each in found]) - exact_log_z(k)) / mcse, mcse


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("k", [3, 4])
def test_evidence_of_mixtures_is_exact(k):
    """Without labels the stated errors of four components are .010 to .015."""
    z, mcse = errors(k)
    assert (z**2).sum() < LIMIT
    assert np.median(mcse) < 0.006


@pytest.mark.slow("compiles models of its own")
def test_a_bridge_counts_labelings_that_its_draws_lack():
    """The log of 3! is 1.79, by which an evidence of one labeling is too low (Neal, 1999)."""
    model = mixture_model()
    with model:
        idata = pm.sample(500, chains=2, cores=1, random_seed=1, progressbar=False)
    with pytest.warns(pmt.TemperingWarning, match="R-hat"):  # of means with other labels
        found = pmt.bridge_sampling(idata, model, proposal="mixture", random_seed=2)
    assert found.mcse < 0.1
    assert abs(found.log_z - exact_log_z(K)) < 4 * found.mcse
