"""The tempered objective as an operator of ``pm.variational``, and its step, compiled once.

The likelihood term alone is tempered, the prior and the entropy of q never (Section 2.2 of Mandt et
al. 2016). Where it is normalized at each theta it is p(x_i | theta)^(1/T) / c_i(theta, T), with the
log c_i of ``log_tempered_normalizer``. The step is a function of values: parameters and the
optimizer's state in, new ones out. So all fits of a model can share it, and a further one compiles
nothing.
"""

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from threading import RLock
from types import MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.pytensorf import collect_default_updates, reseed_rngs, resolve_backend_compile_kwargs
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pymc.variational.opvi import Approximation, ObjectiveFunction, Operator
from pytensor.compile.executor import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import NullTypeGradError, disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import apply_ancestors, graph_inputs
from scipy.special import softmax

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import GradientError, NormalizerError
from pymc_tempering.model.exactly import ALONE, compile_exactly, with_data_apart
from pymc_tempering.model.memory import LIBRARIES, remembered
from pymc_tempering.model.python_mode import compile_alone, python_mode
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.likelihood_terms import (
    likelihood_terms,
    local_log_normalizer,
    scale_of,
)
from pymc_tempering.variational.normalizers.tempered_normalizer import (
    log_tempered_normalizer,
    temperature_limit,
)

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
    total_grad_norm_constraint: float | None,
    backend: str | None,
    compile_kwargs: dict[str, Any] | None,
) -> FitStep:
    """Compile the step of an approximation.

    Temperatures are arguments, so that no stage of a fit compiles again.
    """
    objective = TemperedKL(approx, likelihood)()
    try:
        updates = objective.updates(
            obj_n_mc=obj_n_mc,
            obj_optimizer=obj_optimizer,
            total_grad_norm_constraint=total_grad_norm_constraint,
        )
    except (NullTypeGradError, NotImplementedError) as error:
        raise GradientError(
            f"The log density has no gradient, which a fit needs: {error}"
        ) from error
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
        return float(compile_alone([], scale)())

    return remembered(model, "batches per pass", find)


FAMILIES: dict[str, Callable[..., Approximation]] = {
    "meanfield": pm.MeanField,
    "fullrank": pm.FullRank,
}
"""Variational families by name."""


@dataclass(frozen=True)
class TemperedTerm:
    """An observed variable over a grid of M temperatures.

    Attributes
    ----------
    name : str
    log_p : Variable, shape (M, ...)
        Normalized tempered log-likelihood of each datum at each temperature (nats).
    scale : Variable
        Total size over minibatch size.
    changes : bool
        Whether the data behind it change from step to step.
    """

    name: str
    log_p: Variable
    scale: Variable
    changes: bool


def sees_minibatch(graphs: Iterable[Variable]) -> bool:
    """Whether a graph takes data from a ``pm.Minibatch``."""
    return any(isinstance(node.op, MinibatchOp) for node in apply_ancestors(graphs))


def tempered_terms(model: pm.Model, temperatures: FloatArray) -> list[TemperedTerm]:
    """Build the normalized tempered likelihood of each observed variable, of the value variables.

    Raises
    ------
    NormalizerError
        If there are potentials, or a term without a normalizer that is finite on the grid.
    ModelError
        If nothing is observed.
    """
    terms = []
    for rv in likelihood_terms(model):
        [log_p] = model.logp(vars=[rv], sum=False)
        value = model.rvs_to_values[rv]
        column = temperatures.reshape((-1,) + (1,) * log_p.type.ndim)
        scale = scale_of(rv, tuple(value.shape[axis] for axis in range(value.type.ndim)))
        _check_limit(model, rv, temperatures)
        one = pt.dscalar("temperature")
        grid = pt.constant(temperatures)
        log_c = vectorize_graph(log_tempered_normalizer(rv, one), {one: grid})
        [log_c] = model.replace_rvs_by_values([log_c])
        changes = isinstance(rv.owner.op, MinibatchRandomVariable) or sees_minibatch([value, rv])
        terms.append(TemperedTerm(rv.name, (log_p / scale)[None] / column - log_c, scale, changes))
    return terms


def _check_limit(model: pm.Model, rv: Variable, temperatures: FloatArray) -> None:
    """Raise an error for temperatures at which the normalizer is infinite for all parameters.

    Where that depends on the parameters, q(T) is zero at parameters that make it infinite.
    """
    [limit] = model.replace_rvs_by_values([temperature_limit(rv)])
    if set(graph_inputs([limit])) & set(model.value_vars):
        return
    if (low := float(np.min(limit.eval()))) <= temperatures[-1]:
        raise NormalizerError(
            f"The tempered normalizer of {rv.name!r} is infinite from T = {low:g} on, and the "
            f"temperatures go to {temperatures[-1]:g}: pass temperatures= below {low:g}. Of the "
            f"fits, {WITHOUT_NORMALIZER}."
        )


