"""Sums that cannot be made: the variable is sampled, and the result says why."""

import pymc as pm
import pytest

import pymc_tempering as pmt
from pymc_tempering.core.findings import Finding
from pymc_tempering.evidence import Evidence
from pymc_tempering.model.given_up import given_up
from pymc_tempering.summed.sum_out import sum_out


def many_together():
    """Each of fifteen elements meets all others in one term, which no short sum has."""
    with pm.Model(coords={"row": range(15)}) as model:
        rate = pm.Beta("rate", 2, 2)
        z = pm.Bernoulli("z", rate, dims="row")
        pm.Normal("y", pm.math.exp(z.sum()), 1, observed=3.0)
    return model


def below_zero(size):
    """A count less two."""
    return pm.Poisson.dist(3, size=size) - 2


NOTE = Finding("not_summed", "'z'", "a term depends on more than two of its elements")


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore:R-hat")  # of few draws
def test_every_result_has_a_note():
    model = many_together()
    run = pmt.sample(100, chains=2, model=model, random_seed=1, quiet=True, progressbar=False)
    found = pmt.log_marginal_likelihood(run)
    assert found.findings[1:] == (NOTE,)  # after that of what has not searched
    assert "note: 'z' is not summed out but sampled: a term depends on more" in repr(found)
    assert Evidence.from_json(found.to_json()).findings == found.findings
    assert pmt.bridge_sampling(run, model, random_seed=1).findings == (NOTE,)
    for door in (pmt.smc, pmt.ais):
        assert door(model, random_seed=1, progressbar=False).findings[1:] == (NOTE,)


def test_one_group_of_two_is_given_up():
    model = many_together()
    with model:
        label = pm.Bernoulli("label", 0.3)
        pm.Normal("x", label, 1, observed=0.4)
    left = sum_out(model)
    assert [rv.name for rv in left.free_RVs] == ["rate", "z"]
    assert given_up(left) == (NOTE,)
    assert given_up(model) == ()


@pytest.mark.parametrize(
    ("prior", "why"),
    [
        (lambda: pm.DiscreteUniform("n", 0, 5000), "more than 2,000 values"),
        (lambda: pm.CustomDist("n", dist=below_zero, class_name="Shifted"), "values below zero"),
    ],
)
def test_the_note_says_why(prior, why):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", prior() + x, 1, observed=1.0)
    assert sum_out(model) is model
    [note] = given_up(model)
    assert note.about == "'n'"
    assert why in note.detail
