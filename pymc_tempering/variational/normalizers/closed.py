"""Closed forms of the tempered normalizer, of variables with a location of 0 and a scale of 1.

The power of most densities is, but for its constant, a density of the same family again: that of a
normal one of variance T sigma^2. Then log c = log p(x) / T - log p'(x) at any x, with p' of the
changed parameters. So PyMC's own densities say what c is, and check the parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import (
    AsymmetricLaplaceRV,
    BetaRV,
    FlatRV,
    HalfCauchyRV,
    HalfFlatRV,
    HalfStudentTRV,
    SkewStudentTRV,
    TruncatedNormalRV,
    WeibullBetaRV,
)
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.multivariate import MvStudentTRV
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import (
    largest_temperature,
    log_normalizer,
    no_normalizer,
    params_of,
    remade,
)


class Family(NamedTuple):
    """A family that holds the powers of its densities.

    Attributes
    ----------
    point : callable
        A value inside of the support, by the parameters.
    power : callable
        (T, *parameters) to those of the density that p^(1 / T) is but for its constant.
    limit : callable, optional
        The temperature from which on the normalizer is infinite, by the parameters.
    """

    point: Callable[..., Any]
    power: Callable[..., tuple[Any, ...]]
    limit: Callable[..., Any] | None = None


def power_of_normal(
    T: Variable, mu: Variable, sigma: Variable, *ends: Variable
) -> tuple[Variable, ...]:
    """Return a scale that is wider by the root of T; the rest stays, also where it is truncated."""
    return mu, sigma * pt.sqrt(T), *ends


def power_of_t(T: Variable, nu: Variable, *scale: Variable) -> tuple[Variable, ...]:
    """Degrees of freedom and scale (the last) of the power of a t."""
    new = (nu + 1) / T - 1
    return new, *scale[:-1], scale[-1] * pt.sqrt(nu / new)


def power_of_skew_t(
    T: Variable, a: Variable, b: Variable, mu: Variable, sigma: Variable
) -> tuple[Variable, ...]:
    """Return what leaves sigma^2 (a + b) as it is."""
    new_a, new_b = (a + 0.5) / T - 0.5, (b + 0.5) / T - 0.5
    return new_a, new_b, mu, sigma * pt.sqrt((a + b) / (new_a + new_b))


def zero(*params: Variable) -> float:
    """Return the location, or the end of the support."""
    return 0.0


EVEN = Family(lambda lower, upper: lower, lambda T, *ends: ends)
"""Of densities that are the same everywhere."""

FAMILIES = {
    rvs.NormalRV: Family(zero, power_of_normal),
    rvs.HalfNormalRV: Family(zero, power_of_normal),
    TruncatedNormalRV: Family(
        lambda mu, sigma, lower, upper: pt.clip(mu, lower, upper), power_of_normal
    ),
    rvs.LogNormalRV: Family(
        lambda mu, sigma: pt.exp(mu),
        lambda T, mu, sigma: (mu + (T - 1) * sigma**2, sigma * pt.sqrt(T)),
    ),
    rvs.StudentTRV: Family(zero, power_of_t, lambda nu, mu, sigma: nu + 1),
    HalfStudentTRV: Family(zero, power_of_t, lambda nu, sigma: nu + 1),
    SkewStudentTRV: Family(zero, power_of_skew_t, lambda a, b, mu, sigma: 2 * pt.minimum(a, b) + 1),
    rvs.LaplaceRV: Family(zero, lambda T, mu, b: (mu, T * b)),
    AsymmetricLaplaceRV: Family(zero, lambda T, b, kappa, mu: (b / T, kappa, mu)),
    rvs.ExponentialRV: Family(zero, lambda T, mu: (T * mu,)),
    rvs.GammaRV: Family(
        lambda alpha, scale: scale, lambda T, alpha, scale: ((alpha - 1) / T + 1, T * scale)
    ),
    rvs.InvGammaRV: Family(
        lambda alpha, beta: beta,
        lambda T, alpha, beta: ((alpha + 1) / T - 1, beta / T),
        lambda alpha, beta: alpha + 1,
    ),
    rvs.ParetoRV: Family(
        lambda alpha, m: m,
        lambda T, alpha, m: ((alpha + 1) / T - 1, m),
        lambda alpha, m: alpha + 1,
    ),
    BetaRV: Family(lambda a, b: 0.5, lambda T, a, b: ((a - 1) / T + 1, (b - 1) / T + 1)),
    rvs.UniformRV: EVEN,
    rvs.VonMisesRV: Family(zero, lambda T, mu, kappa: (mu, kappa / T)),
    rvs.GeometricRV: Family(lambda p: 1, lambda T, p: (-pt.expm1(pt.log1p(-p) / T),)),
    DiscreteUniformRV: EVEN,
}


def of_family(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Log p(x) / T - log p'(x), with the parameters of the power in p'."""
    family, params = FAMILIES[type(op)], params_of(rv)
    point = family.point(*params)

    def log_p(*own: Variable) -> Variable:
        return pm.logp(remade(rv, own), point, warn_rvs=False)

    def formula(T: Variable) -> Variable:
        return log_p(*params) / T - log_p(*family.power(T, *params))

    return finite_below(largest_temperature(op, rv), temperature, formula)


