"""Graphs that PyTensor refuses: which terms of a model are at fault, in a sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import pymc as pm

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import ModelError, TemperingError
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.python_mode import compile_alone

REFUSALS = (TypeError, ValueError, NotImplementedError, AssertionError, IndexError)
"""Errors by which PyTensor refuses a graph, or its values."""


@contextmanager
def terms_named(model: pm.Model) -> Iterator[None]:
    """Name the terms of a model that are at fault where PyTensor refuses its graphs.

    Raises
    ------
    ModelError
        In the place of such an error, which is its cause.
    """
    try:
        yield
    except REFUSALS as error:
        names = [] if isinstance(error, TemperingError) else _at_fault(model)
        if not names:
            raise
        raise ModelError(
            f"The log density of {listed(names)} cannot be computed: "
            f"{type(error).__name__}: {error}. Do its arguments and data fit each other, also "
            "those that pm.set_data has set since?"
        ) from error


def _at_fault(model: pm.Model) -> list[str]:
    """Names of the terms that cannot be computed at the initial point."""
    point, names = model.initial_point(), []
    for term in [*model.basic_RVs, *model.potentials]:
        try:
            graphs = freeze_shared(model.logp(vars=[term], sum=False))
            compile_alone(model.value_vars, graphs)(*(point[v.name] for v in model.value_vars))
        except REFUSALS:
            names.append(str(term.name))
    return names
