"""Which priors reach out to where exp overflows, or underflows to 0, and how they are drawn.

Their logs are drawn, which neither overflow nor underflow. A draw uses the generator once more only
where PyMC's own draw does not suffice.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions import continuous
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.logprob.transforms import IntervalTransform, LogOddsTransform, LogTransform, Transform
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic

from pymc_tempering.model.density_graphs import is_random, known_values
from pymc_tempering.model.log_graphs import computes, log_of_positive
from pymc_tempering.model.memory import remembered

type Limits = tuple[float, float]
"""Least and largest value of a parameter with which no draw overflows."""

ANY: Limits = (-np.inf, np.inf)

SCALE: Limits = (float(np.exp(-230.0)), float(np.exp(230.0)))
"""Of the scale of a family that has no heavy tail."""

SHAPE: Limits = (0.1, np.inf)
"""Of the shape of a gamma, whose draw is then not below exp(-700) in 1e30 draws."""

DOF: Limits = (0.2, np.inf)
"""Of the degrees of freedom of a t, which are twice such a shape."""

UPPER_SHAPE: Limits = (0.5, np.inf)
"""Of the second shape of a beta, whose draw is rounded to 1 less often than once in 1e8 draws."""

LOG_CENTER, LOG_SPREAD = (-300.0, 300.0), (0.0, 10.0)
"""Of a lognormal: 40 standard deviations of a log do not lead from its mean to +-700."""


def far_priors(model: pm.Model) -> frozenset[str]:
    """Names of the free variables whose draws may overflow though their unconstrained value is one.

    These are variables of some families, with their default transforms. Other variables, and those
    whose constant parameters keep all draws within the range of floats, are left out.
    """
    return remembered(model, "far priors", lambda: _find(model))


def reaches_far(model: pm.Model) -> bool:
    """Whether the density is needed out to where exp overflows.

    It is for far priors, and for laws of other families whose logs have an exponential behind them.
    """
    return bool(far_priors(model)) or any(
        isinstance(model.rvs_to_transforms[rv], LogTransform)
        and type(rv.owner.op) not in _FAMILIES
        and any(_is_exp(variable) for variable in ancestors(rv.owner.inputs))
        for rv in model.free_RVs
    )


def unconstrained_draw(rv: Variable) -> Variable:
    """Graph of a draw of a far prior, in the unconstrained space.

    The generator is that of `rv`, and where PyMC's own draw takes the same numbers from it, so
    does this one. A scale that is itself the exponential of something enters with its log.
    """
    op, (rng, size, *params) = rv.owner.op, rv.owner.inputs
    if rv_size_is_none(size):
        size = implicit_size_from_params(*params, ndims_params=[0] * len(params))

    def take(law: Callable[..., tuple[Variable, Variable]], *args: object) -> Variable:
        nonlocal rng
        rng, drawn = law(*args, size=size, rng=rng, return_next_rng=True)
        return drawn

    return _FAMILIES[type(op)].draw(take, *params)


def _find(model: pm.Model) -> frozenset[str]:
    found: set[Variable] = set()
    for rv in model.free_RVs:  # parents come before their children
        family = _FAMILIES.get(type(rv.owner.op))
        if family is None or not _is_followed(rv, model.rvs_to_transforms[rv]):
            continue
        params = rv.owner.op.dist_params(rv.owner)
        if not all(map(partial(_keeps_near, found), params, family.limits)):
            found.add(rv)
    return frozenset(rv.name for rv in found)


def _is_followed(rv: Variable, transform: Transform | None) -> bool:
    """Whether a variable of one of the families has the transform that its draws are known for."""
    op, inputs = rv.owner.op, rv.owner.inputs
    if isinstance(op, basic.ParetoRV) and isinstance(transform, IntervalTransform):
        lower, _, _, has_upper = transform.get_a_and_b(inputs)
        return lower is inputs[-1] and not has_upper
    usual = {basic.BetaRV: LogOddsTransform, basic.ParetoRV: IntervalTransform}
    return isinstance(transform, usual.get(type(op), LogTransform))


def _is_exp(variable: Variable) -> bool:
    return computes(variable, ps.Exp, ps.Pow) and not isinstance(
        variable.owner.inputs[-1], Constant
    )


def _keeps_near(far: set[Variable], parameter: Variable, limits: Limits) -> bool:
    """Whether no draw overflows because of this parameter.

    Of a random one that is so if it is a scale, and neither far itself nor an exponential.
    """
    if is_random(parameter):
        return limits == SCALE and not any(v in far or _is_exp(v) for v in ancestors([parameter]))
    [value] = known_values([parameter])
    return value is not None and np.array_equal(value, np.clip(value.astype(float), *limits))


type Take = Callable[..., Variable]
"""``take(law, *parameters)``: the next draw of one of PyTensor's laws, of the size wanted."""


