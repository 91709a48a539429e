"""The tempered objective as an operator of ``pm.variational``, and its step, compiled once.

The likelihood term alone is tempered, the prior and the entropy of q never (Section 2.2 of Mandt et
al. 2016). The step is a function of values: parameters and the optimizer's state in, new ones out.
So all fits of a model can share it, and a further one compiles nothing.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from threading import RLock
from types import MappingProxyType
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
from pytensor.graph.replace import clone_replace

from pymc_tempering.model.exactly import compile_alone, compile_exactly, with_data_apart
from pymc_tempering.model.memory import LIBRARIES, remembered
from pymc_tempering.model.python_mode import python_mode

KEPT = 8
"""Steps that are kept of a model, the latest ones."""

LARGEST = 2**26
"""Bytes of what a step changes, above which it is not kept: as long as the model lives."""

KNOWN = (*LIBRARIES, "pymc_tempering", "numpy", "functools", "builtins")
"""Packages whose functions and classes do not change while a process runs."""

type Values = tuple[np.ndarray, ...]
"""What a step changes: parameters of the approximation, sums of the optimizer, temperatures."""


@dataclass(frozen=True)
class Likelihood:
    """The tempered likelihood term of an objective, and how its temperatures are set.

    Attributes
    ----------
    tempered : Variable
        E_q of the tempered log-likelihood, its normalizers subtracted where they depend on the
        parameters (nats).
    energies : Variable
        What the update of q(y) needs.
    weights : SharedVariable
        Holds an inverse temperature, or weights of temperatures.
    log_q : dict of SharedVariable
        log q(y_i) of each datum, by observed variable, where the step updates it.
    updates : dict
        New values of ``log_q``, by the shared variables in it.
    """

    tempered: Variable
    energies: Variable
    weights: SharedVariable
    log_q: dict[str, SharedVariable] = field(default_factory=dict)
    updates: dict[SharedVariable, Variable] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FitStep:
    """One iteration of a fit, compiled as a function of values.

    Attributes
    ----------
    function : Function
        (weights, *values) to loss, untempered ELBO (nats), energies, and the next values.
    params : tuple of str
        Names of the first values, the parameters of the approximation.
    first : tuple of ndarray
        Values before the first iteration, those of the approximation that it was compiled for.
    log_q : dict of int
        Place of log q(y_i) among the values, by observed variable.
    generators : tuple of SharedVariable
        What draws; a call leaves its generators in them.
    dtype : str
        Of the weights.
    lock : RLock
        Held by a call, since a function of PyTensor's keeps what it computes with in itself.
    """

    function: Function
    params: tuple[str, ...]
    first: Values
    log_q: dict[str, int]
    generators: tuple[SharedVariable, ...]
    dtype: str
    lock: Any = field(default_factory=RLock)

    def __call__(
        self, weights: np.ndarray, values: Values, generators: Sequence[np.random.Generator]
    ) -> tuple[Sequence[np.ndarray], Values, Sequence[np.random.Generator]]:
        """Return loss, ELBO and energies; the next values; and the generators to go on with."""
        with self.lock:
            for shared, generator in zip(self.generators, generators, strict=True):
                shared.set_value(generator, borrow=True)
            found = self.function(weights, *values)
            after = [shared.get_value(borrow=True) for shared in self.generators]
        return found[:3], tuple(found[3:]), after

    def start(self, approx: Approximation) -> tuple[Values, Sequence[np.random.Generator]]:
        """First values for an approximation, and generators, seeded as ``pm.fit`` does it."""
        own = approx.groups[0].shared_params
        params = tuple(np.array(own[name].get_value()) for name in self.params)
        fresh = [pytensor.shared(np.random.default_rng(0)) for _ in self.generators]
        reseed_rngs(fresh, approx.rng.randint(2**30, dtype=np.int64))
        generators = [shared.get_value(borrow=True) for shared in fresh]
        return (*params, *self.first[len(params) :]), generators


class TemperedObjective(ObjectiveFunction):
    """PyMC's objective, with further outputs at the same draws as the loss."""

    told: Sequence[Variable] = ()
    updated: Mapping[SharedVariable, Variable] = MappingProxyType({})

    def __call__(self, nmc: int | None, **kwargs: Any) -> Variable:
        """Put the same draws from q into the loss, the ELBO and what the likelihood needs."""
        op, approx = self.op, self.op.approx
        likelihood = op.likelihood
        elbo = approx.varlogp + approx.datalogp - approx.logq
        nodes = [op.apply(self.tf), elbo, likelihood.energies, *likelihood.updates.values()]
        drawn = approx.set_size_and_deterministic(nodes, nmc, 0, kwargs.get("more_replacements"))
        self.told = drawn[:3]
        self.updated = dict(zip(likelihood.updates, drawn[3:], strict=True))
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
    """Compile the step of an approximation.

    Temperatures are arguments, so that no stage of a fit compiles again.
    """
    objective = TemperedKL(approx, likelihood)()
    updates = objective.updates(
        obj_n_mc=obj_n_mc,
        obj_optimizer=obj_optimizer,
        total_grad_norm_constraint=total_grad_norm_constraint,
    )
    updates.update(objective.updated)
    params = approx.groups[0].shared_params
    changed = [*params.values(), *(v for v in updates if v not in set(params.values()))]
    weights, *inputs = (shared.type() for shared in [likelihood.weights, *changed])
    outputs = clone_replace(
        [updates.loss, *objective.told[1:], *(updates.get(v, v) for v in changed)],
        dict(zip([likelihood.weights, *changed], [weights, *inputs], strict=True)),
    )
    options = resolve_backend_compile_kwargs(backend, compile_kwargs)
    with approx.model:  # so that PyMC honors model.check_bounds
        function = compile_exactly([weights, *inputs], with_data_apart(outputs), **options)
    function.trust_input = True  # values come from it, or from shared variables
    return FitStep(
        function=function,
        params=tuple(params),
        first=tuple(np.array(shared.get_value()) for shared in changed),
        log_q={name: changed.index(shared) for name, shared in likelihood.log_q.items()},
        # PyMC's own step returns the loss alone. Generators in the order in which it finds them
        # get the same draws from a seed as in pm.fit.
        generators=tuple(collect_default_updates([updates.loss])),
        dtype=likelihood.weights.dtype,
    )


def step_of(
    approx: Approximation,
    compiles: Callable[[Approximation], FitStep],
    depends_on: dict[str, Any],
) -> FitStep:
    """Return the step of a fit that is about to begin, compiled if no fit of its model had it yet.

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
    key = BytesIO()
    try:
        _KeyPickler(key).dump(depends_on)
    except (pickle.PicklingError, AttributeError, TypeError):
        return compiles(approx)
    kept: dict[bytes, FitStep] = remembered(approx.model, "fit steps", dict)
    step = kept.pop(key.getvalue(), None) or compiles(approx)
    if sum(value.nbytes for value in step.first) <= LARGEST:
        kept[key.getvalue()] = step  # the latest one now
        for oldest in list(kept)[:-KEPT]:
            del kept[oldest]
    return step


class _KeyPickler(pickle.Pickler):
    """Bytes that are equal for values that act alike; it refuses what may change."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.fast = True  # without references to what came before, which could be the same or equal

    def reducer_override(self, thing: Any) -> Any:
        """Refuse what was written by the user."""
        home = getattr(thing, "__module__", None) or type(thing).__module__
        if str(home).split(".")[0] not in KNOWN:
            raise pickle.PicklingError(f"{thing!r} may act otherwise the next time")
        return NotImplemented


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
