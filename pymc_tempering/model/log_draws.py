"""Draws of positive variables by their logs, which neither overflow nor underflow."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV, WeibullBetaRV
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.basic import (
    BetaRV,
    ExponentialRV,
    GammaRV,
    HalfNormalRV,
    InvGammaRV,
    LogNormalRV,
    ParetoRV,
)

from pymc_tempering.model.log_graphs import log_of_positive


def unconstrained_draw(rv: Variable) -> Variable:
    """Graph of a draw of a far prior (`far_priors`), in the unconstrained space.

    The generator is that of `rv`, and where PyMC's own draw takes the same numbers from it, so
    does this one. A scale that is itself the exponential of something enters with its log.
    """
    op, node = rv.owner.op, rv.owner
    params = op.dist_params(node)
    rng, size = node.inputs[:2]
    if rv_size_is_none(size):
        size = implicit_size_from_params(*params, ndims_params=[0] * len(params))
    draw: Variable = _DRAWS[type(op)](rng, size, *params)
    return draw


def _draw(
    law: Callable[..., tuple[Variable, Variable]], rng: Variable, size: Variable, *params: object
) -> tuple[Variable, Variable]:
    """Return the next generator, and a draw."""
    return law(*params, size=size, rng=rng, return_next_rng=True)


def _log_normal(rng: Variable, size: Variable, mu: Variable, sigma: Variable) -> Variable:
    return _draw(pt.random.normal, rng, size, mu, sigma)[1]


def _log_half_normal(rng: Variable, size: Variable, loc: Variable, sigma: Variable) -> Variable:
    return log_of_positive(sigma) + pt.log(pt.abs(_draw(pt.random.normal, rng, size, 0.0, 1.0)[1]))


def _log_half_cauchy(rng: Variable, size: Variable, beta: Variable) -> Variable:
    return log_of_positive(beta) + pt.log(pt.abs(_draw(pt.random.cauchy, rng, size, 0.0, 1.0)[1]))


def _log_half_t(rng: Variable, size: Variable, nu: Variable, sigma: Variable) -> Variable:
    rng, normal = _draw(pt.random.normal, rng, size, 0.0, 1.0)
    _, log_half_chi2 = _log_standard_gamma(rng, size, nu.astype("float64") / 2.0)
    log_t = pt.log(pt.abs(normal)) - 0.5 * (log_half_chi2 - (log_of_positive(nu) - np.log(2.0)))
    return log_of_positive(sigma) + log_t


def _log_exponential(rng: Variable, size: Variable, mean: Variable) -> Variable:
    return log_of_positive(mean) + pt.log(_draw(pt.random.exponential, rng, size, 1.0)[1])


def _log_weibull(rng: Variable, size: Variable, alpha: Variable, beta: Variable) -> Variable:
    log_power = pt.log(_draw(pt.random.exponential, rng, size, 1.0)[1])
    return log_of_positive(beta) + log_power / alpha.astype("float64")


def _log_gamma(rng: Variable, size: Variable, alpha: Variable, scale: Variable) -> Variable:
    return log_of_positive(scale) + _log_standard_gamma(rng, size, alpha)[1]


def _log_inverse_gamma(rng: Variable, size: Variable, alpha: Variable, beta: Variable) -> Variable:
    return log_of_positive(beta) - _log_standard_gamma(rng, size, alpha)[1]


def _log_odds_of_beta(rng: Variable, size: Variable, alpha: Variable, beta: Variable) -> Variable:
    rng, first = _log_standard_gamma(rng, size, alpha)
    return first - _log_standard_gamma(rng, size, beta)[1]


def _log_excess_of_pareto(rng: Variable, size: Variable, alpha: Variable, m: Variable) -> Variable:
    power = -pt.log1p(-_draw(pt.random.uniform, rng, size, 0.0, 1.0)[1]) / alpha.astype("float64")
    return log_of_positive(m) + power + pt.log1mexp(-power)


def _log_standard_gamma(
    rng: Variable, size: Variable, shape: Variable
) -> tuple[Variable, Variable]:
    """Return the next generator, and the log of a gamma draw of scale 1.

    A draw of a shape below 1 is one of shape + 1 times a power of a uniform number, which is below
    the smallest float for small shapes; its log is not.
    """
    shape = shape.astype("float64")
    if isinstance(shape, Constant) and np.all(shape.data >= 1.0):
        rng, gamma = _draw(partial(pt.random.gamma, scale=1.0), rng, size, shape)
        return rng, pt.log(gamma)
    is_small = shape < 1.0
    raised = pt.switch(is_small, shape + 1.0, shape)
    rng, gamma = _draw(partial(pt.random.gamma, scale=1.0), rng, size, raised)
    rng, minus_log_u = _draw(pt.random.exponential, rng, size, 1.0)
    return rng, pt.log(gamma) - pt.switch(is_small, minus_log_u / shape, 0.0)


_DRAWS: dict[type, Callable[..., Variable]] = {
    LogNormalRV: _log_normal,
    HalfNormalRV: _log_half_normal,
    HalfCauchyRV: _log_half_cauchy,
    HalfStudentTRV: _log_half_t,
    ExponentialRV: _log_exponential,
    WeibullBetaRV: _log_weibull,
    GammaRV: _log_gamma,
    InvGammaRV: _log_inverse_gamma,
    BetaRV: _log_odds_of_beta,
    ParetoRV: _log_excess_of_pareto,
}
"""By the type of a random variable: draws of its unconstrained value, of (rng, size, *params)."""