def _log_normal(take: Take, mu: Variable, sigma: Variable) -> Variable:
    return take(pt.random.normal, mu, sigma)


def _log_half_normal(take: Take, loc: Variable, sigma: Variable) -> Variable:
    """Draw the log of a half-normal; `loc` is 0."""
    return log_of_positive(sigma) + pt.log(pt.abs(take(pt.random.normal, 0.0, 1.0)))


def _log_half_cauchy(take: Take, beta: Variable) -> Variable:
    return log_of_positive(beta) + pt.log(pt.abs(take(pt.random.cauchy, 0.0, 1.0)))


def _log_half_t(take: Take, nu: Variable, sigma: Variable) -> Variable:
    log_normal = pt.log(pt.abs(take(pt.random.normal, 0.0, 1.0)))
    log_half_chi2 = _log_standard_gamma(take, nu.astype("float64") / 2.0)
    log_t = log_normal - 0.5 * (log_half_chi2 - (log_of_positive(nu) - np.log(2.0)))
    return log_of_positive(sigma) + log_t


def _log_exponential(take: Take, mean: Variable) -> Variable:
    return log_of_positive(mean) + pt.log(take(pt.random.exponential, 1.0))


def _log_weibull(take: Take, alpha: Variable, beta: Variable) -> Variable:
    log_power = pt.log(take(pt.random.exponential, 1.0))
    return log_of_positive(beta) + log_power / alpha.astype("float64")


def _log_gamma(take: Take, alpha: Variable, scale: Variable) -> Variable:
    return log_of_positive(scale) + _log_standard_gamma(take, alpha)


def _log_inverse_gamma(take: Take, alpha: Variable, beta: Variable) -> Variable:
    return log_of_positive(beta) - _log_standard_gamma(take, alpha)


def _log_odds_of_beta(take: Take, alpha: Variable, beta: Variable) -> Variable:
    return _log_standard_gamma(take, alpha) - _log_standard_gamma(take, beta)


def _log_excess_of_pareto(take: Take, alpha: Variable, m: Variable) -> Variable:
    """Draw the log of what a Pareto is above its lower bound."""
    power = -pt.log1p(-take(pt.random.uniform, 0.0, 1.0)) / alpha.astype("float64")
    return log_of_positive(m) + power + pt.log1mexp(-power)


def _log_standard_gamma(take: Take, shape: Variable) -> Variable:
    """Draw the log of a gamma of scale 1.

    A draw of a shape below 1 is one of shape + 1 times a power of a uniform number, which is below
    the smallest float for small shapes; its log is not.
    """
    shape, gamma = shape.astype("float64"), partial(pt.random.gamma, scale=1.0)
    if isinstance(shape, Constant) and np.all(shape.data >= 1.0):
        return pt.log(take(gamma, shape))
    is_small = shape < 1.0
    log_raised = pt.log(take(gamma, pt.switch(is_small, shape + 1.0, shape)))
    return log_raised - pt.switch(is_small, take(pt.random.exponential, 1.0) / shape, 0.0)


class _Family(NamedTuple):
    """How a law is drawn in the unconstrained space, and the limits of its parameters."""

    draw: Callable[..., Variable]
    limits: tuple[Limits, ...]


_FAMILIES: dict[type, _Family] = {
    basic.LogNormalRV: _Family(_log_normal, (LOG_CENTER, LOG_SPREAD)),
    basic.HalfNormalRV: _Family(_log_half_normal, (ANY, SCALE)),
    continuous.HalfCauchyRV: _Family(_log_half_cauchy, (SCALE,)),
    continuous.HalfStudentTRV: _Family(_log_half_t, (DOF, SCALE)),
    basic.ExponentialRV: _Family(_log_exponential, (SCALE,)),
    continuous.WeibullBetaRV: _Family(_log_weibull, (SHAPE, SCALE)),
    basic.GammaRV: _Family(_log_gamma, (SHAPE, SCALE)),
    basic.InvGammaRV: _Family(_log_inverse_gamma, (SHAPE, SCALE)),
    basic.BetaRV: _Family(_log_odds_of_beta, (SHAPE, UPPER_SHAPE)),
    basic.ParetoRV: _Family(_log_excess_of_pareto, (SHAPE, SCALE)),
}
"""By the type of a random variable."""
