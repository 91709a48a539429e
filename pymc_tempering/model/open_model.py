"""Copies of a model in which one number of a prior can be set without compiling anew."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pymc.model.fgraph import clone_model, fgraph_from_model, model_from_fgraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_tempering.model.memory import remembered
from pymc_tempering.model.new_data import order_like, without_initial_values
from pymc_tempering.model.open_number import OpenNumber, pair_of
from pymc_tempering.model.prior_scales import check_scale, scaled_parameters


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model with a `pm.Data` for one number of its priors.

    Attributes
    ----------
    model : pymc.Model
    container : str
        Name of the `pm.Data`.
    paired : bool
        Whether it holds a number twice, for which see `pymc_tempering.model.open_number`.
    """

    model: pm.Model
    container: str
    paired: bool

    def held(self, values: np.ndarray) -> np.ndarray:
        """Return what the `pm.Data` holds for a value, or for several, (n, ...)."""
        return pair_of(values) if self.paired else values


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

    return remembered(model, ("scaled", name), lambda: _opened(model, name, 1.0, _with_factor))


def open_model(model: pm.Model, name: str) -> OpenModel:
    """Copy a model whose `pm.Data` of that name is a single real number, so that it can be set.

    A model whose `pm.Data` is an array, or whole, is returned as it is.

    Parameters
    ----------
    model : pymc.Model
    name : str
        A `pm.Data`.
    """
    container = model[name]
    assert isinstance(container, SharedVariable)
    now = np.asarray(container.get_value())
    if now.ndim or now.dtype.kind != "f":
        return OpenModel(model, name, paired=False)

    def number_for(old: Variable, number: Variable) -> Variable:
        return number.astype(old.type.dtype)

    return remembered(model, ("open", name), lambda: _opened(model, name, float(now), number_for))


def _opened(
    model: pm.Model,
    name: str,
    value: float,
    replacement: Callable[[Variable, Variable], Variable],
) -> OpenModel:
    """Copy a model, with a number in it that can be set.

    ``replacement`` returns what takes the place of the variable of that name, given the variable
    and the number.
    """
    copy = clone_model(without_initial_values(model))
    label = f"{name}_number"
    while label in copy.named_vars:
        label += "_"
    with copy:
        pm.Data(label, pair_of(value))
    graph, memo = fgraph_from_model(copy)
    [old, *_] = memo[copy[name]].owner.inputs
    new = replacement(old, OpenNumber()(memo[copy[label]]))
    if isinstance(old, SharedVariable):  # a pm.Data, which nothing depends on any more
        graph.remove_output(graph.outputs.index(memo[copy[name]]))
    graph.replace(old, new, import_missing=True)
    opened = model_from_fgraph(graph, mutate_fgraph=True)
    opened.check_bounds = model.check_bounds
    order_like(opened, model, first=(label,))
    return OpenModel(opened, label, paired=True)


def _with_factor(rv: Variable, factor: Variable) -> Variable:
    """Return the random variable with the same generator and size, and scaled parameters."""
    node, op = rv.owner, rv.owner.op
    rng, size = node.inputs[:2]
    parameters = scaled_parameters(rv, factor)
    if hasattr(op, "rv_op"):  # a law that PyMC puts together
        scaled: Variable = op.rv_op(*parameters, size=size, rng=rng)
        return scaled
    return op.make_node(rng, size, *parameters).outputs[1]
