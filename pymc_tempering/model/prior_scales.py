"""Which priors have a scale, and what becomes of their parameters when it is multiplied."""

from collections.abc import Callable, Sequence

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import (
    AsymmetricLaplaceRV,
    ExGaussianRV,
    FlatRV,
    HalfCauchyRV,
    HalfFlatRV,
    HalfStudentTRV,
    MoyalRV,
    RiceRV,
    SkewNormalRV,
    SkewStudentTRV,
    WaldRV,
    WeibullBetaRV,
)
from pymc.distributions.multivariate import MvStudentTRV, ZeroSumNormalRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import (
    CauchyRV,
    ExponentialRV,
    GammaRV,
    GumbelRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MvNormalRV,
    NormalRV,
    StudentTRV,
)

from pymc_tempering.exceptions import ImproperPriorError, ModelError
from pymc_tempering.model.layout import is_discrete

type Change = Callable[[Variable, Variable], Variable]
"""New value of a parameter, from the old one and the factor."""


def _times(parameter: Variable, factor: Variable) -> Variable:
    return parameter * factor


def _over(parameter: Variable, factor: Variable) -> Variable:
    return parameter / factor


def _times_square(parameter: Variable, factor: Variable) -> Variable:
    return parameter * factor**2


def _plus_log(parameter: Variable, factor: Variable) -> Variable:
    return parameter + pt.log(factor)


SCALES: dict[type, dict[int, Change]] = {
    AsymmetricLaplaceRV: {0: _over},
    CauchyRV: {1: _times},
    ExGaussianRV: {1: _times, 2: _times},
    ExponentialRV: {0: _times},
    GammaRV: {1: _times},
    GumbelRV: {1: _times},
    HalfCauchyRV: {0: _times},
    HalfNormalRV: {1: _times},
    HalfStudentTRV: {1: _times},
    InvGammaRV: {1: _times},
    LaplaceRV: {1: _times},
    LogNormalRV: {0: _plus_log},
    LogisticRV: {1: _times},
    MoyalRV: {1: _times},
    MvNormalRV: {1: _times_square},
    MvStudentTRV: {2: _times_square},
    NormalRV: {1: _times},
    RiceRV: {1: _times},
    SkewNormalRV: {1: _times},
    SkewStudentTRV: {3: _times},
    StudentTRV: {2: _times},
    WaldRV: {0: _times, 1: _times},
    WeibullBetaRV: {1: _times},
    ZeroSumNormalRV: {0: _times},
}
"""By law: the parameters that change, by their place, and how.

With the factor c, a variable has the law of location + c (b - location), where b has the law of the
model. The location is a parameter of the law, or 0. The parameters are those that PyTensor gets:
of `pm.Gamma` and `pm.Exponential` the scale, not the rate.
"""


def scaled_parameters(rv: Variable, factor: Variable) -> list[Variable]:
    """Return the parameters of a prior whose scale is multiplied by a factor.

    Parameters
    ----------
    rv : Variable
        A free random variable for which :func:`check_scale` raised no error.
    factor : Variable
        A scalar.
    """
    op = rv.owner.op
    parameters = list(op.dist_params(rv.owner))
    for place, change in SCALES[type(op)].items():
        parameters[place] = change(parameters[place], factor)
    return parameters


def check_scale(model: pm.Model, name: str) -> None:
    """Raise an error unless the variable has a prior of its own, with a scale.

    Parameters
    ----------
    model : pymc.Model
    name : str

    Raises
    ------
    ImproperPriorError
        The prior is flat.
    ModelError
        The model has no free variable of that name, or its prior has no scale.
    """
    free = {rv.name: rv for rv in model.free_RVs}
    if name not in free:
        raise ModelError(_no_prior(model, name))
    rv = free[name]
    op = rv.owner.op
    if isinstance(op, FlatRV | HalfFlatRV):
        raise ImproperPriorError(
            f"The prior of {name!r} is flat. It has no scale, and a model with it no evidence: "
            "give it a proper prior."
        )
    if type(op) in SCALES:
        return
    law = type(op).__name__.removesuffix("RV")
    reason = "its values are whole numbers" if is_discrete(rv) else f"its law is {law}"
    raise ModelError(
        f"The prior of {name!r} has no scale that could be multiplied: {reason}. Make the number "
        "that you want to change a pm.Data of the model, and give its values in data={...}. "
        f"Scales are known of {', '.join(scale_laws())}."
    )


def scale_laws() -> Sequence[str]:
    """Names of the laws that have a scale."""
    return sorted(law.__name__.removesuffix("RV") for law in SCALES)


def _no_prior(model: pm.Model, name: str) -> str:
    """Say why a variable has no prior of its own."""
    known = ", ".join(repr(rv.name) for rv in model.free_RVs)
    if name in {rv.name for rv in model.observed_RVs}:
        return f"{name!r} is observed, so it has no prior. Variables with a prior: {known}."
    if name in {variable.name for variable in model.deterministics}:
        return (
            f"{name!r} is computed from other variables, so it has no prior of its own. Name one "
            f"of {known}; or make the scale a pm.Data of the model, and give its values in "
            "data={...}."
        )
    if name in {variable.name for variable in model.data_vars}:
        return f"{name!r} is a pm.Data of the model: give its values in data={{{name!r}: ...}}."
    return f"The model has no variable named {name!r}. Variables with a prior: {known}."
