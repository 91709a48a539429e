"""Vectors with missing elements: their evidence is that of the elements that were observed."""

import warnings

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import ImputationWarning
from scipy import stats
from scipy.special import logsumexp

import pymc_tempering as pmt
from pymc_tempering.model import imputed
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.prior import compile_prior, evaluate_draws

NAN = np.nan
ROWS = np.array([[0.4, NAN, 1.9], [1.2, 0.3, NAN], [NAN, NAN, 1.1], [-1.0, 0.2, 0.7]])
SERIES = np.array([0.4, NAN, 1.9, 1.2, NAN, NAN, 3.1, 2.2, NAN])
COV = np.array([[1.0, 0.6, 0.2], [0.6, 1.5, 0.5], [0.2, 0.5, 2.0]])

MAX_Z = 4.0
"""Errors that log Z may be off by: 6e-5 of false alarms in each test; seeds are fixed."""


def on_grid(density, sd_mean, sd_log_scale, n=(161, 81)):
    """Log Z with a normal mean and a lognormal scale, by sums over a grid that is fine enough."""
    mean, log_scale = (np.linspace(-6, 6, size) for size in n)
    prior = stats.norm.logpdf(mean)[:, None] + stats.norm.logpdf(log_scale)
    values = [[density(m, s) for s in np.exp(sd_log_scale * log_scale)] for m in sd_mean * mean]
    return logsumexp(prior + values) + np.log(np.diff(mean[:2]) * np.diff(log_scale[:2])).item()


def of_rows(law):
    """Log density of what was observed of `ROWS`."""

    def density(mean, scale):
        seen = [np.isfinite(row) for row in ROWS]
        return sum(
            law(row[k], np.full(k.sum(), mean), scale**2 * COV[np.ix_(k, k)])
            for row, k in zip(ROWS, seen, strict=True)
        )

    return density


def of_series(covariance):
    seen = np.isfinite(SERIES)

    def density(mean, scale):
        center, cov = covariance(mean, scale, np.arange(len(SERIES)))
        return stats.multivariate_normal.logpdf(
            SERIES[seen], center[seen], cov[np.ix_(seen, seen)], allow_singular=True
        )

    return density


def walk_moments(mean, scale, t):
    return mean * t, 4.0 + scale**2 * np.minimum.outer(t, t)


def autoregressive_moments(rho, scale, t):
    with np.errstate(divide="ignore"):
        powers = np.where(t[:, None] >= t, rho ** np.maximum(t[:, None] - t, 0.0), 0.0)
    return 0.0 * t, powers @ np.diag(np.where(t > 0, scale**2, 4.0)) @ powers.T


def normal(mean, scale):
    pm.MvNormal("y", mu=mean * np.ones(3), cov=scale**2 * COV, observed=ROWS)


def student(mean, scale):
    pm.MvStudentT("y", nu=4, mu=mean * np.ones(3), scale=scale**2 * COV, observed=ROWS)


def random_walk(mean, scale):
    start = pm.Normal.dist(0, 2)
    pm.GaussianRandomWalk("y", mu=mean, sigma=scale, init_dist=start, observed=SERIES)


def autoregressive(rho, scale):
    start = pm.Normal.dist(0, 2)
    pm.AR("y", rho=rho, sigma=scale, constant=False, init_dist=start, observed=SERIES)


def t_density(y, mean, scale):
    return stats.multivariate_t.logpdf(y, mean, scale, df=4)


CASES = {
    "normal": (normal, of_rows(stats.multivariate_normal.logpdf), 2.0),
    "t": (student, of_rows(t_density), 2.0),
    "walk": (random_walk, of_series(walk_moments), 1.0),
    "autoregressive": (autoregressive, of_series(autoregressive_moments), 0.5),
}


