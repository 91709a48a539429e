"""Tempered normalizers against integrals and sums of PyMC's own densities, and their refusals."""

from unittest.mock import patch

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats as sps
from scipy.special import gammaln, logsumexp

import pymc_tempering as pmt
from pymc_tempering.variational import (
    temperature_limit,
)
from pymc_tempering.variational.normalizers import quadrature, sums
from pymc_tempering.variational.normalizers.dispatch import log_normalizer

INF, f = np.inf, np.float64
TEMPERATURES = (0.7, 1.0, 1.6, 4.0, 10.0)
TOLERANCE = 2e-7  # PyMC takes logarithms of 2 and pi in single precision in some densities

# name: (ends of the support, ranges of the parameters, how to make it); t's with nu > 9 + 1
CONTINUOUS = {
    "Normal": ((-INF, INF), [(-2, 2), (0.1, 5)], pm.Normal),
    "HalfNormal": ((0, INF), [(0.1, 5)], pm.HalfNormal),
    "LogNormal": ((0, INF), [(-1, 1), (0.1, 1.5)], pm.LogNormal),
    "StudentT": (
        (-INF, INF),
        [(11, 30), (0.1, 5)],
        lambda n, s: (lambda *p: pm.StudentT.dist(nu=p[0], mu=0.0, sigma=p[1]), n, s),
    ),
    "Laplace": ((-INF, INF), [(-1, 1), (0.1, 5)], pm.Laplace),
    "Exponential": ((0, INF), [(0.1, 5)], pm.Exponential),
    "Gamma": ((0, INF), [(0.5, 5), (0.1, 5)], pm.Gamma),
    "ChiSquared": ((0, INF), [(1.5, 6)], pm.ChiSquared),
    "Beta": ((0, 1), [(0.5, 5), (0.5, 5)], pm.Beta),
    "InverseGamma": ((0, INF), [(11, 30), (0.1, 5)], pm.InverseGamma),
    "Weibull": ((0, INF), [(0.5, 5), (0.1, 5)], pm.Weibull),
    "Pareto": ((1.5, INF), [(11, 30)], lambda a: (pm.Pareto, a, np.array(1.5))),
    "Uniform": ((-1, 2), [], lambda: (pm.Uniform, np.array(-1.0), np.array(2.0))),
    "HalfStudentT": ((0, INF), [(11, 30), (0.1, 5)], pm.HalfStudentT),
    "AsymmetricLaplace": (
        (-INF, INF),
        [(0.1, 5), (0.3, 3)],
        lambda b, k: (pm.AsymmetricLaplace, k, np.array(0.0), b),
    ),
    "Kumaraswamy": ((0, 1), [(0.5, 5), (0.5, 5)], pm.Kumaraswamy),
    "Triangular": (
        (0, 1),
        [],
        lambda: (lambda: pm.Triangular.dist(lower=f(0.0), upper=f(1.0), c=f(0.5)),),
    ),
    "Logistic": ((-INF, INF), [(-1, 1), (0.1, 3)], pm.Logistic),
    "Gumbel": ((-INF, INF), [(-1, 1), (0.1, 3)], pm.Gumbel),
    "Moyal": ((-INF, INF), [(-1, 1), (0.1, 3)], pm.Moyal),
    "VonMises": ((-np.pi, np.pi), [(-1, 1), (0.1, 3)], pm.VonMises),
    "SkewStudentT": (
        (-INF, INF),
        [(6, 20), (6, 20)],
        lambda a, b: (lambda *p: pm.SkewStudentT.dist(a=p[0], b=p[1], mu=0.0, sigma=1.0), a, b),
    ),
    "TruncatedNormal": (
        (-1, 2),
        [(-1, 1), (0.5, 2)],
        lambda m, s: (
            lambda *p: pm.TruncatedNormal.dist(*p, lower=np.array(-1.0), upper=np.array(2.0)),
            m,
            s,
        ),
    ),
    "Wald": ((0, INF), [(0.3, 3), (0.3, 3)], pm.Wald),
    "ExGaussian": (
        (-INF, INF),
        [(0.3, 3), (0.3, 3)],
        lambda s, n: (lambda *p: pm.ExGaussian.dist(mu=f(0.2), sigma=p[0], nu=p[1]), s, n),
    ),
    "SkewNormal": (
        (-INF, INF),
        [(0.3, 3), (-3, 3)],
        lambda s, a: (lambda *p: pm.SkewNormal.dist(mu=0.0, sigma=p[0], alpha=p[1]), s, a),
    ),
    "Rice": ((0, INF), [(0.3, 3), (0.3, 3)], pm.Rice),
    "LogitNormal": ((0, 1), [(-1, 1), (0.3, 2)], pm.LogitNormal),
    "Truncated": (
        (0, 2),
        [(1.5, 4), (0.5, 2)],
        lambda a, b: (lambda *p: pm.Truncated.dist(pm.Gamma.dist(*p), upper=2.0), a, b),
    ),
}


