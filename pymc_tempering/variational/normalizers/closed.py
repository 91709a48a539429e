"""Closed forms of the tempered normalizer."""

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import (
    AsymmetricLaplaceRV,
    BetaRV,
    FlatRV,
    HalfCauchyRV,
    HalfFlatRV,
    HalfStudentTRV,
    KumaraswamyRV,
    MoyalRV,
    SkewStudentTRV,
    TruncatedNormalRV,
    WeibullBetaRV,
)
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.dist_math import (
    i0e,
    log_diff_normal_cdf,
    normal_lccdf,
    normal_lcdf,
)
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.multivariate import (
    MvStudentTRV,
    PrecisionMvNormalRV,
)
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import (
    is_unbounded,
    log_normalizer,
    no_normalizer,
    register_closed,
)

LOG_2 = float(np.log(2.0))
LOG_PI = float(np.log(np.pi))
LOG_2PI = LOG_2 + LOG_PI


def betaln(a: Variable, b: Variable) -> Variable:
    """Log of the beta function."""
    return pt.gammaln(a) + pt.gammaln(b) - pt.gammaln(a + b)


@register_closed(rvs.NormalRV, lambda mu, sigma: (sigma > 0,), "sigma > 0")
def normal(T: Variable, mu: Variable, sigma: Variable) -> Variable:
    """Return a normal of variance T sigma^2 without its constant."""
    return (1 - 1 / T) * (0.5 * LOG_2PI + pt.log(sigma)) + 0.5 * pt.log(T)


@register_closed(rvs.HalfNormalRV, lambda loc, sigma: (sigma > 0,), "sigma > 0")
def half_normal(T: Variable, loc: Variable, sigma: Variable) -> Variable:
    """Half of the normal's integral, with twice its density."""
    return normal(T, loc, sigma) + (1 / T - 1) * LOG_2


@register_closed(
    TruncatedNormalRV,
    lambda mu, sigma, lower, upper: (sigma > 0, lower <= upper),
    "sigma > 0, lower <= upper",
)
def truncated_normal(
    T: Variable, mu: Variable, sigma: Variable, lower: Variable, upper: Variable
) -> Variable:
    """Mass between the bounds under variance T sigma^2, over the power of the mass at T = 1."""
    is_lower, is_upper = not is_unbounded(lower), not is_unbounded(upper)

    def log_mass(scale: Variable) -> Variable:
        if is_lower and is_upper:
            return log_diff_normal_cdf(mu, scale, upper, lower)
        if is_lower:
            return normal_lccdf(mu, scale, lower)
        return normal_lcdf(mu, scale, upper) if is_upper else pt.zeros_like(scale)

    return normal(T, mu, sigma) + log_mass(sigma * pt.sqrt(T)) - log_mass(sigma) / T


@register_closed(rvs.LogNormalRV, lambda mu, sigma: (sigma > 0,), "sigma > 0")
def log_normal(T: Variable, mu: Variable, sigma: Variable) -> Variable:
    """In log x a normal times exp((1 - q) log x), the tempered Jacobian."""
    p = 1 - 1 / T
    return normal(T, mu, sigma) + p * mu + 0.5 * p**2 * sigma**2 * T


@register_closed(
    rvs.StudentTRV,
    lambda nu, mu, sigma: (sigma > 0, nu > 0),
    "sigma > 0, nu > 0",
    lambda nu, mu, sigma: nu + 1,
)
def student_t(T: Variable, nu: Variable, mu: Variable, sigma: Variable) -> Variable:
    """Return a t of (nu + 1) / T - 1 degrees of freedom: infinite from T = nu + 1 on."""
    log_constant = (
        pt.gammaln((nu + 1) / 2) - pt.gammaln(nu / 2) - 0.5 * (pt.log(nu) + LOG_PI) - pt.log(sigma)
    )
    m = (nu + 1) / T - 1
    log_integral = 0.5 * (pt.log(nu) + LOG_PI) + pt.log(sigma)
    return log_constant / T + log_integral + pt.gammaln(m / 2) - pt.gammaln((m + 1) / 2)


