"""Which model a call means, and whether it has an evidence at all."""

from collections.abc import Iterable

import pymc as pm
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.exceptions import ImproperPriorError, ModelError
from pymc_tempering.model.handle import CompiledModel

NO_EVIDENCE = "The evidence of a model with pm.Flat or pm.HalfFlat"


def find_model(model: pm.Model | CompiledModel | None) -> pm.Model:
    """Return the given model, that of the given handle, or the one on the context stack."""
    if isinstance(model, CompiledModel):
        return model.model
    try:
        return pm.modelcontext(model)
    except TypeError as error:
        raise ModelError("No model: call this inside `with model:`, or pass `model=`.") from error


def check_model(model: pm.Model) -> None:
    """Raise an error for models without an evidence.

    Raises
    ------
    ModelError
        The model has no free variables, no observed data or potentials, or has minibatches.
    """
    if not model.free_RVs:
        raise ModelError("The model has no free variables to sample.")
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "The model has no observed data and no potential: its posterior is its prior, and its "
            "log evidence is 0. Pass `observed=` to a variable, or add a pm.Potential."
        )
    small = [rv.name for rv in model.observed_RVs if _is_minibatch(model.rvs_to_values[rv])]
    if small:
        raise ModelError(
            f"{', '.join(map(repr, small))} is a minibatch. Its likelihood is a random estimate, "
            "so there is no posterior for a chain to sample, and no evidence. Observe all data "
            "here, or fit the minibatches by pmt.fit."
        )


def _is_minibatch(value: Variable) -> bool:
    """Whether an observed value is drawn again at each evaluation."""
    return any(isinstance(variable.type, RandomGeneratorType) for variable in graph_inputs([value]))


def improper_priors(rvs: Iterable[Variable]) -> list[str]:
    """Names of the variables with a prior that cannot be normalized (`pm.Flat`, `pm.HalfFlat`)."""
    return [rv.name for rv in rvs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]


def check_proper(rvs: Iterable[Variable], consequence: str = NO_EVIDENCE) -> None:
    """Raise an error for improper priors; `consequence` says what does not exist with them.

    Raises
    ------
    ImproperPriorError
    """
    improper = improper_priors(rvs)
    if improper:
        raise ImproperPriorError(
            f"Improper prior: {', '.join(improper)}. {consequence} does not exist; give these "
            "variables proper priors."
        )
