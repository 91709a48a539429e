"""Priors that must be normalized too: by choice, or because they cannot be drawn from."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from support.model_kinds import Y, gaussian_evidence

import pymc_tempering as pmt


@cache
def by_potential():
    """A potential that is a prior: N(0, 2) times exp(-(mu - 1)^2 / 2)."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Potential("pull", -0.5 * (mu - 1.0) ** 2)
        pm.Normal("y", mu, 1.0, observed=Y)
    return model, ["y"], gaussian_evidence(Y, np.eye(5) + 0.8, 0.8)


def flat_with_potential():
    """The idiom for a prior of one's own: flat times a potential."""
    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Potential("prior", -0.5 * (mu / 2.0) ** 2)
        pm.Normal("y", mu, 1.0, observed=Y)
    return model, "y", gaussian_evidence(Y, np.eye(5) + 4.0)


def two_likelihoods():
    """Evidence of the second half of the data, given the first."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("seen", mu, 1.0, observed=Y[:2])
        pm.Normal("y", mu, 1.0, observed=Y[2:])
    both, first = gaussian_evidence(Y, np.eye(5) + 4.0), gaussian_evidence(Y[:2], np.eye(2) + 4.0)
    return model, ["y"], both - first


def without_draws():
    """A density by hand, without random draws and not normalized; a variable hangs on it."""
    with pm.Model() as model:
        mu = pm.CustomDist("mu", 0.5, logp=lambda value, m: -0.5 * ((value - m) / 2.0) ** 2)
        z = pm.Normal("z", mu, 1.0)
        pm.Normal("y", z, 1.0, observed=Y)
    return model, None, gaussian_evidence(Y, np.eye(5) + 5.0, 0.5)


CASES = (by_potential, flat_with_potential, two_likelihoods, without_draws)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_evidence_is_that_under_the_normalized_prior(case):
    # |z| < 4: false alarm 1e-4 a case, seed fixed
    model, tempered, log_z = case()
    idata = pmt.sample(1000, model=model, tempered=tempered, random_seed=4, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert evidence.mcse < 0.1
    assert abs(evidence.log_z - log_z) < 4.0 * evidence.mcse
    value, error = evidence.prior_term
    assert 0.0 < error < evidence.mcse
    assert abs(value) > 4.0 * error  # without the term the answer would be wrong
    assert "normalizer of the prior" in repr(evidence)


@pytest.mark.slow("compiles models of its own")
def test_the_step_method_carries_the_term_too():
    model, tempered, log_z = by_potential()
    with model:
        step = pmt.SimulatedTempering(tempered=tempered, random_seed=5)
        idata = pm.sample(500, step=step, chains=2, cores=1, random_seed=6, progressbar=False,
                          quiet=True)  # fmt: skip
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(evidence.log_z - log_z) < 4.0 * evidence.mcse
    assert pmt.log_marginal_likelihood(pmt.convert(idata)).log_z == evidence.log_z


def test_everything_tempered_needs_no_term():
    model, _, _ = by_potential()
    idata = pmt.sample(
        200, model=model, tempered=["pull", "y"], random_seed=4, quiet=True, reference="prior"
    )
    assert "prior_log_z" not in idata.sample_stats


@pytest.mark.parametrize(
    ("tempered", "message"),
    [(["x"], "tempered names 'x', not among.*'y', 'pull'"), ([], "tempered is empty")],
)
def test_terms_that_are_not_there(tempered, message):
    with pytest.raises(pmt.exceptions.ModelError, match=message):
        pmt.sample(model=by_potential()[0], tempered=tempered, quiet=True)


@pytest.mark.slow("compiles models of its own")
def test_a_discrete_variable_without_draws_is_refused():
    with pm.Model() as model:
        k = pm.CustomDist("k", logp=lambda value: -1.0 * value, dtype="int64")
        pm.Normal("y", k, 1.0, observed=Y)
    with pytest.raises(pmt.exceptions.DiscreteVariableError, match="'k' cannot be drawn from"):
        pmt.sample(model=model, quiet=True)


@pytest.mark.slow("compiles models of its own")
def test_kernels_that_know_the_model_prior_only_are_refused():
    model, tempered, _ = by_potential()
    with pytest.raises(
        pmt.exceptions.ModelError, match="'Metropolis' only knows prior times tempered"
    ):
        pmt.sample(model=model, tempered=tempered, kernel=pm.Metropolis, quiet=True)
