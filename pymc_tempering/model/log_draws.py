"""Draws of positive variables by their logs, which neither overflow nor underflow.

Each is of a generator, a size, and the parameters of PyMC's law, and uses the generator once more
only where PyMC's own draw does not suffice.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable

from pymc_tempering.model.log_graphs import log_of_positive


def _draw(
    law: Callable[..., tuple[Variable, Variable]], rng: Variable, size: Variable, *params: object
) -> tuple[Variable, Variable]:
    """Return the next generator, and a draw."""
    return law(*params, size=size, rng=rng, return_next_rng=True)


def draw_log_normal(rng: Variable, size: Variable, mu: Variable, sigma: Variable) -> Variable:
    """Draw the log of a lognormal."""
    return _draw(pt.random.normal, rng, size, mu, sigma)[1]


def draw_log_half_normal(rng: Variable, size: Variable, loc: Variable, sigma: Variable) -> Variable:
    """Draw the log of a half-normal; `loc` is 0."""
    return log_of_positive(sigma) + pt.log(pt.abs(_draw(pt.random.normal, rng, size, 0.0, 1.0)[1]))


def draw_log_half_cauchy(rng: Variable, size: Variable, beta: Variable) -> Variable:
    """Draw the log of a half-Cauchy."""
    return log_of_positive(beta) + pt.log(pt.abs(_draw(pt.random.cauchy, rng, size, 0.0, 1.0)[1]))


def draw_log_half_t(rng: Variable, size: Variable, nu: Variable, sigma: Variable) -> Variable:
    """Draw the log of a half-t."""
    rng, normal = _draw(pt.random.normal, rng, size, 0.0, 1.0)
    _, log_half_chi2 = _log_standard_gamma(rng, size, nu.astype("float64") / 2.0)
    log_t = pt.log(pt.abs(normal)) - 0.5 * (log_half_chi2 - (log_of_positive(nu) - np.log(2.0)))
    return log_of_positive(sigma) + log_t


def draw_log_exponential(rng: Variable, size: Variable, mean: Variable) -> Variable:
    """Draw the log of an exponential."""
    return log_of_positive(mean) + pt.log(_draw(pt.random.exponential, rng, size, 1.0)[1])


def draw_log_weibull(rng: Variable, size: Variable, alpha: Variable, beta: Variable) -> Variable:
    """Draw the log of a Weibull."""
    log_power = pt.log(_draw(pt.random.exponential, rng, size, 1.0)[1])
    return log_of_positive(beta) + log_power / alpha.astype("float64")


def draw_log_gamma(rng: Variable, size: Variable, alpha: Variable, scale: Variable) -> Variable:
    """Draw the log of a gamma."""
    return log_of_positive(scale) + _log_standard_gamma(rng, size, alpha)[1]


def draw_log_inverse_gamma(
    rng: Variable, size: Variable, alpha: Variable, beta: Variable
) -> Variable:
    """Draw the log of an inverse gamma."""
    return log_of_positive(beta) - _log_standard_gamma(rng, size, alpha)[1]


def draw_log_odds_of_beta(
    rng: Variable, size: Variable, alpha: Variable, beta: Variable
) -> Variable:
    """Draw the log odds of a beta."""
    rng, first = _log_standard_gamma(rng, size, alpha)
    return first - _log_standard_gamma(rng, size, beta)[1]


def draw_log_excess_of_pareto(
    rng: Variable, size: Variable, alpha: Variable, m: Variable
) -> Variable:
    """Draw the log of what a Pareto is above its lower bound."""
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