def build(entry, rng):
    ends, ranges, make = CONTINUOUS[entry]
    params = [np.array(rng.uniform(*r)) for r in ranges]
    if not isinstance(make, type):
        make, *params = make(*params)
    return ends, (make.dist(*params) if isinstance(make, type) else make(*params))


def compiled(rv):
    """Functions x -> log density and T -> log normalizer."""
    x, T = pt.vector("x", dtype=rv.dtype), pt.dscalar("T")
    density = pytensor.function([x], pm.logp(rv, x, warn_rvs=False), mode="FAST_COMPILE")
    log_c = pytensor.function(
        [T], pmt.variational.log_tempered_normalizer(rv, T), mode="FAST_COMPILE"
    )
    return density, lambda temperature: float(log_c(temperature))


def log_integral(density, ends, T):
    """Gauss-Legendre on panels of the line that the support is mapped onto."""
    low, high = ends
    half_width = 250.0 if np.isinf(high) else 34.0
    cuts = np.linspace(-half_width, half_width, int(20 * half_width) + 1)
    nodes, rule = np.polynomial.legendre.leggauss(12)
    s = ((cuts[1:] + cuts[:-1])[:, None] / 2 + 0.05 * nodes).ravel()
    if np.isinf(low):
        x, log_jacobian = np.sinh(s), np.log(np.cosh(s))
    elif np.isinf(high):
        x, log_jacobian = low + np.exp(s), s
    else:
        x = low + (high - low) / (1 + np.exp(-s))
        log_jacobian = np.log(high - low) - np.logaddexp(0, s) - np.logaddexp(0, -s)
    with np.errstate(all="ignore"):
        terms = density(x) / T + log_jacobian + np.log(np.tile(0.05 * rule, len(cuts) - 1))
    return logsumexp(np.where(np.isfinite(terms), terms, -np.inf))


def log_sum(density, values, T):
    with np.errstate(all="ignore"):
        terms = density(np.arange(values[0], values[1] + 1)) / T
    return logsumexp(np.where(np.isnan(terms), -np.inf, terms))


def faults(name, seed):
    ends, rv = build(name, np.random.default_rng([seed, list(CONTINUOUS).index(name)]))
    density, log_c = compiled(rv)
    errors = {T: log_c(T) - log_integral(density, ends, T) for T in TEMPERATURES}
    return {T: error for T, error in errors.items() if not abs(error) < TOLERANCE}


@pytest.mark.slow("compiles models of its own", every=4)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_normalizers_of_densities_are_their_integrals(name):
    assert not faults(name, seed=1)


@pytest.mark.parametrize("name", list(CONTINUOUS)[:13])
def test_closed_forms_at_other_parameters(name):
    assert not faults(name, seed=2)


def test_comparison_sees_a_planted_bug():
    def wrong(op, rv, T):  # the constant left untempered, as in the paper's Appendix C
        return 0.5 * pt.log(T)

    right = log_normalizer.dispatch(pt.random.basic.NormalRV)
    log_normalizer.register(pt.random.basic.NormalRV, wrong)
    try:
        assert faults("Normal", seed=1)
    finally:
        log_normalizer.register(pt.random.basic.NormalRV, right)
    assert not faults("Normal", seed=1)


