"""Which priors reach out to where exp overflows, or underflows to 0, and how they are drawn."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.scalar as ps
from pymc.distributions import continuous
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.logprob.transforms import IntervalTransform, LogOddsTransform, LogTransform, Transform
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random import basic
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.model import log_draws
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.memory import remembered

LOG_REACH = 700.0
"""Logs of numbers that floats can hold, whatever their sign."""

LOG_SCALE_REACH = 230.0
"""Logs of the scales with which no draw of a family that has no heavy tail can overflow."""

SMALL_SHAPE = 0.1
"""Shape from which on a gamma draw is not below exp(-700) in 1e30 draws."""

SMALL_UPPER_SHAPE = 0.5
"""Second shape from which on a beta draw is rounded to 1 less often than once in 1e8 draws."""

SIGMAS = 40.0
"""Standard deviations that no normal draw is away."""


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
    op, node = rv.owner.op, rv.owner
    params = op.dist_params(node)
    rng, size = node.inputs[:2]
    if rv_size_is_none(size):
        size = implicit_size_from_params(*params, ndims_params=[0] * len(params))
    return _FAMILIES[type(op)].draw(rng, size, *params)


def _find(model: pm.Model) -> frozenset[str]:
    found: set[Variable] = set()
    for rv in model.free_RVs:  # parents come before their children
        family = _FAMILIES.get(type(rv.owner.op))
        if family is None or not _is_followed(rv, model.rvs_to_transforms[rv]):
            continue
        params = rv.owner.op.dist_params(rv.owner)
        if not family.is_near(*(_Parameter(v, found) for v in params)):
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


class _Parameter:
    """A parameter of a prior: its smallest and largest value, if known, and whether it is tame."""

    def __init__(self, variable: Variable, far: set[Variable]) -> None:
        self.low, self.high = -np.inf, np.inf
        behind = list(ancestors([variable]))
        self.is_random = any(isinstance(v.type, RandomGeneratorType) for v in behind)
        self.is_wild = any(v in far or _is_exp(v) for v in behind)
        if not self.is_random:
            value = constant_fold(freeze_shared([variable]), raise_not_constant=False)[0]
            if not isinstance(value, Variable) and np.size(value):
                self.low, self.high = float(np.min(value)), float(np.max(value))

    def is_tame_scale(self) -> bool:
        """Whether no draw overflows because of this scale."""
        if self.is_random:
            return not self.is_wild
        return self.low > np.exp(-LOG_SCALE_REACH) and self.high < np.exp(LOG_SCALE_REACH)


def _is_exp(variable: Variable) -> bool:
    node = variable.owner
    return (
        node is not None
        and isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, ps.Exp | ps.Pow)
        and not isinstance(node.inputs[-1], Constant)
    )


def _lognormal_is_near(mu: _Parameter, sigma: _Parameter) -> bool:
    return max(abs(mu.low), abs(mu.high)) + SIGMAS * sigma.high < LOG_REACH


def _shaped_is_near(shape: _Parameter, scale: _Parameter) -> bool:
    return shape.low >= SMALL_SHAPE and scale.is_tame_scale()


def _t_is_near(nu: _Parameter, sigma: _Parameter) -> bool:
    return nu.low >= 2.0 * SMALL_SHAPE and sigma.is_tame_scale()


def _beta_is_near(alpha: _Parameter, beta: _Parameter) -> bool:
    return alpha.low >= SMALL_SHAPE and beta.low >= SMALL_UPPER_SHAPE


def _half_normal_is_near(loc: _Parameter, sigma: _Parameter) -> bool:
    return sigma.is_tame_scale() or not loc.low == loc.high == 0.0


@dataclass(frozen=True)
class _Family:
    """When parameters keep the draws of a law near, and how it is drawn in the unconstrained space.

    The draw is of (generator, size, *parameters).
    """

    is_near: Callable[..., bool]
    draw: Callable[..., Variable]


_FAMILIES: dict[type, _Family] = {
    basic.LogNormalRV: _Family(_lognormal_is_near, log_draws.draw_log_normal),
    basic.HalfNormalRV: _Family(_half_normal_is_near, log_draws.draw_log_half_normal),
    continuous.HalfCauchyRV: _Family(_Parameter.is_tame_scale, log_draws.draw_log_half_cauchy),
    continuous.HalfStudentTRV: _Family(_t_is_near, log_draws.draw_log_half_t),
    basic.ExponentialRV: _Family(_Parameter.is_tame_scale, log_draws.draw_log_exponential),
    continuous.WeibullBetaRV: _Family(_shaped_is_near, log_draws.draw_log_weibull),
    basic.GammaRV: _Family(_shaped_is_near, log_draws.draw_log_gamma),
    basic.InvGammaRV: _Family(_shaped_is_near, log_draws.draw_log_inverse_gamma),
    basic.BetaRV: _Family(_beta_is_near, log_draws.draw_log_odds_of_beta),
    basic.ParetoRV: _Family(_shaped_is_near, log_draws.draw_log_excess_of_pareto),
}
"""By the type of a random variable."""
