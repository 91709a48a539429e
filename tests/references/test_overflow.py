"""Prior draws that overflow: states of zero likelihood, if the largest finite draws say so.

A normal whose spread is exp(exp(3.9 s)), which 4.6 % of the s take beyond floating point. The exact
log Z is a sum over s; dropped draws in place of zero likelihood would add .047 to it.
"""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_tempering as pmt
from pymc_tempering.references import compile as overflow
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import evaluate_draws
from pymc_tempering.sampling.reference_draws import draw_log_ratio

GROWTH, Y = 3.9, 0.4
LAST = np.log(np.log(np.finfo(float).max)) / GROWTH


def wild(center, growth=GROWTH):
    """Data at some function of a variable that overflows."""
    with pm.Model() as model:
        s = pm.Normal("s", 0.0, 1.0)
        x = pm.Normal("x", 0.0, pm.math.exp(pm.math.exp(growth * s)))
        pm.Normal("y", center(x), 1.0, observed=Y)
    return model


def exact():
    """Log Z where the data are at x itself."""
    s = np.linspace(-9.0, LAST, 40_001)
    with np.errstate(over="ignore"):
        spread = np.hypot(np.exp(np.exp(GROWTH * s)), 1.0)
    terms = stats.norm.pdf(s) * stats.norm.pdf(Y / spread) / spread
    return np.log(terms.sum() * (s[1] - s[0]))


FUNCTIONS = {
    "falls": lambda x: x,
    "stays": pm.math.tanh,
    "falls on one side": lambda x: pm.math.maximum(x, -1.0),
}


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_largest_finite_draws_decide(kind):
    with pytest.warns(pmt.TemperingWarning, match=r"no finite unconstrained value .worst: x."):
        prior = compile_model(wild(FUNCTIONS[kind]))
    assert prior.prior_constant == ((0.0, 0.0) if kind == "falls" else (0.0, np.inf))


@pytest.mark.slow("compiles models of its own")
def test_draws_that_overflow_count_as_zero_likelihood_and_are_not_dropped():
    """|z| < 4, and the value of dropped draws is more than 8 errors off."""
    with pytest.warns(pmt.TemperingWarning, match="count as states of zero likelihood"):
        prior = compile_model(wild(FUNCTIONS["falls"]))
    n = 300_000
    log_ratio, n_undefined = draw_log_ratio(prior, n, np.random.default_rng(2))
    assert log_ratio.size == n
    assert n_undefined == 0
    lost = ~np.isfinite(prior.draw(n, prior.spawn(np.random.default_rng(2)))).all(axis=1)
    assert abs(lost.mean() - stats.norm.sf(LAST)) < 4.0 * np.sqrt(0.046 / n)
    assert (log_ratio[lost] == -np.inf).all()
    weights = np.exp(log_ratio)
    error = weights.std() / weights.mean() / np.sqrt(n)
    assert abs(np.log(weights.mean()) - exact()) < 4.0 * error
    assert abs(np.log(weights[~lost].mean()) - exact()) > 8.0 * error


@pytest.mark.slow("compiles models of its own")
def test_nothing_is_known_of_draws_that_are_not_numbers(monkeypatch):
    """NaN says in no direction; and planted: finite draws nearby, which are not the largest."""
    with pytest.warns(pmt.TemperingWarning):
        prior = compile_model(wild(FUNCTIONS["falls"]))
    draws = prior.draw(1000, prior.spawn(np.random.default_rng(0)))
    _, log_ratio = evaluate_draws(prior.path, draws[np.isfinite(draws).all(axis=1)])
    assert overflow.carry_none(prior, log_ratio)

    class Broken:
        path = prior.path

        def spawn(self, rng):
            return prior.spawn(rng)

        def draw(self, n, rngs):
            found = prior.draw(n, rngs)
            return np.where(np.isinf(found), np.nan, found)

    assert not overflow.carry_none(Broken(), log_ratio)
    monkeypatch.setattr(overflow, "N_LARGEST", overflow.N_TAIL)
    assert not overflow.carry_none(prior, log_ratio)


@pytest.mark.slow("compiles models of its own")
def test_more_than_a_twentieth_is_refused():
    with pytest.raises(
        pmt.exceptions.PriorDrawsError, match=r"no finite unconstrained value .worst: x."
    ):
        compile_model(wild(FUNCTIONS["falls"], growth=4.6))


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore:.*no finite unconstrained")
def test_a_run_from_such_a_prior_has_the_exact_evidence():
    # |z| < 4, seed fixed
    idata = pmt.sample(
        1000, model=wild(FUNCTIONS["falls"]), reference="prior", random_seed=1, quiet=True
    )
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - exact()) < 4.0 * evidence.mcse
    assert evidence.mcse < 0.05
    assert "undefined_draws" not in evidence.details
    assert int(idata.sample_stats["n_zero_likelihood"].sum()) > 0


@pytest.mark.slow("compiles models of its own", quick=["auto"])
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
@pytest.mark.parametrize("reference", ["prior", "auto"])
def test_a_run_is_not_ok_where_the_likelihood_does_not_fall(reference):
    idata = pmt.sample(
        200, model=wild(FUNCTIONS["stays"]), reference=reference, random_seed=1, quiet=True
    )
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict != "ok"
    assert evidence.mcse == np.inf
    assert any("nothing bounds what they carry" in sentence for sentence in evidence.warnings)


@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_annealing_is_refused_where_the_likelihood_does_not_fall():
    with pytest.raises(pmt.exceptions.PriorDrawsError, match="nothing bounds what they carry"):
        pmt.ais(model=wild(FUNCTIONS["stays"]), random_seed=1)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_each_coordinate_is_judged_by_its_own_farthest_draws():
    """Two ordered values whose scale vanishes are equal, where the likelihood stays as it is.

    The farthest draws of all are those whose scale is huge, and these have none.
    """
    with pm.Model() as model:
        scale = pm.math.exp(0.75 * pm.Cauchy("log_scale", 1.27, 0.79))
        order = pm.distributions.transforms.ordered
        x = pm.StudentT(
            "x", nu=5.0, mu=-1.8, sigma=scale, shape=2, transform=order, initval=[1.0, 2.0]
        )
        pm.Laplace("y", 1.27 * x, 2.4, observed=[-2.6, -0.2])
    idata = pmt.sample(
        50, model=model, chains=2, cores=1, random_seed=1, quiet=True, progressbar=False
    )
    found = pmt.log_marginal_likelihood(idata)
    assert found.verdict != "ok"
    assert found.mcse == np.inf
