"""Weights of the rungs that the user wants: the chain spends its time by them, and log Z stays."""

import numpy as np
import pymc as pm
import pytest

import pymc_tempering as pmt

BETAS = [0.0, 0.1, 0.4, 1.0]


@pytest.fixture(scope="module")
def model():
    """A normal mean; y has variance 10."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        pm.Normal("y", mu, 1.0, observed=2.0)
    return model


def occupancy(idata):
    return idata["sample_stats"]["visits"].sum(("chain", "draw")).values


@pytest.mark.parametrize(
    ("weights", "options"),
    [
        (lambda beta: np.exp(2.0 * beta), {}),
        ([4.0, 1.0, 1.0, 2.0], {"betas": BETAS, "reference": "prior"}),
    ],
    ids=["function", "numbers"],
)
def test_the_rungs_have_their_share_and_log_z_is_right(model, weights, options):
    """Occupancies of 8,000 iterations and more within 15 %; log Z within 4 errors."""
    idata = pmt.sample(
        2000, model=model, random_seed=3, quiet=True, rung_weights=weights, **options
    )
    betas = idata["tempering"]["beta"].values
    wanted = np.asarray(weights(betas) if callable(weights) else weights)
    share = occupancy(idata) / occupancy(idata).sum()
    np.testing.assert_allclose(share, wanted / wanted.sum(), rtol=0.15)
    exact = -0.5 * (np.log(2.0 * np.pi * 10.0) + 4.0 / 10.0)
    for method in (None, "rts"):
        found = pmt.log_marginal_likelihood(idata, method=method)
        assert found.verdict == "ok"
        assert abs(found.log_z - exact) < 4.0 * found.mcse


@pytest.mark.parametrize(
    ("weights", "options", "words"),
    [
        ([1.0, 2.0, 1.0], {}, "must be a function of beta where betas are not given"),
        ([1.0, 2.0], {"betas": BETAS, "reference": "prior"}, "each of the 4 rungs"),
        (lambda beta: beta, {}, "one positive number for each"),
        (lambda beta: 1.0, {}, "one positive number for each"),
        (lambda beta: np.inf * (1.0 + beta), {}, "one positive number for each"),
    ],
)
def test_odd_weights_are_refused_before_work_starts(model, weights, options, words):
    for door in (pmt.sample, pmt.SimulatedTempering):
        with pytest.raises(pmt.exceptions.LadderError, match=words):
            door(model=model, rung_weights=weights, **options)
