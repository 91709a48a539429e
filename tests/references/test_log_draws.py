"""Draws made in the unconstrained space have the laws of their families, however extreme."""

from functools import cache, partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_tempering as pmt
from pymc_tempering.model.far_priors import far_priors
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.compile import check_reference
from pymc_tempering.references.prior import compile_prior, evaluate_draws

N = 4000
P_MIN = 1e-4
"""KS p-value below which a test fails: a false alarm in 1e4, for each family; seeds are fixed."""


def log_gamma_cdf(a):
    """Cdf of the log of a standard gamma draw, also where the draw underflows."""

    def cdf(x):
        tail = np.exp(a * x - special.gammaln(a + 1.0))  # exact up to a factor 1 + exp(x)
        return np.where(x < -30.0, tail, special.gammainc(a, np.exp(np.minimum(x, 700.0))))

    return cdf


def logit_beta_cdf(a):
    """Cdf of the log odds of a Beta(a, a) draw."""

    def below(x):  # x < 0
        tail = np.exp(a * x - np.log(a) - special.betaln(a, a))
        return np.where(x < -30.0, tail, special.betainc(a, a, special.expit(x)))

    return lambda x: np.where(x < 0.0, below(-np.abs(x)), 1.0 - below(-np.abs(x)))


def half_t_cdf(nu):
    """Cdf of the log of |t|; far out the tail is a power, of the constant of the density there."""

    def cdf(x):
        log_c = special.gammaln((nu + 1) / 2) - special.gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
        far = np.log(2.0) + log_c + (nu + 1) / 2 * np.log(nu) - np.log(nu) - nu * x
        near = 2.0 * stats.t(nu).cdf(np.exp(np.minimum(x, 30.0))) - 1.0
        return np.where(x > 30.0, 1.0 - np.exp(far), near)

    return cdf


def half_cauchy_cdf(x):
    return 2.0 / np.pi * np.arctan(np.exp(np.minimum(x, 700.0)))


