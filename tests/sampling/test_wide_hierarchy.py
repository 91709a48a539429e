"""A centered hierarchy of more than 200 dimensions, with crossed effects, against the exact law.

With a kernel of the user's own no latent field is looked for.
"""

import numpy as np
import pymc as pm
import pytest

import pymc_tempering as pmt
from pymc_tempering.sampling import fit_reference

QUIET = {"kernel": "hmc", "progressbar": False, "quiet": True}
N_PERSONS, N_ITEMS, N, NOISE = 150, 60, 1500, 0.5


def answers(seed=1):
    rng = np.random.default_rng(seed)
    person, item = rng.integers(N_PERSONS, size=N), rng.integers(N_ITEMS, size=N)
    y = 0.6 * rng.normal(size=N_PERSONS)[person] + 0.3 * rng.normal(size=N_ITEMS)[item]
    return person, item, y + NOISE * rng.normal(size=N)


DATA = answers()


def crossed():
    person, item, y = DATA
    with pm.Model() as model:
        of_persons = pm.Normal("person", 0, pm.HalfNormal("sd_person", 1), shape=N_PERSONS)
        of_items = pm.Normal("item", 0, pm.HalfNormal("sd_item", 1), shape=N_ITEMS)
        pm.Normal("y", of_persons[person] + of_items[item], NOISE, observed=y)
    return model


def exact_log_z():
    """Log evidence by quadrature over the two scales; given them all is normal."""
    person, item, y = DATA
    design = np.zeros((N, N_PERSONS + N_ITEMS))
    design[np.arange(N), person], design[np.arange(N), N_PERSONS + item] = 1.0, 1.0
    gram, right = design.T @ design / NOISE**2, design.T @ y / NOISE**2
    alone = -0.5 * y @ y / NOISE**2 - 0.5 * N * np.log(2 * np.pi * NOISE**2)
    first, second = np.linspace(0.3, 1.1, 60), np.linspace(0.1, 0.7, 60)
    terms = []
    for a in first:
        for b in second:
            own = np.repeat([a**-2, b**-2], [N_PERSONS, N_ITEMS])
            factor = np.linalg.cholesky(gram + np.diag(own))
            half = np.linalg.solve(factor, right)
            log_det = np.log(np.diag(factor)).sum() - 0.5 * np.log(own).sum()
            log_prior = 2 * np.log(2 / np.sqrt(2 * np.pi)) - 0.5 * (a**2 + b**2)
            terms.append(alone + 0.5 * half @ half - log_det + log_prior)
    area = (first[1] - first[0]) * (second[1] - second[0])
    return np.logaddexp.reduce(terms) + np.log(area)


@pytest.fixture(scope="module")
def run():
    return pmt.sample(model=crossed(), draws=500, random_seed=2, **QUIET)


@pytest.mark.slow("compiles models of its own")
def test_evidence_is_exact(run):
    found = pmt.log_marginal_likelihood(run)
    assert found.verdict == "ok"
    assert found.mcse < 0.1
    assert abs(found.log_z - exact_log_z()) < 4 * found.mcse


@pytest.mark.slow("compiles models of its own")
def test_the_curvature_tells_the_reference(monkeypatch):
    """It is near the posterior at once: without it trial runs are needed."""
    made = []
    by_curvature = fit_reference._by_curvature

    def counted(*args, **kwargs):
        made.append(by_curvature(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(fit_reference, "_by_curvature", counted)
    monkeypatch.setattr(fit_reference, "_by_trials", None)
    pmt.sample(model=crossed(), draws=100, random_seed=3, **QUIET)
    assert len(made) == 1
    assert made[0].curved