def _mean_over_draws(approx: Approximation, nodes: list[Variable], obj_n_mc: int) -> list[Variable]:
    """E_q of nodes; without a scan if there is only one draw."""
    if obj_n_mc == 1:
        return list(approx.symbolic_single_sample(nodes))
    return [node.mean(0) for node in pt.atleast_list(approx.symbolic_sample_over_posterior(nodes))]


def shared_likelihood(approx: Approximation, temperatures: FloatArray, obj_n_mc: int) -> Likelihood:
    """VT with ``normalizer="local"``: one temperature, the likelihood normalized at each theta.

    The energies are the tempered log-likelihood at each temperature, shape (M,), at full scale.
    """
    model = approx.model
    for rv in likelihood_terms(model):
        _check_limit(model, rv, temperatures)
    one = pt.dscalar("temperature")
    log_c = vectorize_graph(local_log_normalizer(model, one), {one: pt.constant(temperatures)})
    [log_c] = model.replace_rvs_by_values([log_c])
    total = model.datalogp / temperatures - log_c
    [energies] = _mean_over_draws(approx, [total], obj_n_mc)
    weights = pytensor.shared(one_hot(temperatures), "temperature_weights")
    return Likelihood(_weighted(weights, energies).sum(), energies, weights)


def _weighted(weights: Variable, log_p: Variable) -> Variable:
    """Weights times log p; zero where the weight is zero, even if log p is infinite there."""
    nothing = pt.eq(weights, 0.0)
    return pt.switch(nothing, 0.0, weights * pt.switch(nothing, 0.0, log_p))


def one_hot(temperatures: FloatArray) -> FloatArray:
    """All weight on T = 1, shape (M,)."""
    return (temperatures == 1.0).astype(float)


def datum_likelihood(
    approx: Approximation,
    temperatures: FloatArray,
    log_prior: FloatArray,
    damping: float,
    obj_n_mc: int,
) -> Likelihood:
    """LVT: a temperature for each datum, q(y_i) by equation (10) of Mandt et al. (2016).

    Of data that stay, the logarithm of q(y_i) is a damped mean over the steps. Of a minibatch, it
    is the optimum for the current draws, a local step as in Algorithm 1, and is not held. The
    weight is 1 where each datum has its temperature, and 0 at T = 1. The energies are q(T) averaged
    over the data, shape (M,).
    """
    terms = tempered_terms(approx.model, temperatures)
    means = _mean_over_draws(approx, [term.log_p for term in terms], obj_n_mc)
    shapes = _shapes(approx.model, terms)
    switched_on = pytensor.shared(np.asarray(1.0), "local_temperatures")
    cold = one_hot(temperatures)
    parts, updates, held, flat = [], {}, {}, []
    for term, log_p in zip(terms, means, strict=True):
        column = (-1,) + (1,) * (log_p.type.ndim - 1)
        target = log_p + log_prior.reshape(column)
        if term.changes:
            q = pt.special.softmax(disconnected_grad(target), axis=0)
        else:
            logits = _first_logits(term.name, log_prior, shapes[term.name])
            q = pt.special.softmax(logits, axis=0)
            mixed = damping * logits + (1.0 - damping) * target
            updates[logits] = pt.switch(switched_on, mixed, logits)
            held[term.name] = logits
        weights = switched_on * q + (1.0 - switched_on) * cold.reshape(column)
        parts.append((term.scale * _weighted(weights, log_p).sum(axis=0)).sum())
        flat.append(weights.reshape((temperatures.size, -1)))
    tempered = pt.add(*parts) if parts[1:] else parts[0]
    mean_q = pt.concatenate(flat, axis=1).mean(axis=1)
    return Likelihood(tempered, mean_q, switched_on, held, updates)


def _first_logits(name: str, log_prior: FloatArray, shape: tuple[int, ...]) -> SharedVariable:
    """Shared log q(y_i), shape (M, *shape), that starts at the prior."""
    column = log_prior.reshape((-1,) + (1,) * len(shape))
    start = np.broadcast_to(column, (log_prior.size, *shape)).copy()
    return pytensor.shared(start, f"log_q_{name}", shape=start.shape)


def inverse_temperatures(
    temperatures: FloatArray, log_q: Mapping[str, int], values: Values
) -> dict[str, FloatArray]:
    """E[1/T] of each datum, from log q(y_i), whose places among the values are given by name."""
    return {
        name: np.tensordot(1.0 / temperatures, softmax(values[place], axis=0), axes=1)
        for name, place in log_q.items()
    }


def _shapes(model: pm.Model, terms: list[TemperedTerm]) -> dict[str, Any]:
    """Shape of the data of each observed variable, minibatches left out."""
    with ALONE:
        at = model.initial_point()
        point = {value: at[value.name] for value in model.value_vars}
        return {
            term.name: tuple(term.log_p.shape[1:].eval(point, mode=python_mode()))
            for term in terms
            if not term.changes
        }
