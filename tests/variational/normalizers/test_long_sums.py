"""Sums over negative binomials of small shapes, and their mixtures, against term by term sums."""

from unittest.mock import patch

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import gammaln, logsumexp

import pymc_tempering as pmt
from pymc_tempering.variational.normalizers import sums

TOLERANCE = 1e-9

# name: weights, means and shapes of the components; zero inflation; temperatures
CASES = {
    "one": ([1.0], [20.0], [0.02], 0.0, (1.0, 2.0, 10.0)),
    "of a shape near zero": ([1.0], [3.0], [1e-4], 0.0, (1.5, 2.0)),
    "two": ([0.3, 0.7], [20.0, 40.0], [0.05, 6.0], 0.0, (1.0, 2.0, 10.0)),
    "two that meet far out": ([0.999, 0.001], [200.0, 3000.0], [12.0, 0.7], 0.0, (1.0, 2.0, 10.0)),
    "three": ([0.2, 0.3, 0.5], [1.0, 30.0, 500.0], [30.0, 0.01, 2.0], 0.0, (2.0,)),
    "inflated": ([1.0], [20.0], [0.02], 0.25, (2.0, 10.0)),
    "above zero": ([1.0], [20.0], [0.02], -1.0, (2.0, 10.0)),
}


def log_mass_of(k, mean, shape):
    """Log mass in double precision, with the difference of log gammas of large k by a series."""
    series = gammaln(k + shape) - gammaln(k + 1)
    x, y = k + shape, k + 1.0
    far = (
        (shape - 1) * np.log(y)
        + (x - 0.5) * np.log1p((shape - 1) / y)
        - (shape - 1)
        + (1 / x - 1 / y) / 12
    )
    ratio = np.where(k > 1e4, far, series)
    return ratio - gammaln(shape) - shape * np.log1p(mean / shape) - k * np.log1p(shape / mean)


def exact(name, T):
    """Sum of every term up to where p^(1 / T) is below e^-40 of its largest value."""
    weights, means, shapes, inflated, _ = CASES[name]
    last = max(m * (1 + 42 * T / min(s, 1.0)) for m, s in zip(means, shapes, strict=True))
    total, largest = [], -np.inf
    for first in np.arange(0.0, last, 4e6):
        k = np.arange(first, min(first + 4e6, last))
        parts = [log_mass_of(k, m, s) for m, s in zip(means, shapes, strict=True)]
        log_p = logsumexp(np.array(parts) + np.log(weights)[:, None], axis=0)
        if inflated < 0.0:
            log_p[k == 0] = -np.inf
            log_p = log_p - np.log(-np.expm1(log_mass_of(0.0, means[0], shapes[0])))
        elif inflated:
            log_p = log_p + np.log1p(-inflated)
            log_p[k == 0] = np.logaddexp(log_p[k == 0], np.log(inflated))
        total.append(logsumexp(log_p / T))
        largest = max(largest, (log_p / T).max())
    assert (log_p / T)[-1] < largest - 28
    return float(logsumexp(total))


def made(name):
    weights, means, shapes, inflated, _ = CASES[name]
    m, s = (np.array(values, dtype="float64") for values in (means, shapes))
    if inflated > 0.0:
        return pm.ZeroInflatedNegativeBinomial.dist(psi=1 - inflated, mu=m[0], alpha=s[0])
    if inflated < 0.0:
        return pm.Truncated.dist(pm.NegativeBinomial.dist(mu=m[0], alpha=s[0]), lower=1)
    if len(means) == 1:
        return pm.NegativeBinomial.dist(mu=m[0], alpha=s[0])
    if name == "two":
        return pm.Mixture.dist(weights, pm.NegativeBinomial.dist(mu=m, alpha=s))
    parts = [pm.NegativeBinomial.dist(mu=a, alpha=b) for a, b in zip(m, s, strict=True)]
    return pm.Mixture.dist(weights, parts)


def found(name):
    T = pt.dscalar("T")
    value = pmt.variational.log_tempered_normalizer(made(name), T)
    return pytensor.function([T], value, mode="FAST_COMPILE")


@pytest.mark.slow("compiles models of its own", quick=["two"])
@pytest.mark.parametrize("name", CASES)
def test_long_sums_are_those_of_all_terms(name):
    log_c = found(name)
    for T in CASES[name][-1]:
        assert float(log_c(T)) == pytest.approx(exact(name, T), abs=TOLERANCE)


@pytest.mark.parametrize(
    ("module", "constant", "value"),
    [
        (sums, "STEP", 3.0),
        (sums, "JOINT", 1.5),
        (sums, "REACH", 1.0),
        (sums, "FAR", 1.0),  # Stirling's formula near zero
    ],
)
def test_long_sums_see_planted_bugs(module, constant, value):
    with patch.object(module, constant, value), patch.object(sums, "TOLERANCE", np.inf):
        wrong = float(found("two")(2.0))
    assert abs(wrong - exact("two", 2.0)) > TOLERANCE


def test_sums_reach_as_far_as_the_parameters_ask_for():
    """For a small shape n the sum is n^(1/T) Gamma(1 - 1/T) (mu T / n)^(1 - 1/T), if T > 1."""
    shape, T, mu = pt.dscalar("n"), 4.0, 10.0
    rv = pm.NegativeBinomial.dist(mu=mu, alpha=shape)
    log_c = pmt.variational.log_tempered_normalizer(rv, T)
    value = pytensor.function([shape], [log_c, pt.grad(log_c, shape)], mode="FAST_COMPILE")
    for n in (1e-30, 1e-100):
        found, slope = value(n)
        leading = np.log(n) / T + gammaln(1 - 1 / T) + (1 - 1 / T) * np.log(mu * T / n)
        assert float(found) == pytest.approx(leading, abs=1e-6)
        assert float(slope) * n == pytest.approx(2 / T - 1, abs=1e-6)


@pytest.mark.slow("compiles models of its own")
def test_an_average_that_is_infinite_is_told_from_a_sum_that_is_long():
    """The normalizer of a negative binomial rises as shape^(2/T - 1) toward a shape of zero.

    So with 150 data and a density of alpha^2 there, C(T) is infinite from T = 2 / (1 - 3 / 150) on.
    """
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 3.0, 0.5)
        pm.NegativeBinomial("y", mu=5.0, alpha=alpha, observed=np.ones(150, dtype=int))
    with pytest.raises(pmt.exceptions.NormalizerError, match=r"small 'alpha'.*up to T = 2\.03"):
        pmt.variational.log_partition(model, [2.03, 2.06])
    assert np.isfinite(pmt.variational.log_partition(model, [1.5, 2.0]).log_c).all()