DISCRETE = {
    "Poisson": (lambda: pm.Poisson.dist(f(7.3)), (0, 2000)),
    "Poisson rare": (lambda: pm.Poisson.dist(f(1e-5)), (0, 2000)),
    "Poisson large": (lambda: pm.Poisson.dist(np.array(20_000.0)), (0, 60_000)),
    "Binomial": (lambda: pm.Binomial.dist(25, f(0.3)), (0, 25)),
    "Binomial large": (lambda: pm.Binomial.dist(50_000, np.array(0.3)), (0, 50_000)),
    "NegativeBinomial": (lambda: pm.NegativeBinomial.dist(mu=f(4.0), alpha=f(2.0)), (0, 9000)),
    "NegativeBinomial wide": (lambda: pm.NegativeBinomial.dist(mu=5.0, alpha=0.1), (0, 90_000)),
    "BetaBinomial": (lambda: pm.BetaBinomial.dist(n=30, alpha=0.7, beta=2.0), (0, 30)),
    "Bernoulli": (lambda: pm.Bernoulli.dist(f(0.2)), (0, 1)),
    "Categorical": (lambda: pm.Categorical.dist(p=[0.2, 0.3, 0.5]), (0, 2)),
    "Geometric": (lambda: pm.Geometric.dist(f(0.2)), (1, 5000)),
    "HyperGeometric": (lambda: pm.HyperGeometric.dist(N=50, k=20, n=15), (0, 15)),
    "DiscreteUniform": (lambda: pm.DiscreteUniform.dist(-3.0, np.array(6.0)), (-3, 6)),
    "DiscreteWeibull": (lambda: pm.DiscreteWeibull.dist(q=f(0.6), beta=f(0.8)), (0, 20_000)),
    "ZeroInflatedPoisson": (lambda: pm.ZeroInflatedPoisson.dist(psi=0.3, mu=4.0), (0, 2000)),
    "ZeroInflatedBinomial": (lambda: pm.ZeroInflatedBinomial.dist(psi=0.3, n=12, p=0.4), (0, 12)),
    "ZeroInflatedNegativeBinomial": (
        lambda: pm.ZeroInflatedNegativeBinomial.dist(psi=0.3, mu=4.0, alpha=2.0),
        (0, 9000),
    ),
    "HurdlePoisson": (lambda: pm.HurdlePoisson.dist(psi=0.3, mu=4.0), (0, 2000)),
    "mixture": (
        lambda: pm.Mixture.dist([0.3, 0.7], [pm.Poisson.dist(3.0), pm.Geometric.dist(0.1)]),
        (0, 9000),
    ),
    "long tail": (lambda: pm.NegativeBinomial.dist(mu=f(90.0), alpha=f(0.3)), (0, 900_000)),
    "long tail, inflated": (
        lambda: pm.ZeroInflatedNegativeBinomial.dist(psi=0.3, mu=90.0, alpha=0.3),
        (0, 900_000),
    ),
    "long tail, mixture": (
        lambda: pm.Mixture.dist(
            [0.3, 0.2, 0.5],
            [
                pm.NegativeBinomial.dist(mu=90.0, alpha=0.3),
                pm.NegativeBinomial.dist(mu=2.0, alpha=5.0),
                pm.Poisson.dist(3000.0),
            ],
        ),
        (0, 900_000),
    ),
    "truncated": (lambda: pm.Truncated.dist(pm.Poisson.dist(50.0), lower=10, upper=45), (10, 45)),
}


@pytest.mark.slow("compiles models of its own", every=6)
@pytest.mark.parametrize("name", DISCRETE)
def test_normalizers_of_counts_are_their_sums(name):
    make, values = DISCRETE[name]
    density, log_c = compiled(make())
    for T in (1.0, 1.6, 10.0):
        assert log_c(T) == pytest.approx(log_sum(density, values, T), abs=TOLERANCE)


def test_sums_see_a_window_that_is_too_short():
    make, values = DISCRETE["Poisson"]
    with patch.object(sums, "LOG_TAIL", 4.0):
        density, log_c = compiled(make())
        assert abs(log_c(10.0) - log_sum(density, values, 10.0)) > TOLERANCE


