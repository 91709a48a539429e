"""Priors whose scale is multiplied: which have one, and a copy of the model where it can be set."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import mul, truediv

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions import continuous, multivariate
from pymc.model.fgraph import clone_model, fgraph_from_model, model_from_fgraph
from pytensor.graph.basic import Variable
from pytensor.tensor.random import basic

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import ImproperPriorError, ModelError
from pymc_tempering.model.layout import is_discrete
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.new_data import order_like, without_initial_values

type Change = Callable[[Variable, Variable], Variable]
"""New value of a parameter, from the old one and the factor."""


def _times_square(parameter: Variable, factor: Variable) -> Variable:
    return parameter * factor**2


def _plus_log(parameter: Variable, factor: Variable) -> Variable:
    return parameter + pt.log(factor)


SCALE_PLACES: dict[type, int] = {
    basic.CauchyRV: 1,
    basic.ExponentialRV: 0,
    basic.GammaRV: 1,
    basic.GumbelRV: 1,
    continuous.HalfCauchyRV: 0,
    basic.HalfNormalRV: 1,
    continuous.HalfStudentTRV: 1,
    basic.InvGammaRV: 1,
    basic.LaplaceRV: 1,
    basic.LogisticRV: 1,
    continuous.MoyalRV: 1,
    basic.NormalRV: 1,
    continuous.SkewNormalRV: 1,
    continuous.SkewStudentTRV: 3,
    basic.StudentTRV: 2,
    continuous.WeibullBetaRV: 1,
}
"""By law: which parameter stretches the density."""

SCALES: dict[type, dict[int, Change]] = {
    **{law: {place: mul} for law, place in SCALE_PLACES.items()},
    continuous.AsymmetricLaplaceRV: {0: truediv},
    continuous.ExGaussianRV: {1: mul, 2: mul},
    basic.LogNormalRV: {0: _plus_log},
    basic.MvNormalRV: {1: _times_square},
    multivariate.MvStudentTRV: {2: _times_square},
    continuous.RiceRV: {1: mul},
    continuous.WaldRV: {0: mul, 1: mul},
    multivariate.ZeroSumNormalRV: {0: mul},
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
    if isinstance(op, continuous.FlatRV | continuous.HalfFlatRV):
        raise ImproperPriorError(
            f"The prior of {name!r} is flat. It has no scale, and a model with it no evidence: "
            "give it a proper prior."
        )
    if type(op) in SCALES:
        return
    law, *known = (kind.__name__.removesuffix("RV") for kind in (type(op), *SCALES))
    reason = "its values are whole numbers" if is_discrete(rv) else f"its law is {law}"
    raise ModelError(
        f"The prior of {name!r} has no scale that could be multiplied: {reason}. Make the number "
        "that you want to change a pm.Data of the model, and give its values in data={...}. "
        f"Scales are known of {', '.join(sorted(known))}."
    )


def _no_prior(model: pm.Model, name: str) -> str:
    """Say why a variable has no prior of its own."""
    known = listed(rv.name for rv in model.free_RVs)
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


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model with a `pm.Data` for one number of its priors, or for its data.

    With another value in it the same compiled code is found.

    Attributes
    ----------
    model : pymc.Model
    container : str
        Name of the `pm.Data`.
    """

    model: pm.Model
    container: str


def scaled_model(model: pm.Model, name: str) -> OpenModel:
    """Copy a model, with a factor on the scale of the prior of one variable.

    Only the variable's own prior changes: with the factor c it is that of location +
    c (b - location), given the variables that it depends on. What depends on the variable stays.
    The factor is 1.

    Parameters
    ----------
    model : pymc.Model
        It stays as it is.
    name : str
        A free variable.

    Raises
    ------
    ImproperPriorError, ModelError
        There is no such prior, or it has no scale.
    """
    check_scale(model, name)
    return remembered(model, ("scaled", name), lambda: _scaled(model, name))


def _scaled(model: pm.Model, name: str) -> OpenModel:
    """Copy a model, with a number in it that the scale of a variable's prior is multiplied by."""
    copy = clone_model(without_initial_values(model))
    label = f"{name}_number"
    while label in copy.named_vars:
        label += "_"
    with copy:
        pm.Data(label, 1.0)
    graph, memo = fgraph_from_model(copy)
    [old, *_] = memo[copy[name]].owner.inputs
    graph.replace(old, _with_factor(old, memo[copy[label]]), import_missing=True)
    opened = model_from_fgraph(graph, mutate_fgraph=True)
    opened.check_bounds = model.check_bounds
    order_like(opened, model, first=(label,))
    return OpenModel(opened, label)


def _with_factor(rv: Variable, factor: Variable) -> Variable:
    """Return the random variable with the same generator and size, and scaled parameters."""
    node, op = rv.owner, rv.owner.op
    rng, size = node.inputs[:2]
    parameters = scaled_parameters(rv, factor)
    if hasattr(op, "rv_op"):  # a law that PyMC puts together
        return op.rv_op(*parameters, size=size, rng=rng)
    return op.make_node(rng, size, *parameters).outputs[1]