def model_of(likelihood, sd_mean=2.0):
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        likelihood(pm.Normal("mean", 0.0, sd_mean), pm.LogNormal("scale", 0.0, 0.5))
    return model


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", CASES)
def test_missing_elements_leave_the_evidence_of_the_others(name):
    likelihood, density, sd_mean = CASES[name]
    model, truth = model_of(likelihood, sd_mean), on_grid(density, sd_mean, 0.5)
    for reference, most in (("auto", 0.02), ("prior", 0.05)):
        idata = pmt.sample(model=model, reference=reference, random_seed=1, quiet=True)
        found = pmt.log_marginal_likelihood(idata)
        assert found.verdict == "ok"
        assert found.mcse < most
        assert abs(found.log_z - truth) < MAX_Z * found.mcse


@pytest.mark.slow("compiles models of its own")
def test_missing_elements_of_normal_vectors_do_not_change_the_likelihood():
    """Their own law is their conditional; planted: the mean of the observed residuals is lost."""
    path = compile_path(model_of(normal))
    prior = compile_prior(path)
    draws = prior.draw(50, prior.spawn(np.random.default_rng(3)))
    _, likelihood = evaluate_draws(path, draws)
    density = CASES["normal"][1]
    exact = [density(x[0], np.exp(x[1])) for x in draws]
    np.testing.assert_allclose(likelihood, exact, rtol=1e-9)
    draws[:, 2:] = np.random.default_rng(4).normal(size=draws[:, 2:].shape)
    np.testing.assert_allclose(evaluate_draws(path, draws)[1], exact, rtol=1e-9)


@pytest.mark.slow("compiles models of its own")
def test_draws_of_missing_elements_have_their_density():
    """Each is standard normal in its own conditional: 1e-6 of false alarms."""
    prior = compile_prior(compile_path(model_of(normal)))
    draws = prior.draw(4000, prior.spawn(np.random.default_rng(5)))
    inverse = np.linalg.inv(COV)
    white = []
    for mean, log_scale, *missing in draws:
        off = ROWS - mean
        off[np.isnan(ROWS)] = np.array(missing) - mean
        part = inverse[:2, :2]  # of the row that lacks two
        center = np.linalg.solve(part, inverse[:2, 2] * off[2, 2])
        white.append(np.linalg.cholesky(part).T @ (off[2, :2] + center) / np.exp(log_scale))
    second = np.array(white).T @ white / len(white)
    assert np.abs(np.mean(white, axis=0)).max() < 5 / np.sqrt(len(white))
    assert np.abs(second - np.eye(2)).max() < 5 * np.sqrt(2 / len(white))


REFUSED = {
    r"y_unobserved.*\(Dirichlet\).*constraint": lambda mean, scale: pm.Dirichlet(
        "y", a=scale * np.ones(3), observed=np.array([[0.2, 0.3, 0.5], [0.1, NAN, NAN]])
    ),
    r"y_unobserved.*\(ZeroSumNormal\).*constraint": lambda mean, scale: pm.ZeroSumNormal(
        "y", sigma=scale, observed=np.array([[0.2, 0.3, -0.5], [0.1, NAN, NAN]])
    ),
    r"y_unobserved.*discrete vector \(Multinomial\)": lambda mean, scale: pm.Multinomial(
        "y", n=5, p=np.ones(3) / 3, observed=np.ma.masked_equal([[2, 2, 1], [1, -1, -1]], -1)
    ),
    r"y_unobserved.*has a transform": lambda mean, scale: pm.MvNormal(
        "y", mu=np.zeros(3), cov=COV, observed=ROWS, transform=pm.distributions.transforms.log
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_missing_elements_that_are_tied_or_whole_numbers_are_refused(words):
    with pytest.raises(pmt.exceptions.ModelError, match=words):
        compile_path(model_of(REFUSED[words]), gradient=())


@pytest.mark.slow("repeats")
def test_values_without_a_spread_have_a_law_too():
    def one_value(mean, scale):
        start = pm.Normal.dist(0, 2)
        pm.GaussianRandomWalk(
            "y", mu=mean, sigma=scale, init_dist=start, observed=np.array([3.0, NAN])
        )

    [part] = imputed.imputed_parts(model_of(one_value)).values()
    assert part.observed == "y_observed"
    assert np.isfinite(part.draw.eval()).all()
