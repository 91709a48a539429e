"""Copies of a model in which the scale of a prior can be set without compiling anew."""

from dataclasses import dataclass

import pymc as pm
from pymc.model.fgraph import clone_model, fgraph_from_model, model_from_fgraph
from pytensor.graph.basic import Variable

from pymc_tempering.model.memory import remembered
from pymc_tempering.model.new_data import order_like, without_initial_values
from pymc_tempering.model.prior_scales import check_scale, scaled_parameters


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
        scaled: Variable = op.rv_op(*parameters, size=size, rng=rng)
        return scaled
    return op.make_node(rng, size, *parameters).outputs[1]