@pytest.mark.slow("compiles models of its own")
def test_sums_see_a_tail_that_is_thinned_out_too_much():
    for case, name, value in [
        ("long tail, mixture", "STEP", 1.5),
        ("long tail, mixture", "JOINT", 3.0),
        ("Poisson large", "STEP", 8.0),
    ]:
        make, values = DISCRETE[case]
        with patch.object(sums, name, value), patch.object(sums, "TOLERANCE", INF):
            density, log_c = compiled(make())
            assert abs(log_c(10.0) - log_sum(density, values, 10.0)) > TOLERANCE, (case, name)


def test_sums_of_masses_that_are_not_one_are_refused():
    make, _ = DISCRETE["Poisson large"]
    with (
        patch.object(sums, "STEP", 8.0),
        pytest.raises(pmt.exceptions.NormalizerError, match="do not add up to 1"),
    ):
        compiled(make())[1](10.0)


def test_a_poisson_of_huge_rate_goes_over_into_a_normal():
    mu = np.array(1e12)
    value = float(pmt.variational.log_tempered_normalizer(pm.Poisson.dist(mu), 3.0).eval())
    normal = pmt.variational.log_tempered_normalizer(pm.Normal.dist(0.0, np.sqrt(mu)), 3.0).eval()
    assert value == pytest.approx(float(normal), abs=1e-6)


@pytest.mark.slow("compiles models of its own", quick=["narrow and wide"])
@pytest.mark.parametrize(
    ("rv", "cuts"),
    [
        (lambda: pm.NormalMixture.dist([0.3, 0.7], [-2.0, 3.0], [0.5, 1.5]), (-2, 3)),
        (lambda: pm.NormalMixture.dist([0.3, 0.7], [0.0, 1.0], [0.01, 10.0]), (0, 1)),
        (lambda: pm.NormalMixture.dist([0.3, 0.7], [1.0, 1.0], [0.5, 0.5]), (1,)),
        (lambda: pm.NormalMixture.dist([0.3, 0.7], [1.0, 1.0], [0.5, 3.0]), (1,)),
        (lambda: pm.NormalMixture.dist([0.2, 0.7, 0.1], [-9.0, 3.0, 30.0], [0.5, 9.0, 2.0]), (-9,)),
    ],
    ids=["apart", "narrow and wide", "one", "one center", "three"],
)
def test_normalizers_of_mixtures(rv, cuts):
    density, log_c = compiled(rv())
    near = [c + np.linspace(-3, 3, 3001) for c in cuts]
    grid = np.unique(np.concatenate([np.linspace(-300, 300, 20_001), *near]))
    nodes, rule = np.polynomial.legendre.leggauss(8)
    half = np.diff(grid)[:, None] / 2
    x = ((grid[1:] + grid[:-1])[:, None] / 2 + half * nodes).ravel()
    for T in (1.0, 2.0, 10.0):
        with np.errstate(all="ignore"):
            expected = logsumexp(density(x) / T + np.log((half * rule).ravel()))
        assert log_c(T) == pytest.approx(expected, abs=TOLERANCE)


def mixture_of_normals():
    """Log normalizer of a mixture of three normals, compiled: of weights, means, scales and T."""
    w, mu, sd = (pt.dvector(name, shape=(3,)) for name in ("w", "mu", "sd"))
    T = pt.dscalar("T")
    log_c = pmt.variational.log_tempered_normalizer(pm.NormalMixture.dist(w, mu, sd), T)
    return pytensor.function([w, mu, sd, T], log_c, mode="FAST_COMPILE")


def parameters_of_three(seed):
    """Weights, means and scales far apart, or the same of all."""
    rng = np.random.default_rng(seed)
    mu, sd = rng.normal(size=3) * 10 ** rng.uniform(-1, 1.7), 10 ** rng.uniform(-2, 1.2, 3)
    sd = np.full(3, sd[0]) if seed % 5 == 0 else sd
    return rng.dirichlet(np.ones(3)), np.full(3, mu[0]) if seed % 7 == 0 else mu, sd


