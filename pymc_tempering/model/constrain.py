"""The variables of a posterior, of many unconstrained draws at once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor import In, Out
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import in2out
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.rewriting.basic import local_view_op
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time, with_data_apart
from pymc_tempering.model.layout import Layout, model_layout
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.origin import origin_of

BLOCK = 1000
"""Draws in one call of a compiled function, so that its intermediate arrays stay small."""
ELEMENTWISE = (Elemwise, DimShuffle, Join, MakeVector)
SELECTION = (Subtensor, AdvancedSubtensor)

Point = dict[str, np.ndarray]


def compile_constrain(
    model: pm.Model, layout: Layout, var_names: Sequence[str] | None = None
) -> Callable[[np.ndarray], Point]:
    """Compile what turns unconstrained draws into the variables that PyMC records.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
        Of this model.
    var_names : sequence of str, optional
        Unobserved variables of the model; by default all of them, and the value variables.

    Returns
    -------
    callable
        Of draws, shape (n, dim), it returns arrays of shape (n, ...) by name, in PyMC's order.
        The same bits come out however the draws are divided between calls. Where no variable
        is transformed or deterministic, nothing is compiled.
    """
    if (origin := origin_of(model)) is not None:
        whole = compile_constrain(origin.model, model_layout(origin.model), var_names)
        return lambda draws: whole(origin.whole(draws))
    key = ("constrain", None if var_names is None else tuple(var_names))
    return remembered(model, key, lambda: _constrain(model, layout, var_names))


def _constrain(
    model: pm.Model, layout: Layout, var_names: Sequence[str] | None
) -> Callable[[np.ndarray], Point]:
    """Compile it anew."""
    variables = model.unobserved_value_vars
    if var_names is not None:
        chosen = [v for v in model.unobserved_RVs if v.name in var_names]
        variables = model.replace_rvs_by_values(chosen)
    values = set(model.value_vars)
    derived = [v for v in variables if v not in values]
    names, evaluate = [v.name for v in derived], None
    if derived:  # `pm.Deterministic` puts an identity around its variable
        plain = rewrite_graph(derived, (), custom_rewrite=in2out(local_view_op), clone=True)
        together = _same_bits_together(plain, model.value_vars)
        evaluate = compile_over_draws(model, model.value_vars, plain, together=together)

    def constrain(draws: np.ndarray) -> Point:
        if len(draws) == 0:  # shapes are known by evaluation alone
            return {k: v[:0] for k, v in constrain(np.zeros((1, layout.dim))).items()}
        point = layout.unravel(draws)
        rows = evaluate(list(point.values())) if evaluate else []
        found = dict(zip(names, rows, strict=True))
        return {v.name: point[v.name] if v in values else found[v.name] for v in variables}

    return constrain


def compile_over_draws(
    model: pm.Model,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    given: Sequence[Variable] = (),
    *,
    together: bool = True,
    mode: Any = None,
) -> Callable[..., list[np.ndarray]]:
    """Compile graphs as a function of many values of their inputs.

    Parameters
    ----------
    model : pymc.Model
    inputs, outputs : sequence of Variable
    given : sequence of Variable, optional
        Further inputs, with one value for all draws.
    together : bool, default True
        Whether many draws are evaluated at once, or one after the other, as values of `pymc.dims`
        are in any case.
    mode : optional
        Of PyTensor.

    Returns
    -------
    callable
        ``evaluate(columns, *values)``: of a column for each input, (n, ...), and values of `given`
        it returns the outputs, (n, ...).
    """
    taken, results = list(inputs), list(outputs)
    together = together and all(isinstance(v.type, TensorType) for v in inputs)
    if together:
        batched = {v: v.type.clone(shape=(None, *v.type.shape))(v.name) for v in inputs}
        taken, results = list(batched.values()), vectorize_graph(results, batched)
    with model:  # so that PyMC honors model.check_bounds
        function = compile_exactly(
            [*(In(v, borrow=True) for v in taken), *given],
            [Out(v, borrow=True) for v in with_data_apart(results)],
            on_unused_input="ignore",
            trust_input=True,
            mode=mode,
        )
    by_draw = [new.ndim > old.ndim for new, old in zip(results, outputs, strict=True)]

    @one_thread_at_a_time
    def evaluate(columns: Sequence[np.ndarray], *values: np.ndarray) -> list[np.ndarray]:
        n = len(columns[0]) if columns else 1
        found: list[np.ndarray] = []
        for at in _places(n, together):
            rows = function(*(column[at] for column in columns), *values)
            found = found or [
                np.empty((n, *(row.shape[1:] if has_draws else row.shape)), row.dtype)
                for row, has_draws in zip(rows, by_draw, strict=True)
            ]
            for array, row in zip(found, rows, strict=True):
                array[at] = row
        return found

    return evaluate


def _places(n: int, together: bool) -> Iterator[Any]:
    """Where the draws of each call lie; one alone is picked so that a scalar stays an array."""
    if together:
        return (slice(i, i + BLOCK) for i in range(0, n, BLOCK))
    return ((i, ...) for i in range(n))


def _same_bits_together(outputs: list[Variable], inputs: list[Variable]) -> bool:
    """Whether many draws evaluated at once give the same bits as one by one.

    They do where numbers are only picked and each is computed from those at its own place. In
    sums and products of matrices the order of summation would depend on the batch, and random
    numbers would be shared by its draws.
    """
    if not all(isinstance(v.type, TensorType) for v in (*inputs, *outputs)):
        return False
    of_draw = set(inputs)
    for node in io_toposort([], outputs):
        if any(isinstance(v.type, RandomGeneratorType) for v in node.inputs):
            return False
        used = [i for i, v in enumerate(node.inputs) if v in of_draw]
        selects = isinstance(node.op, SELECTION) and used == [0]
        if used and not selects and not isinstance(node.op, ELEMENTWISE):
            return False
        if used:
            of_draw.update(node.outputs)
    return True