@register_closed(
    HalfStudentTRV,
    lambda nu, sigma: (sigma > 0, nu > 0),
    "sigma > 0, nu > 0",
    lambda nu, sigma: nu + 1,
)
def half_student_t(T: Variable, nu: Variable, sigma: Variable) -> Variable:
    """Half of the integral, with twice the density."""
    return student_t(T, nu, sigma, sigma) + (1 / T - 1) * LOG_2


@register_closed(
    rvs.CauchyRV, lambda alpha, beta: (beta > 0,), "beta > 0", lambda *_: pt.constant(2.0)
)
def cauchy(T: Variable, alpha: Variable, beta: Variable) -> Variable:
    """Return a t with one degree of freedom: infinite from T = 2 on."""
    return student_t(T, pt.constant(1.0), alpha, beta)


@register_closed(HalfCauchyRV, lambda beta: (beta > 0,), "beta > 0", lambda *_: pt.constant(2.0))
def half_cauchy(T: Variable, beta: Variable) -> Variable:
    """Half of the integral, with twice the density."""
    return half_student_t(T, pt.constant(1.0), beta)


@register_closed(
    SkewStudentTRV,
    lambda a, b, mu, sigma: (a > 0, b > 0, sigma > 0),
    "a > 0, b > 0, sigma > 0",
    lambda a, b, mu, sigma: 2 * pt.minimum(a, b) + 1,
)
def skew_student_t(
    T: Variable, a: Variable, b: Variable, mu: Variable, sigma: Variable
) -> Variable:
    """With x / sqrt(a + b + x^2) as variable a beta integral; infinite at T >= 2 min(a, b) + 1."""
    new_a, new_b = (a + 0.5) / T - 0.5, (b + 0.5) / T - 0.5
    log_constant = (a + b - 1) * LOG_2 + betaln(a, b) + 0.5 * pt.log(a + b)
    log_integral = 0.5 * pt.log(a + b) + (new_a + new_b - 1) * LOG_2 + betaln(new_a, new_b)
    return (1 - 1 / T) * pt.log(sigma) - log_constant / T + log_integral


@register_closed(rvs.LaplaceRV, lambda mu, b: (b > 0,), "b > 0")
def laplace(T: Variable, mu: Variable, b: Variable) -> Variable:
    """Return a Laplace of scale T b without its constant."""
    return (1 - 1 / T) * (LOG_2 + pt.log(b)) + pt.log(T)


@register_closed(AsymmetricLaplaceRV, lambda b, kappa, mu: (b > 0, kappa > 0), "b > 0, kappa > 0")
def asymmetric_laplace(T: Variable, b: Variable, kappa: Variable, mu: Variable) -> Variable:
    """Two exponentials, each T times as long."""
    return (1 - 1 / T) * pt.log((kappa + 1 / kappa) / b) + pt.log(T)


@register_closed(rvs.ExponentialRV, lambda mu: (mu > 0,), "mu > 0")
def exponential(T: Variable, mu: Variable) -> Variable:
    """Return an exponential of mean T mu without its constant."""
    return (1 - 1 / T) * pt.log(mu) + pt.log(T)


def gamma_integral(shape: Variable, rate: Variable) -> Variable:
    """Log integral of x^(shape - 1) exp(-rate x), infinite where the shape is not positive."""
    finite = pt.gt(shape, 0.0)
    safe = pt.switch(finite, shape, 1.0)
    return pt.switch(finite, pt.gammaln(safe) - safe * pt.log(rate), np.inf)


@register_closed(rvs.GammaRV, lambda alpha, scale: (alpha > 0, scale > 0), "alpha > 0, scale > 0")
def gamma(T: Variable, alpha: Variable, scale: Variable) -> Variable:
    """Return a gamma of shape (alpha - 1) / T + 1 and scale T times as large."""
    log_constant = -pt.gammaln(alpha) - alpha * pt.log(scale)
    return log_constant / T + gamma_integral((alpha - 1) / T + 1, 1 / (scale * T))


@register_closed(
    rvs.InvGammaRV,
    lambda alpha, beta: (alpha > 0, beta > 0),
    "alpha > 0, beta > 0",
    lambda alpha, beta: alpha + 1,
)
def inverse_gamma(T: Variable, alpha: Variable, beta: Variable) -> Variable:
    """Return an inverse gamma of shape (alpha + 1) / T - 1: infinite from T = alpha + 1 on."""
    log_constant = -pt.gammaln(alpha) + alpha * pt.log(beta)
    return log_constant / T + gamma_integral((alpha + 1) / T - 1, beta / T)