def limit_of_family(op: Op, rv: Variable) -> Variable:
    """Return the temperature from which on the normalizer is infinite."""
    limit = FAMILIES[type(op)].limit
    return pt.constant(np.inf) if limit is None else limit(*params_of(rv))


def finite_below(limit: Variable, temperature: Variable, formula: Callable) -> Variable:
    """`formula(T)` below `limit`, +inf from there on, with a gradient that is never NaN."""
    below = pt.lt(temperature, limit)
    return pt.switch(below, formula(pt.switch(below, temperature, 1.0)), np.inf)


for _type in FAMILIES:
    log_normalizer.register(_type, of_family)
    largest_temperature.register(_type, limit_of_family)


@log_normalizer.register(rvs.CauchyRV)
@log_normalizer.register(HalfCauchyRV)
def cauchy(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Return that of a t with one degree of freedom."""
    t = pm.HalfStudentT if isinstance(op, HalfCauchyRV) else pm.StudentT
    standard = t.dist(nu=1.0, sigma=1.0)
    return of_family(standard.owner.op, standard, temperature)


@largest_temperature.register(rvs.CauchyRV)
@largest_temperature.register(HalfCauchyRV)
def limit_of_cauchy(op: Op, rv: Variable) -> Variable:
    """Return that of a t with one degree of freedom."""
    return pt.constant(2.0)


@log_normalizer.register(WeibullBetaRV)
def weibull(op: Op, rv: Variable, T: Variable) -> Variable:
    """With x^alpha as variable a gamma integral, infinite where its shape is negative."""
    alpha, _ = params_of(rv)
    shape = ((alpha - 1) / T + 1) / alpha
    log_integral = pt.switch(shape > 0, pt.gammaln(pt.abs(shape)) + shape * pt.log(T), np.inf)
    return (1 / T - 1) * pt.log(alpha) + log_integral


@log_normalizer.register(rvs.LogisticRV)
def logistic(op: Op, rv: Variable, T: Variable) -> Variable:
    """With the distribution function as variable the beta function B(q, q)."""
    return 2 * pt.gammaln(1 / T) - pt.gammaln(2 / T)


@log_normalizer.register(rvs.TriangularRV)
def triangular(op: Op, rv: Variable, T: Variable) -> Variable:
    """Two powers of straight lines, together of the width upper - lower."""
    lower, _, upper = params_of(rv)
    return (1 - 1 / T) * pt.log(upper - lower) + np.log(2.0) / T - pt.log1p(1 / T)


@log_normalizer.register(FlatRV)
@log_normalizer.register(HalfFlatRV)
def no_density(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Refuse what integrates to infinity at every temperature."""
    raise no_normalizer(rv, "it is no density, its integral is infinite")


@log_normalizer.register(rvs.BernoulliRV)
def bernoulli(op: Op, rv: Variable, T: Variable) -> Variable:
    """Both outcomes; log(1 - p) is written so that PyTensor recognizes a sigmoid in it."""
    (p,) = params_of(rv)
    return pt.logaddexp(pt.log(p) / T, pt.log(1 - p) / T)


@log_normalizer.register(rvs.CategoricalRV)
def categorical(op: Op, rv: Variable, T: Variable) -> Variable:
    """All outcomes."""
    (p,) = params_of(rv)
    return pt.logsumexp(pt.log(p) / (pt.shape_padright(T) if T.type.ndim else T), axis=-1)


@log_normalizer.register(DiracDeltaRV)
def dirac(op: Op, rv: Variable, T: Variable) -> Variable:
    """One value of mass 1."""
    return pt.zeros_like(params_of(rv)[0] / T)


@log_normalizer.register(rvs.MvNormalRV)
def mv_normal(op: Op, rv: Variable, T: Variable) -> Variable:
    """Return a normal of covariance T Sigma without its constant."""
    _, cov = params_of(rv)
    center = pt.zeros(cov.shape[-1])
    peak = pm.logp(pm.MvNormal.dist(center, cov), center)
    return (1 / T - 1) * peak + 0.5 * cov.shape[-1] * pt.log(T)


@log_normalizer.register(MvStudentTRV)
def mv_student_t(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Return a t of (nu + d) / T - d degrees of freedom."""
    nu, _, scale = params_of(rv)
    dim = scale.shape[-1]
    center = pt.zeros(dim)

    def log_ratio(degrees: Variable) -> Variable:
        return pt.gammaln((degrees + dim) / 2) - pt.gammaln(degrees / 2)

    def formula(T: Variable) -> Variable:
        peak = pm.logp(pm.MvStudentT.dist(nu=nu, mu=center, scale=scale), center)
        return (1 / T - 1) * peak + log_ratio(nu) - log_ratio((nu + dim) / T - dim)

    return finite_below(limit_of_mv_t(op, rv), temperature, formula)


@largest_temperature.register(MvStudentTRV)
def limit_of_mv_t(op: Op, rv: Variable) -> Variable:
    """Return 1 + nu / d."""
    nu, _, scale = params_of(rv)
    return 1 + nu / scale.shape[-1]
