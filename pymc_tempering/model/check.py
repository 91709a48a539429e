"""Which model a call means, and whether it has an evidence at all."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.simulator import SimulatorRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import complex_dtypes, discrete_dtypes

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import ImproperPriorError, ModelError
from pymc_tempering.model.car import is_car, is_icar, known_car
from pymc_tempering.model.handle import CompiledModel

NO_EVIDENCE = "The evidence of a model with pm.Flat or pm.HalfFlat"


NO_DRAWS = (
    "a model alone has no draws yet: idata = pymc_tempering.sample(model=model) makes a run to "
    "pass here, and pymc_tempering.smc(model) estimates log Z without one"
)
"""What to do with a model that is passed in the place of draws."""


def is_model(thing: Any) -> bool:
    """Whether something is a model of PyMC, be it frozen (which is no ``pymc.Model``)."""
    return isinstance(thing, pm.Model) or hasattr(thing, "rvs_to_values")


def model_inside(thing: Any) -> pm.Model | None:
    """Return the model of PyMC inside one of Bambi; None if there is none."""
    inner = getattr(getattr(thing, "backend", None), "model", None)  # as Bambi keeps it
    return inner if is_model(inner) else None


def find_model(model: Any) -> pm.Model:
    """Return the given model, that inside a handle or a Bambi model, or the one on the stack.

    Raises
    ------
    ModelError
        There is none, or what was given is no model of PyMC.
    """
    if isinstance(model, CompiledModel):
        return model.model
    if model is None:
        try:
            return pm.modelcontext(None)
        except TypeError as error:
            raise ModelError(
                "No model: call this inside `with model:`, or pass `model=`."
            ) from error
    for found in (model, model_inside(model)):
        if is_model(found):
            return found
    if callable(getattr(model, "build", None)):
        raise ModelError(
            f"The {type(model).__name__} holds no PyMC model yet: call its build() first."
        )
    raise ModelError(
        f"model must be a pymc.Model, a handle of pymc_tempering.compile, or a built Bambi model, "
        f"not {type(model).__name__}."
    )


def find_model_if_any(model: Any) -> pm.Model | None:
    """Do as :func:`find_model`, but return None where none is given and none is on the stack."""
    try:
        return find_model(model)
    except ModelError:
        if model is None:
            return None
        raise


def check_model(model: pm.Model) -> None:
    """Raise an error for models without an evidence.

    Raises
    ------
    ModelError
        The model has no free variables, no observed data or potentials, or has minibatches,
        simulators, wrong densities or complex potentials.
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
            f"{listed(small)} is a minibatch. Its likelihood is a random estimate, "
            "so there is no posterior for a chain to sample, and no evidence. Observe all data "
            "here, or fit the minibatches by pmt.fit."
        )
    simulated = [rv.name for rv in model.observed_RVs if isinstance(rv.owner.op, SimulatorRV)]
    if simulated:
        raise ModelError(
            f"{listed(simulated)} is a pm.Simulator: it has draws and no density, "
            "and a chain needs the density. pm.sample_smc samples such models."
        )
    unreal = [term.name for term in model.potentials if term.type.dtype in complex_dtypes]
    if unreal:
        raise ModelError(
            f"The potential {listed(unreal)} is complex, and a log density is a real number. Give "
            "pm.Potential its real part, pt.real(...), if that is what is meant."
        )
    check_densities(model)


def check_densities(model: pm.Model) -> None:
    """Raise an error for variables whose log density is not that of their prior.

    Those of pymc-bart have zero for none. PyMC before 6.4 states a wrong one for LKJ priors, and no
    release has the constant of `pm.ICAR`, which is known for one vector whose places are joined.

    Raises
    ------
    ModelError
    """
    trees = [rv.name for rv in model.free_RVs if _is_of(rv, "BARTRV")]
    if trees:
        raise ModelError(
            f"{listed(trees)} is a sum of trees of pymc-bart: its prior has draws and no density, "
            "and a chain and an evidence need the density. pm.sample draws from the posterior of "
            "such models."
        )
    wrong = [rv.name for rv in model.free_RVs if _is_of(rv, "LKJCorrRV", "_LKJCholeskyCovRV")]
    if wrong and tuple(map(int, pm.__version__.split(".")[:2])) < (6, 4):
        raise ModelError(
            f"{listed(wrong)} has an LKJ prior, and PyMC {pm.__version__} computes its density "
            "wrongly, which would make the evidence wrong: install PyMC 6.4 or later."
        )
    for rv in model.free_RVs:
        if is_car(rv) and model.rvs_to_transforms[rv] is not None:
            raise ModelError(
                f"{rv.name!r} is a conditional autoregression with a transform, whose constant is "
                "not known: leave out transform=."
            )
    apart = [rv.name for rv in model.basic_RVs if is_icar(rv) and known_car(rv) is None]
    if apart:
        raise ModelError(
            f"{listed(apart)} is a pm.ICAR whose density has no known constant: it holds several "
            "vectors, a place without neighbors, or places that no chain of neighbors joins. Give "
            "each set of places that hang together a pm.ICAR of its own, with shape (n,)."
        )
    _check_bounds_of_counts(model)


def _check_bounds_of_counts(model: pm.Model) -> None:
    """Raise an error for whole numbers that end between two of them, where PyMC's density is wrong.

    With a lower bound of .5 `pm.Truncated` divides by P(n > -.5), and leaves 0 out. With an upper
    bound of 2.5 `pm.Censored` adds to P(n > 2.5) the value of the formula of P(n) at 2.5.
    """
    for rv in model.basic_RVs:
        if isinstance(rv.owner.op, TruncatedRV) and rv.dtype in discrete_dtypes:
            kind, side, bound = "Truncated", "lower", rv.owner.inputs[-2]
        elif isinstance(rv.owner.op, CensoredRV) and rv.owner.inputs[0].dtype in discrete_dtypes:
            kind, side, bound = "Censored", "upper", rv.owner.inputs[-1]
        else:
            continue
        value = np.asarray(bound.data if isinstance(bound, Constant) else np.inf)
        if np.any(np.isfinite(value) & (value != np.floor(value))):
            raise ModelError(
                f"{rv.name!r} is a pm.{kind} of whole numbers with {side}={np.ravel(value)[0]:g}, "
                "for which PyMC's density does not sum to one: give it a whole number."
            )


def _is_of(rv: Variable, *kinds: str) -> bool:
    """Whether a random variable is of one of some classes, by their names."""
    return any(kind.__name__ in kinds for kind in type(rv.owner.op).__mro__)


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
