"""Sums over counts go as far as there is weight, or the result says that they do not."""

import json
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from scipy.stats import nbinom, norm

import pymc_tempering as pmt
from pymc_tempering.core.findings import Finding
from pymc_tempering.evidence.datatree import FINDINGS
from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.model.origin import origin_of
from pymc_tempering.references.as_written import findings_at
from pymc_tempering.references.compile import compile_model
from pymc_tempering.sampling import choose_plan
from pymc_tempering.summed import groups
from pymc_tempering.summed.sum_out import sum_out

FAR = np.array([700.0, 12.0])


def far(kind=pm.Normal):
    """A count far in the tail of its prior beside one that is not."""
    with pm.Model(coords={"site": ["a", "b"]}) as model:
        n = pm.NegativeBinomial("n", mu=12.0, alpha=0.4, dims="site")
        shift = pm.Normal("shift", 0, 5)
        kind("y", n + shift, 15.0, observed=FAR, dims="site")
    return model


def exact_far():
    counts, (nodes, weights) = np.arange(4000), np.polynomial.hermite_e.hermegauss(40)
    prior = nbinom.logpmf(counts, 0.4, 0.4 / 12.4)
    terms = [
        sum(logsumexp(prior + norm.logpdf(y, counts + 5 * z, 15.0)) for y in FAR) for z in nodes
    ]
    return float(logsumexp(terms, b=weights / weights.sum()))


def without_scan(monkeypatch):
    """Plant a bug: sums end at 2.5 times the largest draw of the prior, whatever the data are."""
    monkeypatch.setattr(groups, "longer", lambda ranges, *more: ranges)


def run(model):
    return pmt.sample(model=model, random_seed=1, cores=1, quiet=True, progressbar=False)


def doubtful(idata):
    with pytest.warns(TemperingWarning):
        return pmt.log_marginal_likelihood(idata)


def codes(model, n=100):
    """Codes of what is noticed at draws of the prior of the model that is sampled."""
    prior = compile_model(sum_out(model), check=False)
    xs = prior.draw(n, prior.spawn(np.random.default_rng(1)))
    return [finding.code for finding in findings_at(prior.path, xs)]


@pytest.mark.slow("compiles models of its own")
def test_a_count_in_the_tail_of_its_prior_is_summed_to_its_datum():
    found = pmt.log_marginal_likelihood(run(far()))
    assert (found.verdict, found.findings) == ("ok", ())
    assert abs(found.log_z - exact_far()) < 4.0 * found.mcse < 0.05


@pytest.mark.slow("compiles models of its own")
def test_a_sum_that_is_too_short_is_made_longer_and_the_run_is_made_again(monkeypatch):
    without_scan(monkeypatch)
    model = far()
    found = pmt.log_marginal_likelihood(run(model))
    assert found.verdict == "ok"
    assert abs(found.log_z - exact_far()) < 4.0 * found.mcse < 0.05
    assert 700 < origin_of(sum_out(model)).ends["n"] < 2000


@pytest.mark.slow("compiles models of its own")
def test_a_sum_that_stays_too_short_leaves_no_ok(monkeypatch):
    without_scan(monkeypatch)
    monkeypatch.setattr(choose_plan, "check_ends", lambda findings: None)
    found = doubtful(run(far()))
    assert found.log_z < exact_far() - 10.0
    assert (found.verdict, found.mcse) == ("unchecked", np.inf)
    assert found.findings[0].code == "sum_too_short"
    assert "'n': 'slice'" in found.warnings[0]


@pytest.mark.slow("compiles models of its own")
def test_a_tenth_of_the_mass_beyond_the_end_is_seen(monkeypatch):
    def cut(ranges, *more):
        return [replace(r, n_values=np.full_like(r.n_values, 5)) for r in ranges]

    with pm.Model() as model:
        n = pm.Poisson("n", 2.5, shape=2)  # above 4 with a probability of .11
        pm.Normal("y", n + pm.Normal("shift", 0, 0.01), 50.0, observed=[1.0, 2.0])
    assert codes(model) == []
    monkeypatch.setattr(groups, "longer", cut)
    monkeypatch.setattr(groups, "compare_tables", lambda *args: None)
    with pm.Model() as again:
        n = pm.Poisson("n", 2.5, shape=2)
        pm.Normal("y", n + pm.Normal("shift", 0, 0.01), 50.0, observed=[1.0, 2.0])
    assert "sum_too_short" in codes(again)


@pytest.mark.slow("compiles models of its own")
def test_a_likelihood_without_a_known_bound_needs_a_prior_that_falls():
    def counted(prior):
        with pm.Model() as model:
            n = prior("n")
            x = pm.Normal("x", 0, 1)
            pm.Potential("likelihood", -0.5 * (pm.math.log1p(n) - x) ** 2)
        return model

    assert codes(counted(lambda name: pm.Poisson(name, 3.0))) == []
    heavy = counted(lambda name: pm.DiscreteWeibull(name, 0.4, 0.4))
    assert codes(heavy) == ["sum_without_end"]


@pytest.mark.slow("compiles models of its own")
def test_a_rewrite_that_is_off_by_a_constant_is_seen(monkeypatch):
    whole = groups.eliminate

    def off(tables):
        total, steps = whole(tables)
        return total + 0.01, steps

    monkeypatch.setattr(groups, "eliminate", off)
    assert codes(far()) == ["not_as_written"]
    found = doubtful(run(far()))
    assert (found.verdict, found.mcse) == ("disagreed", np.inf)


def chains():
    """States that follow each other, with an angle and a count that nothing depends on."""
    with pm.Model() as model:
        turn = pm.VonMises("turn", 0.0, 0.5, shape=2)
        states = [pm.Bernoulli("s0", 0.5)]
        for i in range(4):
            states.append(pm.Bernoulli(f"s{i + 1}", pm.math.switch(states[-1], 0.8, 0.3)))
        pm.Poisson("leaf", pm.math.exp(turn[0]))
        mean = pm.math.stack(states) * pm.math.cos(turn[1])
        pm.Normal("y", mean, 1, observed=[0.0, 1, 2, 2, 0])
    return model


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("build", [far, chains])
def test_what_is_sampled_is_what_was_written(build):
    assert codes(build()) == []


@pytest.mark.slow("compiles models of its own")
def test_findings_of_a_stored_run_make_its_verdict():
    """Planted: with the finding left out of the run, the verdict is "ok"."""
    idata = run(far())
    assert pmt.log_marginal_likelihood(idata).verdict == "ok"
    finding = {"code": "sum_too_short", "about": "n", "detail": "20", "severity": "unchecked"}
    idata["tempering"].attrs[FINDINGS] = json.dumps([finding])
    found = doubtful(idata)
    assert (found.verdict, found.mcse) == ("unchecked", np.inf)
    assert found.findings == (Finding(**finding),)
    assert type(found).from_json(found.to_json()).findings == found.findings
