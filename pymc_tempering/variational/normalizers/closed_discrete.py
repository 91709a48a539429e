"""Closed forms of the tempered normalizer of discrete distributions."""

import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.multivariate import DirichletMultinomialRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random import basic as rvs

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.dispatch import register_closed, require

MAX_COUNT = 2000
"""Largest total count of a multinomial: the work grows with its square."""

MAX_CATEGORIES = 64
"""Most categories of a multinomial: the graph grows with them."""


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


def log_convolution(log_weight: Variable, n: Variable, n_categories: int) -> Variable:
    """Log of the sum over counts k_1 + ... + k_K = n of the product of weights, shape (...,).

    `log_weight` has shape (..., K, max n + 1): the power series of the categories, multiplied
    one after the other.
    """
    size = log_weight.shape[-1]
    total, count = pt.arange(size)[:, None], pt.arange(size)[None, :]
    shifted = pt.maximum(total - count, 0)
    series = log_weight[..., 0, :]
    for category in range(1, n_categories):
        terms = series[..., shifted] + log_weight[..., category, None, :]
        series = pt.logsumexp(pt.switch(pt.le(count, total), terms, -1e30), axis=-1)
    at_n = pt.eq(pt.arange(size), pt.shape_padright(n))
    return pt.sum(pt.switch(at_n, series, 0.0), axis=-1)


def counts_of(n: Variable, p: Variable, what: str) -> tuple[Variable, int]:
    """Return counts 0, ..., max n, and the number of categories; raise an error for too many."""
    n_categories = p.type.shape[-1]
    if n_categories is None or n_categories > MAX_CATEGORIES:
        raise NormalizerError(
            f"The tempered normalizer of a {what} needs a number of categories that is known "
            f"beforehand and at most {MAX_CATEGORIES}, not {n_categories}. Of the fits, "
            'method="annealed" needs no normalizer.'
        )
    largest = require(
        pt.max(n),
        pt.max(n) <= MAX_COUNT,
        f"A {what} with a count n above {MAX_COUNT} has no tempered normalizer here: the sum over "
        'all its outcomes is too long. Of the fits, method="annealed" needs no normalizer.',
    )
    return pt.arange(largest + 1).astype("float64"), n_categories


@register_closed(
    rvs.MultinomialRV,
    lambda n, p: (p >= 0, p <= 1, pt.isclose(pt.sum(p, axis=-1), 1), n >= 0),
    "0 <= p <= 1, sum(p) = 1, n >= 0",
)
def multinomial(T: Variable, n: Variable, p: Variable) -> Variable:
    """Product of the power series of (p_i^k / k!)^(1 / T), coefficient n, times n!^(1 / T)."""
    count, n_categories = counts_of(n, p, "Multinomial")
    wide = pt.shape_padright(T, 2) if T.type.ndim else T
    log_power = pt.switch(pt.eq(count, 0), 0.0, count * pt.log(pt.shape_padright(p)))
    log_weight = (log_power - pt.gammaln(count + 1)) / wide
    return pt.gammaln(n + 1) / T + log_convolution(log_weight, n, n_categories)


@register_closed(
    DirichletMultinomialRV, lambda n, a: (n >= 0, pt.all(a > 0, axis=-1)), "a > 0, n >= 0"
)
def dirichlet_multinomial(T: Variable, n: Variable, a: Variable) -> Variable:
    """As the multinomial, with weights Gamma(k + a_i) / (Gamma(a_i) k!)."""
    count, n_categories = counts_of(n, a, "DirichletMultinomial")
    wide = pt.shape_padright(T, 2) if T.type.ndim else T
    shape = pt.shape_padright(a)
    log_weight = (pt.gammaln(count + shape) - pt.gammaln(shape) - pt.gammaln(count + 1)) / wide
    total = a.sum(axis=-1)
    log_constant = pt.gammaln(n + 1) + pt.gammaln(total) - pt.gammaln(n + total)
    return log_constant / T + log_convolution(log_weight, n, n_categories)