def test_mixtures_of_normals_far_apart_and_hot():
    log_c = mixture_of_normals()
    for seed in range(20):
        w, mu, sd = parameters_of_three(seed)
        ends = np.unique(mu[:, None] + sd[:, None] * np.sinh(np.linspace(-8.5, 8.5, 4001)))
        nodes, rule = np.polynomial.legendre.leggauss(4)
        half = np.diff(ends)[:, None] / 2
        x = ((ends[1:] + ends[:-1])[:, None] / 2 + half * nodes).ravel()
        log_p = logsumexp(sps.norm.logpdf(x[:, None], mu, sd) + np.log(w), axis=1)
        for T in (1.0, 20.0, 400.0):
            expected = logsumexp(log_p / T + np.log((half * rule).ravel()))
            assert float(log_c(w, mu, sd, T)) == pytest.approx(expected, abs=TOLERANCE)


def test_mixtures_of_normals_need_panels_of_their_own_width():
    """Planted: panels of the width of the power alone, too wide for the check at T = 1."""
    with patch.object(quadrature, "COLD", np.zeros(1)):
        log_c = mixture_of_normals()
    with pytest.raises(pmt.exceptions.NormalizerError, match="is not 1"):
        log_c(np.ones(3) / 3, np.array([-200.0, 0.0, 200.0]), np.ones(3), 400.0)


def test_mixtures_of_normals_see_bends_that_are_missed():
    """Planted: no panels where another component becomes the largest."""
    rv = pm.NormalMixture.dist([0.3, 0.7], [-20.0, 20.0], [1.0, 1.0])
    pmt.variational.log_tempered_normalizer(rv, 100.0).eval()
    with (
        patch.object(quadrature, "crossing_ends", lambda mu, *_: mu),
        pytest.raises(pmt.exceptions.NormalizerError, match="half of the nodes"),
    ):
        pmt.variational.log_tempered_normalizer(rv, 100.0).eval()


@pytest.mark.parametrize("T", [1.0, 3.0, 10.0])
def test_censored_and_hurdle_variables_count_their_atoms(T):
    base = sps.norm(0.3, 1.2)
    rv = pm.Censored.dist(pm.Normal.dist(f(0.3), f(1.2)), lower=-1.0, upper=2.0)
    inner = log_integral(base.logpdf, (-1.0, 2.0), T)
    expected = logsumexp([inner, base.logcdf(-1.0) / T, base.logsf(2.0) / T])
    assert compiled_value(rv, T) == pytest.approx(expected, abs=TOLERANCE)
    rv = pm.HurdleGamma.dist(psi=f(0.3), alpha=f(2.0), beta=f(1.0))
    inner = log_integral(sps.gamma(2).logpdf, (0.0, INF), T) + np.log(0.3) / T
    assert compiled_value(rv, T) == pytest.approx(
        np.logaddexp(inner, np.log(0.7) / T), abs=TOLERANCE
    )


def compiled_value(rv, T):
    graph = pmt.variational.log_tempered_normalizer(rv, T)
    return float(pytensor.function([], graph, mode="FAST_COMPILE")())


def test_multivariate_closed_forms():
    T, cov = 3.0, np.array([[2.0, 0.5], [0.5, 1.0]])
    expected = 0.5 * (1 - 1 / T) * np.linalg.slogdet(2 * np.pi * cov)[1] + np.log(T)
    for kwargs in ({"cov": cov}, {"tau": np.linalg.inv(cov)}, {"chol": np.linalg.cholesky(cov)}):
        assert compiled_value(pm.MvNormal.dist(np.zeros(2), **kwargs), T) == pytest.approx(expected)
    # a bivariate t: radial integral, 2 pi r dr
    nu = 12.0
    rv = pm.MvStudentT.dist(nu=nu, mu=np.zeros(2), scale=cov)
    log_det = 0.5 * np.linalg.slogdet(cov)[1]

    def radial(r):
        log_norm = gammaln((nu + 2) / 2) - gammaln(nu / 2) - np.log(nu * np.pi) - log_det
        return log_norm - (nu + 2) / 2 * np.log1p(r**2 / nu)

    expected = log_integral(lambda r: radial(r) + T * np.log(2 * np.pi * r), (0.0, INF), T)
    assert compiled_value(rv, T) == pytest.approx(expected + log_det, abs=TOLERANCE)