@register_closed(WeibullBetaRV, lambda alpha, beta: (alpha > 0, beta > 0), "alpha > 0, beta > 0")
def weibull(T: Variable, alpha: Variable, beta: Variable) -> Variable:
    """With (x / beta)^alpha as variable a gamma integral."""
    shape = ((alpha - 1) / T + 1) / alpha
    return (1 - 1 / T) * pt.log(beta / alpha) + gamma_integral(shape, 1 / T)


@register_closed(
    rvs.ParetoRV,
    lambda alpha, m: (alpha > 0, m > 0),
    "alpha > 0, m > 0",
    lambda alpha, m: alpha + 1,
)
def pareto(T: Variable, alpha: Variable, m: Variable) -> Variable:
    """Return a Pareto of index (alpha + 1) / T - 1: infinite from T = alpha + 1 on."""
    return pt.log(alpha) / T + (1 - 1 / T) * pt.log(m) - pt.log((alpha + 1) / T - 1)


def beta_integral(a: Variable, b: Variable) -> Variable:
    """Log of the beta function, infinite where an argument is not positive."""
    finite = pt.and_(pt.gt(a, 0.0), pt.gt(b, 0.0))
    return pt.switch(finite, betaln(pt.switch(finite, a, 1.0), pt.switch(finite, b, 1.0)), np.inf)


@register_closed(BetaRV, lambda alpha, beta: (alpha > 0, beta > 0), "alpha > 0, beta > 0")
def beta(T: Variable, alpha: Variable, beta: Variable) -> Variable:
    """Return a beta of parameters (alpha - 1) / T + 1 and (beta - 1) / T + 1."""
    return beta_integral((alpha - 1) / T + 1, (beta - 1) / T + 1) - betaln(alpha, beta) / T


@register_closed(KumaraswamyRV, lambda a, b: (a > 0, b > 0), "a > 0, b > 0")
def kumaraswamy(T: Variable, a: Variable, b: Variable) -> Variable:
    """With x^a as variable a beta integral."""
    log_constant = (pt.log(a) + pt.log(b)) / T - pt.log(a)
    return log_constant + beta_integral(((a - 1) / T + 1) / a, (b - 1) / T + 1)


@register_closed(rvs.UniformRV, lambda lower, upper: (lower <= upper,), "lower <= upper")
def uniform(T: Variable, lower: Variable, upper: Variable) -> Variable:
    """Width to the power 1 - 1 / T."""
    return (1 - 1 / T) * pt.log(upper - lower)


@register_closed(
    rvs.TriangularRV, lambda lower, c, upper: (lower <= c, c <= upper), "lower <= c <= upper"
)
def triangular(T: Variable, lower: Variable, c: Variable, upper: Variable) -> Variable:
    """Two powers of straight lines, together of the width upper - lower."""
    return (1 - 1 / T) * pt.log(upper - lower) + LOG_2 / T - pt.log1p(1 / T)


@register_closed(rvs.LogisticRV, lambda mu, s: (s > 0,), "s > 0")
def logistic(T: Variable, mu: Variable, s: Variable) -> Variable:
    """With the distribution function as variable the beta function B(q, q)."""
    return (1 - 1 / T) * pt.log(s) + betaln(1 / T, 1 / T)


@register_closed(rvs.GumbelRV, lambda mu, beta: (beta > 0,), "beta > 0")
def gumbel(T: Variable, mu: Variable, beta: Variable) -> Variable:
    """With exp(-z) as variable a gamma integral of shape and rate q."""
    return (1 - 1 / T) * pt.log(beta) + gamma_integral(1 / T, 1 / T)


@register_closed(MoyalRV, lambda mu, sigma: (sigma > 0,), "sigma > 0")
def moyal(T: Variable, mu: Variable, sigma: Variable) -> Variable:
    """With exp(-z) as variable a gamma integral of shape and rate q / 2."""
    return (1 - 1 / T) * pt.log(sigma) - 0.5 * LOG_2PI / T + gamma_integral(0.5 / T, 0.5 / T)


