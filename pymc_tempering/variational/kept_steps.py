"""Compiled steps of fits, kept with their model: a further fit of it compiles nothing."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
from pymc.variational.opvi import Approximation
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.model.function_copies import changed_by, copied, fresh, is_copied_at_once
from pymc_tempering.model.memory import LIBRARIES, SIMPLE, digest, remembered
from pymc_tempering.variational.objective import FitStep, seed_generators

KEPT = 8
"""Steps that are kept of a model, the latest ones."""

LARGEST = 2**26
"""Bytes of what a step changes, above which it is not kept: as long as the model lives."""


class _NoKeyError(Exception):
    """Two values of a kind cannot be told to act alike."""


@dataclass(frozen=True, eq=False)
class _KeptStep:
    """A step as it was compiled for the first fit that needed it.

    Attributes
    ----------
    step : FitStep
    params : dict of SharedVariable
        Parameters of that fit, by name.
    first : dict
        What its shared variables held before the first iteration.
    """

    step: FitStep
    params: dict[str, SharedVariable]
    first: dict[SharedVariable, Any]


def step_of(
    approx: Approximation,
    compiles: Callable[[Approximation], FitStep],
    depends_on: dict[str, Any],
) -> FitStep:
    """Return the step of a fit that is about to begin.

    Parameters
    ----------
    approx : Approximation
        As it is before the first iteration.
    compiles : callable
        Compiles the step of an approximation.
    depends_on : dict
        All that the step depends on beside the model. Where this holds something that could act
        otherwise the next time, as a function of the user can, the step is not kept.
    """
    try:
        key = _key_of(depends_on)
    except _NoKeyError:
        return compiles(approx)
    kept: dict[Hashable, _KeptStep] = remembered(approx.model, "fit steps", dict)
    found = kept.pop(key, None)
    if found is not None:
        kept[key] = found  # the latest one now
        return _step_for(approx, found)
    step = compiles(approx)
    if (made := _kept(step, approx)) is not None:
        kept[key] = made
        for oldest in list(kept)[:-KEPT]:
            del kept[oldest]
    return step


def _kept(step: FitStep, approx: Approximation) -> _KeptStep | None:
    """Return what to keep of a step that has not run yet; None if it cannot or must not be kept."""
    variables = [*step.moving, step.weights]
    known = is_copied_at_once(step.function) and set(changed_by(step.function)) <= set(variables)
    held = sum(getattr(v.get_value(borrow=True), "nbytes", 0) for v in step.moving)
    if not known or held > LARGEST:
        return None
    first = {variable: variable.get_value() for variable in variables}
    return _KeptStep(step, dict(approx.groups[0].shared_params), first)


def _step_for(approx: Approximation, kept: _KeptStep) -> FitStep:
    """Copy a step for another approximation, its generators seeded as by a compilation."""
    step, params = kept.step, approx.groups[0].shared_params
    swap = {variable: fresh(variable, value) for variable, value in kept.first.items()}
    swap |= {variable: params[name] for name, variable in kept.params.items()}
    generators = tuple(swap[generator] for generator in step.generators)
    seed_generators(approx, generators)
    return FitStep(
        function=copied(step.function, swap),
        moving=tuple(swap[variable] for variable in step.moving),
        generators=generators,
        weights=swap[step.weights],
        log_q={name: swap[variable] for name, variable in step.log_q.items()},
        mean_q=None if step.mean_q is None else swap[step.mean_q],
    )


def _key_of(value: Any) -> Hashable:
    """Return what is equal for values that act alike.

    Raises
    ------
    _NoKeyError
        The value could act otherwise the next time.
    """
    if value is None or isinstance(value, SIMPLE):
        return type(value).__name__, repr(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return digest(value)
    if isinstance(value, partial):
        return "partial", *map(_key_of, (value.func, value.args, value.keywords))
    if isinstance(value, dict):
        return "dict", *((name, _key_of(value[name])) for name in sorted(value))
    if isinstance(value, list | tuple):
        return type(value).__name__, *map(_key_of, value)
    if isinstance(value, FunctionType) and value.__closure__ is None and _is_known(value):
        return value
    raise _NoKeyError


def _is_known(function: FunctionType) -> bool:
    """Whether a function is one of PyMC's or ours, which do not change."""
    return function.__module__.split(".")[0] in (*LIBRARIES, __name__.split(".")[0])