@pytest.mark.slow("compiles models of its own", quick=["<lambda>-2.5_1"])
@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: pm.StudentT.dist(nu=3.0, mu=0.0, sigma=2.0), 4.0),
        (lambda: pm.InverseGamma.dist(1.5, 1.0), 2.5),
        (lambda: pm.Pareto.dist(1.5, 1.0), 2.5),
        (lambda: pm.Cauchy.dist(0.0, 1.0), 2.0),
        (lambda: pm.HalfCauchy.dist(1.0), 2.0),
        (lambda: pm.SkewStudentT.dist(a=1.0, b=3.0, mu=0.0, sigma=1.0), 3.0),
    ],
)
def test_infinite_from_the_limit_on(make, limit):
    rv = make()
    T = pt.dscalar("T")
    graph = pmt.variational.log_tempered_normalizer(rv, T)
    function = pytensor.function([T], [graph, pt.grad(graph, T)], mode="FAST_COMPILE")
    below, slope = function(limit - 1e-6)
    assert np.isfinite(below)
    assert slope > 1e3
    at, slope = function(limit)
    assert at == np.inf
    assert np.isfinite(slope)
    assert float(temperature_limit(rv).eval()) == limit


def test_quadrature_finds_out_that_an_integral_is_infinite():
    rv = pm.Truncated.dist(pm.StudentT.dist(nu=3.0, mu=0.0, sigma=1.0), lower=0.0)
    assert np.isfinite(compiled_value(rv, 3.5))
    assert compiled_value(rv, 4.5) == np.inf


@pytest.mark.slow("compiles models of its own", quick=["<lambda>0"])
@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: pm.Normal.dist(a, b),
        lambda a, b: pm.StudentT.dist(nu=5 + a, mu=0.0, sigma=b),
        lambda a, b: pm.Gamma.dist(a, b),
        lambda a, b: pm.Poisson.dist(a * b),
        lambda a, b: pm.NegativeBinomial.dist(mu=a, alpha=b),
        lambda a, b: pm.ZeroInflatedPoisson.dist(psi=a / 2, mu=b),
        lambda a, b: pm.Wald.dist(a, b),
        lambda a, b: pm.NormalMixture.dist([0.4, 0.6], pt.stack([0.0, 3 * a]), b),
        lambda a, b: pm.Truncated.dist(pm.Gamma.dist(2.0 + a, b), upper=2.0 + a),
        lambda a, b: pm.Censored.dist(pm.Normal.dist(a, b), lower=None, upper=1.0),
        lambda a, b: pm.MvNormal.dist(np.zeros(2), cov=b * np.eye(2) + 0.1 * a),
    ],
)
def test_gradients_are_slopes(make):
    a, b, T = pt.dscalars("a", "b", "T")
    graph = pmt.variational.log_tempered_normalizer(make(a, b), T)
    grads = pt.grad(graph, [a, b, T], disconnected_inputs="ignore")
    function = pytensor.function(
        [a, b, T], [graph, *grads], mode="FAST_COMPILE", on_unused_input="ignore"
    )
    at = np.array([1.3, 0.8, 2.5])
    for i, grad in enumerate(function(*at)[1:]):
        step = 1e-5 * np.eye(3)[i]
        slope = (function(*(at + step))[0] - function(*(at - step))[0]) / 2e-5
        assert float(grad) == pytest.approx(float(slope), abs=2e-5)


def test_one_temperature_by_element():
    T, mu = np.array([1.0, 2.0, 3.0]), np.array([1.0, 50.0, 2000.0])
    for make in (
        pm.Poisson.dist,
        lambda m: pm.ZeroInflatedPoisson.dist(f(0.4), m),
        pm.Exponential.dist,
    ):
        batch = pytensor.function(
            [], pmt.variational.log_tempered_normalizer(make(mu), T), mode="FAST_COMPILE"
        )
        one = pmt.variational.log_tempered_normalizer(
            make(place := pt.dscalar()), temperature := pt.dscalar()
        )
        alone = np.vectorize(pytensor.function([place, temperature], one, mode="FAST_COMPILE"))
        np.testing.assert_allclose(batch(), alone(mu, T), atol=1e-9)
    # a batch shape that comes from the size alone
    graph = pmt.variational.log_tempered_normalizer(
        pm.NormalMixture.dist([0.3, 0.7], [0.0, 3.0], 1.0, shape=3), T
    )
    values = pytensor.function([], graph, mode="FAST_COMPILE")()
    assert values.shape == (3,)
    assert values[0] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow("compiles models of its own", every=4)
