"""Quadrature along one coordinate: known densities, far tails, kinks, and second maxima."""

import numpy as np
import pytest
from scipy import stats

from pymc_tempering.nested.conditional_density import conditional_density

LAWS = {
    "normal": stats.norm(3.0, 2.0),
    "narrow and far": stats.norm(1e3, 1e-6),
    "cauchy": stats.cauchy(1.0, 0.7),
    "student": stats.t(1.5),
    "laplace": stats.laplace(0.0, 1.0),
    "skewed": stats.loggamma(0.2),
    "gumbel": stats.gumbel_r(2.0, 1.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_known_densities_are_normalized(name):
    law, rng = LAWS[name], np.random.default_rng(1)
    x = np.column_stack([law.rvs(200, random_state=rng), rng.normal(size=200)])
    for probability in (0.02, 0.5, 0.9):
        at = law.ppf(probability)
        found = conditional_density(lambda s: law.logpdf(s[:, 0]) + 700.0, x, 0, at)
        assert found.converged.all()
        error = 3e-4 if name == "laplace" else 1e-6  # at a kink the order of the rule is two
        np.testing.assert_allclose(found.log_density, law.logpdf(at), atol=error)
    np.testing.assert_allclose(found.rank, law.cdf(x[:, 0]), atol=0.02)


def test_each_line_has_its_own_place_and_width():
    """A conditional 500 times narrower than the marginal, of another width on each line."""
    rng = np.random.default_rng(2)
    v = rng.normal(size=200) * 50.0
    width = 0.1 * np.exp(rng.normal(size=200))
    x = np.column_stack([np.log(width), v + width * rng.normal(size=200), v])

    def density(s):
        return stats.norm.logpdf(s[:, 1], s[:, 2], np.exp(s[:, 0]))

    found = conditional_density(density, x, 1, 0.5)
    np.testing.assert_allclose(found.log_density, stats.norm.logpdf(0.5, v, width), rtol=1e-5)
    assert stats.kstest(found.rank, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(("apart", "width"), [(5.0, 1.0), (20.0, 0.02), (100.0, 0.5)])
def test_a_second_maximum_is_found_from_either(apart, width):
    one, other = stats.norm(0.0, 1.0), stats.norm(apart, width)

    def logpdf(u):
        return np.logaddexp(np.log(0.6) + one.logpdf(u), np.log(0.4) + other.logpdf(u))

    rng = np.random.default_rng(3)
    draws = [law.rvs(100, random_state=rng) for law in (one, other)]
    x = np.column_stack([np.concatenate(draws), np.zeros(200)])
    found = conditional_density(lambda s: logpdf(s[:, 0]), x, 0, 0.3)
    assert found.converged.all()
    np.testing.assert_allclose(found.log_density, logpdf(0.3), atol=1e-6)


def test_what_cannot_be_normalized_is_told():
    x = np.random.default_rng(4).uniform(size=(50, 1))
    edges = conditional_density(lambda s: stats.uniform.logpdf(s[:, 0]), x, 0, 0.5)
    assert not edges.converged.all()
    improper = conditional_density(lambda s: -0.5 * np.log1p(s[:, 0] ** 2), x, 0, 0.5)
    assert not improper.converged.any()


def test_lines_without_density_and_overflow_count_as_zero():
    x = np.array([[0.1, 0.0], [0.2, 1.0], [-0.3, 0.0]])

    def density(s):
        inside = stats.norm.logpdf(s[:, 0])
        inside[np.abs(s[:, 0]) > 30.0] = np.nan  # as where an exp overflows
        return np.where(s[:, 1] > 0.5, -np.inf, inside)

    found = conditional_density(density, x, 0, 0.0)
    exact = stats.norm.logpdf(0.0)
    np.testing.assert_allclose(found.log_density, [exact, -np.inf, exact], rtol=1e-8)
    assert found.converged.all()
