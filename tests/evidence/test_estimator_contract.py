"""What docs/developer/add_an_estimator.md promises of every estimator that reads a run."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.estimator_contract import CONTRACT, estimates, target
from support.repeated_runs import BETAS, LOG_Z_LADDER, calibration_faults
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering.evidence import ESTIMATORS
from pymc_tempering.evidence.estimators import READERS, RUN, estimate_quietly


@pytest.fixture(params=CONTRACT)
def method(request):
    """Every estimator in turn."""
    return request.param


def test_every_estimator_has_a_row_here():
    assert list(CONTRACT) == list(ESTIMATORS)


def test_the_registry_says_what_it_is_and_the_docstring_shows_it(method):
    row = ESTIMATORS[method]
    assert row.reads in READERS
    assert row.draws == RUN
    assert re.search(r"\(\d{4}\)", row.summary), "a paper with its year"
    assert row.summary.endswith(".")
    assert f'- "{method}"' in pmt.log_marginal_likelihood.__doc__
    assert f'- "{method}"' in pmt.cross_check.__doc__


@pytest.mark.slow("repeats", every=3)
@pytest.mark.parametrize("toy", ["gauss", "gamma", "cut"])
def test_value_and_stated_error_are_the_real_ones(method, toy):
    """Over repeats on three paths; on the third the likelihood is zero on a part of the prior."""
    row = CONTRACT[method]
    found = estimates(method, toy, row.repeats[toy])
    assert {e.method for e in found} == {method}
    if row.rule:  # the error of sampling, about what the rule gives without any
        found = [replace(e, mcse=e.details["sampling_mcse"]) for e in found]
    assert not list(calibration_faults(found, target(method, toy), row.repeats[toy]))


def test_the_order_of_chains_does_not_matter(method):
    idata = gaussian_run(100, 4, random_seed=6, reference_draws=200)
    found = estimate_quietly(idata, method)
    turned = estimate_quietly(idata.isel(chain=[3, 2, 1, 0]), method)
    assert turned.log_z == pytest.approx(found.log_z, abs=1e-8)
    assert turned.mcse == pytest.approx(found.mcse, rel=1e-6)
    np.testing.assert_allclose(turned.per_chain, found.per_chain[::-1], atol=1e-8)


@dataclass(frozen=True)
class ShiftedToy(GaussianToy):
    """The toy with a constant added to log_ratio (nats)."""

    constant: float = 3.0

    def log_ratio(self, x):
        return super().log_ratio(x) + self.constant

    def log_z(self, beta):
        return super().log_z(beta) + self.constant * beta


def test_a_constant_added_to_log_ratio_is_added_to_log_z(method):
    """So everything is in nats. The likelihood times exp(3) has Z times exp(3)."""
    shared = {"draws": 100, "chains": 4, "random_seed": 7, "betas": BETAS, "reference_draws": 200}
    found = estimate_quietly(gaussian_run(**shared, log_z_ladder=LOG_Z_LADDER), method)
    ladder = LOG_Z_LADDER + 3.0 * BETAS
    moved = estimate_quietly(gaussian_run(**shared, toy=ShiftedToy(), log_z_ladder=ladder), method)
    np.testing.assert_allclose(moved.log_z_curve, found.log_z_curve + 3.0 * BETAS, atol=1e-7)
    assert moved.mcse == pytest.approx(found.mcse, rel=1e-5)


def test_too_few_tours_have_no_error(method):
    found = estimate_quietly(
        gaussian_run(draws=10, chains=2, random_seed=1, reference_draws=200), method
    )
    assert found.n_tours < 20
    assert np.isfinite(found.log_z)
    assert (found.verdict, found.mcse) == ("unchecked", np.inf)
    assert any("sample" in sentence for sentence in found.warnings), "what to do"
