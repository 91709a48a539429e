"""How the log density of a model changes with one of its data containers, at given draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_tempering.arguments import listed
from pymc_tempering.borrowed.private import default_transform
from pymc_tempering.exceptions import DataMismatchError, ModelError
from pymc_tempering.model.constrain import Point, compile_over_draws
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.layout import is_discrete, unconstrained_shapes
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import log_orderings_of
from pymc_tempering.model.python_mode import python_mode


@dataclass(frozen=True, eq=False)
class DensityChange:
    """The terms of a model's log density that a data container is part of.

    Attributes
    ----------
    container : str
        Name of the `pm.Data`.
    terms : tuple of str
        Variables and potentials whose log density it is part of.
    needs : tuple of str
        Free variables that these terms are evaluated at.
    moves_support : tuple of str
        Variables whose range depends on it. Draws under one value say nothing of what another
        value lets in.
    evaluate : callable
        ``evaluate(point, value)``: sum of the terms, shape (n,), of unconstrained values by name
        of the value variable, each (n, ...), and a value of the container (nats). The volume of
        the transforms is left out, since it is the same for all values. Minus infinity where the
        value is outside of its range.
    """

    container: str
    terms: tuple[str, ...]
    needs: tuple[str, ...]
    moves_support: tuple[str, ...]
    evaluate: Callable[[Point, np.ndarray], np.ndarray]


def density_change(model: pm.Model, container: str) -> DensityChange:
    """Find and compile the terms of a model's log density that a data container is part of.

    Parameters
    ----------
    model : pymc.Model
    container : str
        Name of a `pm.Data`.

    Raises
    ------
    DataMismatchError
        The model has no such `pm.Data`.
    ModelError
        Nothing in the model's density depends on it.
    """
    return remembered(model, ("change", container), lambda: _density_change(model, container))


def _density_change(model: pm.Model, container: str) -> DensityChange:
    known = {variable.name: variable for variable in model.data_vars}
    if container not in known:
        raise DataMismatchError(
            f"The model has no pm.Data named {container!r}; it has {listed(known) or 'none'}."
        )
    data = known[container]
    rvs = [rv for rv in model.basic_RVs if _depends(rv.owner.inputs, data, model)]
    observed = [rv for rv in model.observed_RVs if data in ancestors([model.rvs_to_values[rv]])]
    potentials = [p for p in model.potentials if _depends([p], data, model)]
    if observed:
        raise ModelError(
            f"{container!r} holds the observed values of {observed[0].name!r}. Evidence of other "
            "data cannot be compared; name a pm.Data that the prior depends on."
        )
    if not rvs and not potentials:
        raise ModelError(f"Nothing in the density of the model depends on {container!r}.")
    others = [rv.name for rv in model.free_RVs if rv not in rvs]
    orders = log_orderings_of(model, unconstrained_shapes(model), others, live=data)
    density = model.logp(vars=[*rvs, *potentials], jacobian=False, sum=True)
    [total] = freeze_shared([(density + orders).astype("float64")], but=data)
    inputs = [value for value in model.value_vars if value in ancestors([total])]
    of_value = {v: rv.name for rv, v in model.rvs_to_values.items()}
    return DensityChange(
        container,
        tuple(variable.name for variable in [*rvs, *potentials]),
        tuple(of_value[value] for value in inputs),
        tuple(rv.name for rv in rvs if _moves_support(model, rv, data)),
        _compile(model, total, inputs, data),
    )


def _depends(graphs: Sequence[Variable], data: Variable, model: pm.Model) -> bool:
    """Whether graphs depend on the data other than through random variables of the model."""
    return data in ancestors(graphs, blockers=set(model.basic_RVs))


def _moves_support(model: pm.Model, rv: Variable, data: Variable) -> bool:
    """Whether the range of a variable depends on the data.

    Its transform, and that of its law, map the range of a continuous variable to the line. The
    ranges of discrete ones are not known: theirs count as dependent unless they are observed.
    """
    if is_discrete(rv):
        return rv in model.free_RVs
    transforms = {default_transform(rv.owner.op, rv), model.rvs_to_transforms[rv]} - {None}
    mapped = [transform.forward(rv.type(), *rv.owner.inputs) for transform in transforms]
    return _depends(mapped, data, model)


def _compile(
    model: pm.Model, total: Variable, inputs: list[Variable], data: Variable
) -> Callable[[Point, np.ndarray], np.ndarray]:
    """Compile a term for many values of its inputs at once."""
    value = data.type(name=data.name)
    [total] = graph_replace([total], {data: value}, strict=False)
    over_draws = compile_over_draws(model, inputs, [total], [value], mode=python_mode())

    def evaluate(point: Point, new: np.ndarray) -> np.ndarray:
        columns = [point[v.name] for v in inputs]
        return over_draws(columns, np.asarray(new, dtype=value.type.dtype))[0]

    return evaluate