@pytest.mark.parametrize("mu", [2.0, 1e-6, 1e-13, 1e-15, 1e-17, 1e-40])
@pytest.mark.parametrize("alpha", [None, 2.5])
def test_counts_above_zero_of_any_small_rate(mu, alpha):
    # PyMC's log(1 - mass of zero) is off by 1e-3 at 1e-14, and infinite below 1e-16
    T, k, rate, psi = 1.5, np.arange(2.0, 200.0), pt.dscalar(), 0.4
    if alpha is None:
        rv, ratio = pm.HurdlePoisson.dist(psi, rate), mu / k
    else:
        rv = pm.HurdleNegativeBinomial.dist(psi, mu=rate, alpha=alpha)
        ratio = (k - 1 + alpha) / k * mu / (mu + alpha)
    over_one = np.r_[1.0, np.cumprod(ratio)]  # masses over that of one
    counts = ((over_one / over_one.sum()) ** (1 / T)).sum()
    exact = np.log((1 - psi) ** (1 / T) + psi ** (1 / T) * counts)
    graph = pmt.variational.log_tempered_normalizer(rv, T)
    value, slope = pytensor.function([rate], [graph, pt.grad(graph, rate)], mode="FAST_COMPILE")(mu)
    assert value == pytest.approx(exact, abs=1e-8)
    assert np.isfinite(slope)


def test_quadrature_refuses_a_density_that_is_not_one():
    rv = pm.CustomDist.dist(
        np.array(1.0), logp=lambda x, s: -0.5 * (x / s) ** 2, signature="()->()"
    )
    with pytest.raises(pmt.exceptions.NormalizerError, match="is not 1"):
        compiled_value(rv, 2.0)


@pytest.mark.slow("compiles models of its own")
def test_quadrature_integrates_a_custom_density():
    rv = pm.CustomDist.dist(
        np.array(1.7),
        logp=lambda x, s: -x / s - pt.log(s) - 2 * pt.softplus(-x / s),
        signature="()->()",
    )
    expected = compiled_value(pm.Logistic.dist(f(0.0), f(1.7)), 4.0)
    assert compiled_value(rv, 4.0) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow("compiles models of its own")
def test_what_has_no_normalizer_is_refused():
    rv = pm.StickBreakingWeights.dist(1.0, K=3)
    rv.name = "w"
    with pytest.raises(pmt.exceptions.NormalizerError, match=r"'w' \(.*annealed"):
        pmt.variational.log_tempered_normalizer(rv, 2.0)
    with pytest.raises(pmt.exceptions.NormalizerError, match="not a random variable"):
        pmt.variational.log_tempered_normalizer(pt.dscalar("x"), 2.0)
    with pytest.raises(ValueError, match="positive and finite, not 0"):
        pmt.variational.log_tempered_normalizer(pm.Normal.dist(), 0)
    with pytest.raises(pmt.exceptions.NormalizerError, match="more than one DiracDelta"):
        pmt.variational.log_tempered_normalizer(
            pm.Mixture.dist([0.5, 0.5], [pm.DiracDelta.dist(0), pm.DiracDelta.dist(1)]), 2.0
        )
    with pytest.raises(pmt.exceptions.NormalizerError, match=r"known number of normals.*annealed"):
        pmt.variational.log_tempered_normalizer(
            pm.Mixture.dist([0.3, 0.7], [pm.Normal.dist(-1, 1), pm.HalfNormal.dist(2)]), 2.0
        )
    with pytest.raises(pmt.exceptions.NormalizerError, match="is not 1"):  # too near to x = 1
        compiled_value(pm.Kumaraswamy.dist(f(2.0), f(0.3)), 2.0)
    with pytest.raises(pmt.exceptions.NormalizerError, match="sum over more than"):
        compiled_value(pm.DiscreteWeibull.dist(q=0.9, beta=0.1), 10.0)
