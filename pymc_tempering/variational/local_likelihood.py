"""Tempered likelihoods normalized at each theta: one temperature for all data, or one each.

p(x_i | theta)^(1/T) / c_i(theta, T), with the log c_i of ``log_tempered_normalizer``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pymc.variational.opvi import Approximation
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors, graph_inputs
from scipy.special import softmax

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.model.exactly import ALONE, compile_alone
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.variational.fit_step import Likelihood, Values
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
        changes = isinstance(rv.owner.op, MinibatchRandomVariable) or any(
            node.owner is not None and isinstance(node.owner.op, MinibatchOp)
            for node in ancestors([value, rv])
        )
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
    stay = [term for term in terms if not term.changes]
    if not stay:
        return {}
    with ALONE:
        point = model.initial_point()
    shapes_at = compile_alone(
        model.value_vars,
        [term.log_p.shape for term in stay],
        mode=python_mode(),
        on_unused_input="ignore",
    )
    shapes = shapes_at(*(point[value.name] for value in model.value_vars))
    return {
        term.name: tuple(int(size) for size in shape[1:])
        for term, shape in zip(stay, shapes, strict=True)
    }
