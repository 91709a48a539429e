"""Closed forms of the tempered normalizer of multivariate densities."""

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.multivariate import MatrixNormalRV, MvStudentTRV, PrecisionMvNormalRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import (
    finite_below,
    register_closed,
    register_limit,
)

LOG_2PI = float(np.log(2 * np.pi))


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


@register_closed(MatrixNormalRV, lambda mu, row, col: (), "full rank")
def matrix_normal(T: Variable, mu: Variable, row: Variable, col: Variable) -> Variable:
    """Gaussian whose covariance is a Kronecker product, given by Cholesky factors."""

    def log_det_factor(factor: Variable) -> Variable:
        return 2 * pt.sum(pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)

    m, n = row.shape[-1], col.shape[-1]
    return power_of_normal(T, m * n, n * log_det_factor(row) + m * log_det_factor(col))


@register_closed(MvStudentTRV, lambda nu, mu, scale: (nu > 0,), "nu > 0")
def mv_student_t(T: Variable, nu: Variable, mu: Variable, scale: Variable) -> Variable:
    """Return a t of (nu + d) / T - d degrees of freedom: infinite from T = 1 + nu / d on."""
    dim = scale.shape[-1]
    log_volume = 0.5 * (dim * (pt.log(nu) + np.log(np.pi)) + log_det(scale))

    def formula(t: Variable) -> Variable:
        log_constant = pt.gammaln((nu + dim) / 2) - pt.gammaln(nu / 2) - log_volume
        new = (nu + dim) / t - dim
        log_integral = log_volume + pt.gammaln(new / 2) - pt.gammaln((new + dim) / 2)
        return log_constant / t + log_integral

    return finite_below(1 + nu / dim, T, formula)


register_limit(MvStudentTRV)(lambda nu, mu, scale: 1 + nu / scale.shape[-1])


@register_closed(rvs.DirichletRV, lambda a: (pt.all(a > 0, axis=-1),), "a > 0")
def dirichlet(T: Variable, a: Variable) -> Variable:
    """Return a Dirichlet of concentrations (a - 1) / T + 1; infinite where one is not positive."""

    def log_constant(shape: Variable) -> Variable:
        return pt.sum(pt.gammaln(shape), axis=-1) - pt.gammaln(pt.sum(shape, axis=-1))

    new = (a - 1) / (pt.shape_padright(T) if T.type.ndim else T) + 1
    finite = pt.all(new > 0, axis=-1)
    safe = pt.switch(pt.shape_padright(finite), new, 1.0)
    return pt.switch(finite, log_constant(safe) - log_constant(a) / T, np.inf)
