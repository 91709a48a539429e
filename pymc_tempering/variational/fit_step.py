"""The tempered objective as an operator of ``pm.variational``, and its step, compiled once."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType, MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import (
    collect_default_updates,
    reseed_rngs,
    resolve_backend_compile_kwargs,
)
from pymc.variational.opvi import Approximation, ObjectiveFunction, Operator
from pytensor.compile.executor import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_tempering.model.disk_cache import forgetting_damage
from pymc_tempering.model.exactly import compile_alone
from pymc_tempering.model.fingerprint import LIBRARIES, SIMPLE, digest
from pymc_tempering.model.function_copies import changed_by, copied, fresh, is_copied_at_once
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.numba_mode import compile_exactly
from pymc_tempering.model.python_mode import python_mode


@dataclass(frozen=True)
class Likelihood:
    """The tempered likelihood term of an objective, and how its temperatures are set.

    Attributes
    ----------
    tempered : Variable
        E_q of the tempered log-likelihood, its normalizers subtracted where they depend on the
        parameters (nats).
    energies : Variable or None
        What the update of q(y) needs.
    weights : SharedVariable
        Holds an inverse temperature, or weights of temperatures.
    updates : dict
        Shared variables that the compiled step updates itself.
    log_q : dict of SharedVariable
        log q(y_i) of each datum, by observed variable, where the step updates it.
    mean_q : SharedVariable, optional
        q(T) averaged over data, shape (M,), likewise.
    """

    tempered: Variable
    energies: Variable | None
    weights: SharedVariable
    updates: dict[SharedVariable, Variable] = field(default_factory=dict)
    log_q: dict[str, SharedVariable] = field(default_factory=dict)
    mean_q: SharedVariable | None = None


@dataclass(frozen=True, eq=False)
class FitStep:
    """One compiled iteration of a fit.

    Attributes
    ----------
    function : callable
        () to loss, untempered ELBO (nats), and energies if any.
    moving : tuple of SharedVariable
        What it changes: parameters, the optimizer's sums, temperatures, generators.
    generators : tuple of SharedVariable
        Those of them that draw, in the order in which they are seeded.
    weights, log_q, mean_q
        Of its :class:`Likelihood`.
    """

    function: Function
    moving: tuple[SharedVariable, ...]
    generators: tuple[SharedVariable, ...]
    weights: SharedVariable
    log_q: dict[str, SharedVariable]
    mean_q: SharedVariable | None

    def __call__(self) -> list[np.ndarray]:
        """Do it."""
        found: list[np.ndarray] = forgetting_damage(self.function)
        return found

    def set_weights(self, weights: Any) -> None:
        """Set an inverse temperature, or weights of temperatures."""
        self.weights.set_value(np.asarray(weights, dtype=self.weights.dtype), borrow=True)


class TemperedObjective(ObjectiveFunction):
    """PyMC's objective, with further outputs at the same draws as the loss."""

    extra_outputs: Sequence[Variable] = ()
    updated: Mapping[SharedVariable, Variable] = MappingProxyType({})

    def __call__(self, nmc: int | None, **kwargs: Any) -> Variable:
        """Put the same draws from q into the loss and into ``extra_outputs``."""
        op, approx = self.op, self.op.approx
        likelihood = op.likelihood
        elbo = approx.varlogp + approx.datalogp - approx.logq
        updated = list(likelihood.updates.values())
        energies = [] if likelihood.energies is None else [likelihood.energies]
        nodes = [op.apply(self.tf), elbo, *energies, *updated]
        drawn = approx.set_size_and_deterministic(nodes, nmc, 0, kwargs.get("more_replacements"))
        n = 2 + len(energies)
        self.extra_outputs = drawn[1:n]
        self.updated = dict(zip(likelihood.updates, drawn[n:], strict=True))
        return drawn[0]


class TemperedKL(Operator):
    """log q - log prior - tempered log-likelihood, normalized as PyMC's ``KL`` is.

    At T = 1 this is ``pm.operators.KL``. Equations (4) and (5) of Mandt et al. (2016), without the
    terms that depend on q(y) alone.
    """

    objective_class = TemperedObjective

    def __init__(self, approx: Approximation, likelihood: Likelihood) -> None:
        super().__init__(approx)
        self.likelihood = likelihood

    def apply(self, f: Any) -> Variable:
        """Symbolic loss, in PyMC's scaling: divided by total size over minibatch size."""
        scale = self.approx.symbolic_normalizing_constant
        return -self.likelihood.tempered / scale + (self.logq_norm - self.varlogp_norm)


def compile_step(
    approx: Approximation,
    likelihood: Likelihood,
    *,
    obj_n_mc: int,
    obj_optimizer: Callable[..., Any],
    total_grad_norm_constraint: float | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
) -> FitStep:
    """Compile one function that steps: () -> [loss, untempered ELBO (nats), energies if any].

    Temperatures are shared variables, so that no stage of a fit compiles again.
    """
    objective = TemperedKL(approx, likelihood)()
    updates = objective.updates(
        obj_n_mc=obj_n_mc,
        obj_optimizer=obj_optimizer,
        total_grad_norm_constraint=total_grad_norm_constraint,
    )
    loss = updates.loss
    updates.update(objective.updated)
    options = resolve_backend_compile_kwargs(backend, compile_kwargs)
    with approx.model:  # so that PyMC honors model.check_bounds
        step = compile_exactly([], [loss, *objective.extra_outputs], updates=updates, **options)
    # PyMC's own step returns the loss alone. Seed the generators in the order in which it finds
    # them, so that the same seed gives the same draws as pm.fit.
    generators = list(collect_default_updates([loss]))
    seed_generators(approx, generators)
    return FitStep(
        function=step,
        moving=(*updates, *generators),
        generators=tuple(generators),
        weights=likelihood.weights,
        log_q=likelihood.log_q,
        mean_q=likelihood.mean_q,
    )


def seed_generators(approx: Approximation, generators: Sequence[SharedVariable]) -> None:
    """Seed the generators of a step as ``pm.fit`` does."""
    reseed_rngs(generators, approx.rng.randint(2**30, dtype=np.int64))


def global_likelihood(approx: Approximation) -> Likelihood:
    """E[1/T] times the log-likelihood: annealed VI, and VT with normalizers C(T).

    The energy is the log-likelihood itself, at full scale (nats).
    """
    shared = pytensor.shared(np.asarray(1.0, dtype=pytensor.config.floatX), "inverse_temperature")
    return Likelihood(shared * approx.datalogp, approx.datalogp, shared)


def batches_per_pass(model: pm.Model) -> float:
    """Total size over minibatch size, the largest of all terms; 1 without minibatches."""

    def find() -> float:
        scale = pm.MeanField(model=model).symbolic_normalizing_constant
        return float(compile_alone([], scale, mode=python_mode())())

    return remembered(model, "batches per pass", find)


FAMILIES: dict[str, Callable[..., Approximation]] = {
    "meanfield": pm.MeanField,
    "fullrank": pm.FullRank,
}
"""Variational families by name."""


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