# Prior of a variable's name, and the exact cdf of its unconstrained value.
FAMILIES = {
    "lognormal": (lambda x: pm.LogNormal(x, 3.0, 1e3), lambda x: stats.norm.cdf(x, 3.0, 1e3)),
    "half-normal": (
        lambda x: pm.HalfNormal(x, np.array(1e250)),
        lambda x: special.erf(np.exp(x - np.log(1e250)) / np.sqrt(2)),
    ),
    "half-Cauchy": (
        lambda x: pm.HalfCauchy(x, np.array(1e250)),
        lambda x: half_cauchy_cdf(x - np.log(1e250)),
    ),
    "half-Cauchy, not far": (
        lambda x: pm.HalfCauchy(x, 1e3),
        lambda x: half_cauchy_cdf(x - np.log(1e3)),
    ),
    "half-t": (
        lambda x: pm.HalfStudentT(x, 0.01, 1e3),
        lambda x: half_t_cdf(0.01)(x - np.log(1e3)),
    ),
    "exponential": (
        lambda x: pm.Exponential(x, scale=np.array(1e-250)),
        lambda x: -np.expm1(-np.exp(x - np.log(1e-250))),
    ),
    "Weibull": (
        lambda x: pm.Weibull(x, 0.01, 1e3),
        lambda x: -np.expm1(-np.exp(0.01 * (x - np.log(1e3)))),
    ),
    "gamma": (lambda x: pm.Gamma(x, 0.01, 1.0), log_gamma_cdf(0.01)),
    "gamma of shape 2": (
        lambda x: pm.Gamma(x, 2.0, np.array(1e250)),
        lambda x: log_gamma_cdf(2.0)(x + np.log(1e250)),
    ),
    "chi-squared": (
        lambda x: pm.ChiSquared(x, 0.02),
        lambda x: log_gamma_cdf(0.01)(x - np.log(2.0)),
    ),
    "inverse gamma": (
        lambda x: pm.InverseGamma(x, 0.01, 0.01),
        lambda x: 1.0 - log_gamma_cdf(0.01)(np.log(0.01) - x),
    ),
    "beta": (lambda x: pm.Beta(x, 0.01, 0.01), logit_beta_cdf(0.01)),
    "Pareto": (
        lambda x: pm.Pareto(x, 0.01, 1e3),
        lambda x: -np.expm1(-0.01 * np.logaddexp(0.0, x - np.log(1e3))),
    ),
    "Pareto of shape 2": (
        lambda x: pm.Pareto(x, 2.0, np.array(1e250)),
        lambda x: -np.expm1(-2.0 * np.logaddexp(0.0, x - np.log(1e250))),
    ),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def model_of(*builds):
    with pm.Model() as model:
        for build in builds:
            build()
        pm.Normal("y", 0.0, 1.0, observed=0.3)
    return model


def prior_of(*builds):
    """Compile one model of all that is built."""
    return compile_prior(compile_path(model_of(*builds)))


def drawn_from(prior, n=N, seed=11):
    return prior.draw(n, prior.spawn(np.random.default_rng(seed)))


def columns_of(prior, name):
    """Where a variable is among the columns of draws."""
    names = [rv.name for rv in prior.path.model.free_RVs]
    return prior.path.layout.slices[names.index(name)]


@cache
def together(far):
    """All far families in one model, which is compiled once; those that are not far in another."""
    families = [family for family in FAMILIES if ("not far" not in family) == far]
    prior = prior_of(*(partial(FAMILIES[family][0], family) for family in families))
    assert far_priors(prior.path.model) == (set(families) if far else set())
    return prior, drawn_from(prior)


def family_draws(family):
    """Compiled prior, draws of all of its variables, and the column of the family."""
    prior, draws = together("not far" not in family)
    return prior, draws, columns_of(prior, family).start


@pytest.mark.slow("repeats")
@every_family
def test_unconstrained_draws_have_the_law_of_their_family(family):
    _, draws, i = family_draws(family)
    assert stats.kstest(draws[:, i], FAMILIES[family][1]).pvalue > P_MIN


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("far", [True, False])
def test_no_draw_is_lost_and_each_has_a_density_and_a_gradient(far):
    prior, draws = together(far)
    assert np.isfinite(draws).all()
    assert np.isfinite(evaluate_draws(prior.path, draws)[0]).all()
    grads = np.empty((2, draws.shape[1]))
    for x in draws[:500]:
        prior.path.density(x, np.empty(2), grads)
        assert np.isfinite(grads).all(), x


def log_slope(family, x):
    """Log of the slope of the exact cdf, by central differences."""
    cdf, step = FAMILIES[family][1], 1e-4
    return np.log((cdf(np.array([x + step])) - cdf(np.array([x - step])))[0] / (2 * step))


@pytest.mark.slow("compiles models of its own", quick=["half-Cauchy, not far"])
@every_family
def test_densities_are_the_slopes_of_the_exact_cdf(family):
    """From the median to the quantiles 5 to 95 %; the Jacobian is in them."""
    prior, draws, i = family_draws(family)
    xs = np.tile(np.median(draws, axis=0), (5, 1))
    xs[1:, i] = np.quantile(draws[:, i], [0.05, 0.3, 0.6, 0.95])
    log_reference = evaluate_draws(prior.path, xs)[0]
    exact = [log_slope(family, x) for x in xs[:, i]]
    np.testing.assert_allclose(np.diff(log_reference), np.diff(exact), atol=1e-4)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("far", [True, False])
def test_the_constants_of_the_densities_are_those_of_the_exact_cdf(far):
    prior, draws = together(far)
    families = [rv.name for rv in prior.path.model.free_RVs]
    median = np.median(draws, axis=0)
    exact = sum(log_slope(family, x) for family, x in zip(families, median, strict=True))
    np.testing.assert_allclose(evaluate_draws(prior.path, median[None])[0][0], exact, atol=1e-4)


def exp_of_normal(mu, sigma, size):
    return pm.math.exp(pm.Normal.dist(mu, sigma, size=size))


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("law", ["LogNormal", "CustomDist"])
def test_the_jacobian_of_a_far_log_cancels(law):
    """Planted: the log x of the density and that of the Jacobian as two terms, which leave 0."""
    with pm.Model() as model:
        scale = pm.math.exp(1000.0 * pm.Normal("a"))
        if law == "LogNormal":
            pm.LogNormal("x", 0.5, scale, shape=2)
        else:
            log = pm.distributions.transforms.log
            pm.CustomDist("x", 0.5, scale, dist=exp_of_normal, shape=2, default_transform=log)
        pm.Potential("data", pt.zeros(()))
    states = np.array([[2.0, -1e100, 3.0], [0.3, 1e130, -1e20], [0.0, 1.5, 0.5]])
    found, _ = evaluate_draws(compile_path(model), states)
    exact = stats.norm.logpdf(states[:, 0]) - 2000.0 * states[:, 0] - np.log(2 * np.pi)
    exact -= [0.0, 0.5 * (1e130 / np.exp(300.0)) ** 2, 0.5]
    np.testing.assert_allclose(found, exact, rtol=1e-12)


@pytest.mark.slow("compiles models of its own")
def test_scores_of_far_draws_agree_with_their_density():
    """The identity that `check_reference` looks at, and no warning of any kind."""
    check_reference(together(True)[0])


def half_cauchy_scale_step(s, *rest):
    return half_cauchy_cdf(s - np.log(2.0))


# Joint laws: how x and s are built, by their names, and the conditional cdfs of unconstrained
# values given parents.
CHAINS = {
    "lognormal of half-Cauchy": (
        lambda x, s: pm.LogNormal(x, 0.0, pm.HalfCauchy(s, 2.0), shape=2),
        [
            half_cauchy_scale_step,
            lambda s, *x: stats.norm.cdf(np.array(x) / np.exp(s)),
        ],
    ),
    "half-normal of lognormal": (
        lambda x, s: pm.HalfNormal(x, 3.0 * pm.LogNormal(s, 0.0, 1e3)),
        [
            lambda s, x: stats.norm.cdf(s / 1e3),
            lambda s, x: special.erf(np.exp(x - s - np.log(3.0)) / np.sqrt(2)),
        ],
    ),
    "half-normal of the precision": (
        lambda x, s: pm.HalfNormal(x, tau=pm.Gamma(s, 0.01, 1.0)),
        [
            lambda s, x: log_gamma_cdf(0.01)(s),
            lambda s, x: special.erf(np.exp(x + 0.5 * s) / np.sqrt(2)),
        ],
    ),
    "gamma of a lognormal rate": (
        lambda x, s: pm.Gamma(x, 2.0, pm.LogNormal(s, 0.0, 1e3)[None], shape=1),
        [
            lambda s, x: stats.norm.cdf(s / 1e3),
            lambda s, x: log_gamma_cdf(2.0)(x + s),
        ],
    ),
    "exponential of a half-t": (
        lambda x, s: pm.Exponential(x, scale=pm.HalfStudentT(s, 0.01, 1.0) ** 2.0),
        [
            lambda s, x: half_t_cdf(0.01)(s),
            lambda s, x: -np.expm1(-np.exp(x - 2.0 * s)),
        ],
    ),
    "gamma of a random shape": (
        lambda x, s: pm.Gamma(x, pm.Exponential(s, 1.0), 1.0),
        [
            lambda s, x: -np.expm1(-np.exp(s)),
            lambda s, x: [log_gamma_cdf(a)(b) for a, b in zip(np.exp(s), x, strict=True)],
        ],
    ),
}


@cache
def chains_together():
    """All chains in one model; no draw of theirs is lost."""
    builds = [partial(build, f"x of {name}", f"s of {name}") for name, (build, _) in CHAINS.items()]
    prior = prior_of(*builds)
    draws = drawn_from(prior)
    assert np.isfinite(draws).all()
    assert np.isfinite(evaluate_draws(prior.path, draws)[0]).all()
    return prior, draws


def chain_columns(name):
    """Draws of a chain: of s, and of the elements of x."""
    prior, draws = chains_together()
    parts = [draws[:, columns_of(prior, f"{which} of {name}")] for which in "sx"]
    return np.column_stack(parts).T


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("chain", CHAINS)
def test_joint_draws_through_parents_have_the_joint_law(chain):
    """KS p-values of the probability integral transforms, given the parents."""
    # KS p > 1e-4 in 12 tests: false alarm 1.2e-3, seed fixed
    for step in CHAINS[chain][1]:
        assert stats.kstest(np.ravel(step(*chain_columns(chain))), "uniform").pvalue > P_MIN


@pytest.mark.slow("repeats")
def test_the_scale_of_many_children_has_the_law_of_its_children_too():
    """Elements of one lognormal variable share their scale, and no more than that."""
    s, first, second = chain_columns("lognormal of half-Cauchy")
    z = np.array([first, second]) / np.exp(s)
    # |z| < 4: false alarm 6e-5, seed fixed
    assert abs(stats.spearmanr(*z).statistic) * np.sqrt(N) < 4.0


def ordinary():
    pm.HalfNormal("a", 2.0)
    s = pm.HalfCauchy("s", 2.0)
    pm.HalfNormal("b", s, shape=2)
    pm.Gamma("c", 2.0, 3.0)
    pm.Beta("d", 0.5, 0.5)
    pm.LogNormal("e", 1.0, 2.0)
    pm.Exponential("f", s)
    pm.InverseGamma("g", 3.0, 2.0)
    pm.Uniform("h")
    pm.LogNormal("z", 0.0, 2.0, default_transform=None)


def test_ordinary_priors_are_drawn_as_pymc_draws_them():
    assert far_priors(model_of(ordinary)) == set()


@pytest.mark.slow("compiles models of its own")
def test_a_far_prior_changes_no_other_stream_of_draws():
    def build(scale):
        pm.Normal("first")
        pm.LogNormal("middle", 0.0, scale)
        pm.Gamma("last", 2.0, 3.0, shape=2)

    near, far = (drawn_from(prior_of(lambda s=s: build(s)), 20) for s in (1.0, 1e3))
    np.testing.assert_array_equal(near[:, [0, 2, 3]], far[:, [0, 2, 3]])
    np.testing.assert_allclose(1e3 * near[:, 1], far[:, 1], rtol=1e-9)  # the same normal numbers


@pytest.mark.slow("compiles models of its own")
def test_a_transform_that_is_not_the_default_leaves_the_draws_as_they_were():
    model = model_of(
        lambda: pm.LogNormal("x", 0.0, 1e3, transform=pm.distributions.transforms.Interval(0, 1))
    )
    assert far_priors(model) == set()


def irt(n_persons=48, n_items=47):
    """A two-parameter IRT model, whose discriminations have a heavy-tailed scale."""
    rng = np.random.default_rng(1)
    ability = rng.normal(size=n_persons)[:, None]
    a, b = np.exp(0.5 * rng.normal(size=n_items)), rng.normal(size=n_items)
    y = rng.random((n_persons, n_items)) < special.expit(a * (ability - b))
    with pm.Model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=n_persons)
        a = pm.LogNormal("a", 0.0, pm.HalfCauchy("s", 2.0), shape=n_items)
        b = pm.Normal("b", 0.0, pm.HalfCauchy("sb", 2.0), shape=n_items)
        pm.Bernoulli("y", logit_p=a * (theta[:, None] - b), observed=y.astype(int))
    return model


