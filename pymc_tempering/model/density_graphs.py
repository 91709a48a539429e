"""Graphs of log_reference, log_ratio and their gradients, stable where a naive one is 0 / 0."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import constant_fold, pregrad_inner_graphs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.xtensor.type import XTensorType, as_xtensor

from pymc_tempering.exceptions import GradientError, ModelError
from pymc_tempering.model.layout import Layout, is_discrete
from pymc_tempering.model.log_graphs import follow_exponentials
from pymc_tempering.model.ordered_priors import log_orderings_of
from pymc_tempering.model.terms import Terms, reference_and_ratio


def raveled_graphs(
    model: pm.Model, layout: Layout, terms: Terms, moved: Collection[str], *, far: bool = False
) -> tuple[list[Variable], list[Variable]]:
    """Graphs of log_reference and log_ratio in terms of raveled value variables, a vector each.

    Parameters
    ----------
    moved : collection of str
        Value variables that gradients are taken of; the others count as constants. Binary ones
        are treated as real numbers.
    far : bool, default False
        Whether the density is needed out to where exp(x) overflows, or underflows to 0.

    Returns
    -------
    pieces, [log_reference, log_ratio]
    """
    pieces = [
        pt.vector(name, shape=(part.stop - part.start,), dtype="float64")
        for name, part in zip(layout.names, layout.slices, strict=True)
    ]
    replacements = {}
    for value, raveled, shape in zip(model.value_vars, pieces, layout.shapes, strict=True):
        piece = raveled.reshape(shape)
        if value.name not in moved:
            piece = pytensor.gradient.disconnected_grad(piece)
        if value.name not in moved and value.type.dtype in pm.vartypes.discrete_types:
            piece = piece.astype(value.type.dtype)
        if isinstance(value.type, XTensorType):  # of pm.dims
            piece = as_xtensor(piece, dims=value.type.dims)
        replacements[value] = piece
    log_reference, log_ratio = reference_and_ratio(model, terms)
    log_reference = log_reference + log_orderings_of(model, layout.shapes, terms.wide)
    moved_binary = [
        rv for rv in model.free_RVs if is_discrete(rv) and model.rvs_to_values[rv].name in moved
    ]
    slopes = _binary_slopes(model, moved_binary)
    outputs = freeze_shared([pt.add(log_reference, *slopes), log_ratio], open_numbers=True)
    try:
        outputs = clone_replace(outputs, replacements, rebuild_strict=False)
        if far:
            rewrite = follow_exponentials
            outputs = list(rewrite_graph(outputs, include=(), custom_rewrite=rewrite))
        return pieces, stabilize(outputs)
    except (TypeError, NotImplementedError) as error:
        raise GradientError(
            f"The density makes no sense for real values of its discrete variables: {error}"
        ) from error


def _unmasked(container: SharedVariable) -> Any:
    """Return the value of a data container, which has no missing values (PyMC masks them)."""
    value = container.get_value()
    if np.ma.is_masked(value):
        raise ModelError(
            f"The data {container.name!r} have missing values now, and PyMC imputes those only "
            "that were there when the model was made: leave them out, or pass them to `observed=`."
        )
    return np.ma.getdata(value) if np.ma.isMaskedArray(value) else value


def freeze_shared(
    outputs: list[Variable], *, open_numbers: bool = False, but: Variable | None = None
) -> list[Variable]:
    """Replace data containers by their current values, so that compiled code can be cached.

    Parameters
    ----------
    outputs : list of Variable
    open_numbers : bool, default False
        Whether single real numbers become shared variables that nothing changes. PyTensor computes
        with constants while it rewrites a graph, so that with another one it is another graph; a
        shared variable is an argument of its compiled code.
    but : Variable, optional
        A data container that stays.
    """

    def frozen(container: SharedVariable) -> Variable:
        value = np.asarray(_unmasked(container), dtype=container.type.dtype)
        if open_numbers and value.ndim == 0 and value.dtype.kind == "f":
            return pytensor.shared(value, name=container.name)
        return pt.constant(value)

    shared = {
        variable: frozen(variable)
        for variable in graph_inputs(outputs)
        if isinstance(variable, SharedVariable)
        and variable is not but
        and not isinstance(variable.type, RandomGeneratorType)
    }
    return graph_replace(outputs, shared, strict=False) if shared else list(outputs)


def is_random(graph: Variable) -> bool:
    """Whether a graph depends on a draw."""
    return any(isinstance(v.type, RandomGeneratorType) for v in graph_inputs([graph]))


def known_values(graphs: list[Variable]) -> list[np.ndarray | None]:
    """Values of graphs; None of those that depend on a draw, or that PyTensor cannot compute."""
    folded = constant_fold(freeze_shared(graphs), raise_not_constant=False)
    return [None if isinstance(value, Variable) else np.asarray(value) for value in folded]


def gradients(outputs: Sequence[Variable], along: Sequence[Variable]) -> list[Variable]:
    """Graphs of the gradients of scalar graphs: of the first along all variables, of the next.

    Raises
    ------
    GradientError
        A gradient is not defined.
    """
    try:
        return [
            grad
            for out in outputs
            for grad in pytensor.grad(out, list(along), disconnected_inputs="ignore")
        ]
    except (NullTypeGradError, NotImplementedError) as error:
        raise GradientError(
            f"The log density has no gradient, which Hamiltonian Monte Carlo needs: {error}"
        ) from error


def stabilize(outputs: list[Variable]) -> list[Variable]:
    """Rewrite graphs into stable ones before gradients are taken, as PyMC does for its own.

    The gradient of log(sigmoid(x)) as it stands is 0 / 0 from |x| of 37 to 745 on, where draws from
    a wide prior lie; that of its stable form, a softplus, is finite everywhere. The rewriting must
    not remove the operation that only stops gradients (`disconnected_grad`).
    """
    return list(
        rewrite_graph(
            outputs,
            include=("canonicalize", "stabilize"),
            exclude=("local_view_op",),
            custom_rewrite=pregrad_inner_graphs,
        )
    )


def _binary_slopes(model: pm.Model, rvs: Sequence[Variable]) -> list[Variable]:
    """Graphs that are zero and have the gradient of binary variables' own log probabilities.

    That gradient is the difference of the log probability at 1 and at 0. PyMC's own graph is a
    switch, which has no gradient.
    """
    if not rvs:
        return []
    slopes = []
    # All at once, as each call goes through the whole model.
    for rv, term in zip(rvs, model.logp(vars=list(rvs), sum=False), strict=True):
        value = model.rvs_to_values[rv]
        at_one, at_zero = (
            graph_replace(
                [term], {value: pt.full_like(value, x, dtype=value.type.dtype)}, strict=False
            )[0]
            for x in (1, 0)
        )
        slope = pytensor.gradient.disconnected_grad(pt.clip(at_one - at_zero, -1e3, 1e3))
        real = value.astype("float64")
        slopes.append((slope * (real - pytensor.gradient.disconnected_grad(real))).sum())
    return slopes