@register_closed(rvs.VonMisesRV, lambda mu, kappa: (kappa > 0,), "kappa > 0")
def von_mises(T: Variable, mu: Variable, kappa: Variable) -> Variable:
    """Return a von Mises of concentration kappa / T."""
    return (1 - 1 / T) * LOG_2PI + pt.log(i0e(kappa / T)) - pt.log(i0e(kappa)) / T


def no_density(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Refuse what integrates to infinity at every temperature."""
    raise no_normalizer(rv, "it is no density, its integral is infinite")


for _improper in (FlatRV, HalfFlatRV):
    log_normalizer.register(_improper, no_density)


@register_closed(rvs.BernoulliRV, lambda p: (p >= 0, p <= 1), "0 <= p <= 1")
def bernoulli(T: Variable, p: Variable) -> Variable:
    """Both outcomes; log(1 - p) is written so that PyTensor recognizes a sigmoid in it."""
    return pt.logaddexp(pt.log(p) / T, pt.log(1 - p) / T)


@register_closed(
    rvs.CategoricalRV,
    lambda p: (p >= 0, p <= 1, pt.isclose(pt.sum(p, axis=-1), 1)),
    "0 <= p <= 1, sum(p) = 1",
)
def categorical(T: Variable, p: Variable) -> Variable:
    """All outcomes."""
    temperature = pt.shape_padright(T) if T.type.ndim else T
    return pt.logsumexp(pt.log(p) / temperature, axis=-1)


@register_closed(rvs.GeometricRV, lambda p: (p > 0, p <= 1), "0 < p <= 1")
def geometric(T: Variable, p: Variable) -> Variable:
    """Return the geometric series in (1 - p)^(1 / T)."""
    return pt.log(p) / T - pt.log1mexp(pt.log(1 - p) / T)


@register_closed(DiscreteUniformRV, lambda lower, upper: (lower <= upper,), "lower <= upper")
def discrete_uniform(T: Variable, lower: Variable, upper: Variable) -> Variable:
    """Return the number of values to the power 1 - 1 / T."""
    return (1 - 1 / T) * pt.log(upper - lower + 1)


@register_closed(DiracDeltaRV, lambda c: (), "")
def dirac(T: Variable, c: Variable) -> Variable:
    """One value of mass 1."""
    return pt.zeros_like(c / T)


def log_det(matrix: Variable) -> Variable:
    """Log determinant of positive definite matrices; NaN where they are none, as in PyMC."""
    factor = pt.linalg.cholesky(matrix, lower=True, on_error="nan")
    return 2 * pt.sum(pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def power_of_normal(T: Variable, dim: Variable, log_det_cov: Variable) -> Variable:
    """Return a normal of covariance T Sigma without its constant."""
    return 0.5 * (1 - 1 / T) * (dim * LOG_2PI + log_det_cov) + 0.5 * dim * pt.log(T)


@register_closed(rvs.MvNormalRV, lambda mu, cov: (), "cov positive definite")
def mv_normal(T: Variable, mu: Variable, cov: Variable) -> Variable:
    """Gaussian of the covariance."""
    return power_of_normal(T, cov.shape[-1], log_det(cov))


@register_closed(PrecisionMvNormalRV, lambda mu, tau: (), "tau positive definite")
def precision_mv_normal(T: Variable, mu: Variable, tau: Variable) -> Variable:
    """Gaussian of the inverse of the precision."""
    return power_of_normal(T, tau.shape[-1], -log_det(tau))


@register_closed(
    MvStudentTRV,
    lambda nu, mu, scale: (nu > 0,),
    "nu > 0",
    lambda nu, mu, scale: 1 + nu / scale.shape[-1],
)
def mv_student_t(T: Variable, nu: Variable, mu: Variable, scale: Variable) -> Variable:
    """Return a t of (nu + d) / T - d degrees of freedom: infinite from T = 1 + nu / d on."""
    dim = scale.shape[-1]
    log_volume = 0.5 * (dim * (pt.log(nu) + np.log(np.pi)) + log_det(scale))
    log_constant = pt.gammaln((nu + dim) / 2) - pt.gammaln(nu / 2) - log_volume
    new = (nu + dim) / T - dim
    return log_constant / T + log_volume + pt.gammaln(new / 2) - pt.gammaln((new + dim) / 2)