@pytest.mark.slow("compiles models of its own")
def test_an_irt_model_whose_discriminations_overflow_loses_no_draw():
    prior = compile_prior(compile_path(irt()))
    assert prior.path.dim == 144
    draws = drawn_from(prior)
    assert np.abs(draws).max() > 1e3  # where exp overflows
    assert np.isfinite(draws).all()
    log_reference, log_ratio = evaluate_draws(prior.path, draws)
    assert np.isfinite(log_reference).all()
    assert not np.isnan(log_ratio).any()
    check_reference(prior)


def zero_times_infinity(sigma):
    with pm.Model() as model:
        a = pm.LogNormal("a", 0.0, sigma)
        pm.Normal("y", a * np.array([0.0, 1.0]), 1.0, observed=[0.1, 0.5])
    return compile_prior(compile_path(model))


@pytest.mark.slow("compiles models of its own")
def test_a_likelihood_that_is_nan_at_rounded_values_is_told_apart_from_one_that_is_not_defined():
    with pytest.raises(pmt.exceptions.PriorDrawsError, match=r"prior draws 'a' is too large"):
        check_reference(zero_times_infinity(1e3))
    with pytest.warns(pmt.TemperingWarning, match=r"0\.\d% of the prior draws 'a' is too large"):
        check_reference(zero_times_infinity(275.0))  # 0.5 % above 709
    with pm.Model() as model:
        a = pm.LogNormal("a", 0.0, 1e3)
        pm.Potential("root", pm.math.sqrt(0.0 * pm.math.log(a) - 1.0))
    with pytest.raises(pmt.exceptions.LikelihoodError, match="'root'"):
        check_reference(compile_prior(compile_path(model)))


@pytest.mark.slow("repeats")
def test_an_error_about_draws_of_a_proper_prior_is_not_one_about_an_improper_prior():
    assert not issubclass(pmt.exceptions.PriorDrawsError, pmt.exceptions.ImproperPriorError)
