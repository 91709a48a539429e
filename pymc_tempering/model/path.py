"""The path of densities from a normalized reference to the target of a PyMC model.

`log pi_beta(x) = log_reference(x) + beta * log_ratio(x)` over the unconstrained, raveled
free variables of the model. With the prior as reference, `log_ratio` is the log-likelihood
plus the potentials.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import lgamma

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.transforms import Ordered
from pymc.logprob.transforms import ChainedTransform, CircularTransform, Transform
from pymc.pytensorf import compile as pymc_compile
from pymc.pytensorf import pregrad_inner_graphs
from pytensor.compile import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.xtensor.type import XTensorType, as_xtensor

from pymc_tempering.exceptions import DiscreteVariableError, GradientError, ModelError
from pymc_tempering.model.adapters import adapt_density
from pymc_tempering.model.check import check_model
from pymc_tempering.model.compiled import object_mode
from pymc_tempering.model.layout import Layout, is_discrete, model_layout
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.numba_mode import numba_mode
from pymc_tempering.model.terms import Terms, find_terms, reference_and_ratio


@dataclass(frozen=True)
class Path:
    """A compiled model: log_reference, log_ratio and their gradients in one function.

    Attributes
    ----------
    model : pymc.Model
    layout : Layout
    density : callable
        Compiled `density(x, values, grads)`; writes into `values` (2,) and `grads` (2, d).
    circular : array of int
        Raveled indices that live on a circle and are wrapped to [-pi, pi).
    terms : Terms
        Which terms are tempered, and which priors are replaced by a wide law.
    has_gradient : bool
        Whether the density gives gradients with respect to at least some variables.
    """

    model: pm.Model
    layout: Layout
    density: Callable
    circular: np.ndarray
    terms: Terms
    has_gradient: bool

    @property
    def dim(self) -> int:
        """Number of unconstrained dimensions."""
        return self.layout.dim

    @property
    def fittable(self) -> bool:
        """Whether a mixture of t's can approximate the posterior: all real, none on a circle."""
        return self.circular.size == 0 and not any(self.layout.discrete)


def transform_parts(transform: Transform | None) -> list[Transform]:
    """Elementary transforms that a (possibly chained) transform is made of."""
    if transform is None:
        return []
    if isinstance(transform, ChainedTransform):
        return [part for item in transform.transform_list for part in transform_parts(item)]
    return [transform]


def ordered_transform(model: pm.Model, rv: Variable) -> Ordered | None:
    """Find the `ordered` transform of a free variable, if it has one."""
    parts = transform_parts(model.rvs_to_transforms.get(rv))
    return next((part for part in parts if isinstance(part, Ordered)), None)


def freeze_shared(outputs: list[Variable]) -> list[Variable]:
    """Replace data containers by their current values, so that compiled code can be cached."""
    shared = {
        variable: pt.constant(variable.get_value(), dtype=variable.type.dtype)
        for variable in graph_inputs(outputs)
        if isinstance(variable, SharedVariable)
        and not isinstance(variable.type, RandomGeneratorType)
    }
    return graph_replace(outputs, shared, strict=False) if shared else list(outputs)


def _is_iid_along_last_axis(rv: Variable) -> bool:
    """Whether a univariate prior is the same for all elements along the last axis."""
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp != 0:
        return False
    for param in op.dist_params(rv.owner):
        if param.type.ndim == 0 or param.type.shape[-1] == 1:
            continue
        value = getattr(param, "data", None)
        if value is None or not np.all(value == value[..., :1]):
            return False
    return True


def log_orderings_of(
    model: pm.Model, shapes: Sequence[tuple[int, ...]], without: Collection[str] = ()
) -> float:
    """Log of the factor k! that normalizes each i.i.d. prior of k elements with `ordered`."""
    total = 0.0
    for rv, shape in zip(model.free_RVs, shapes, strict=True):
        if ordered_transform(model, rv) is None or rv.name in without:
            continue
        if not _is_iid_along_last_axis(rv):
            raise ModelError(
                f"The prior of {rv.name!r} is ordered but not i.i.d. along its last axis, so its "
                "normalizing constant is unknown and an evidence would be wrong. Give all "
                "elements the same prior, or build the order from a first element and positive "
                "differences."
            )
        total += int(np.prod(shape[:-1])) * lgamma(shape[-1] + 1)
    return total


def _circular_indices(model: pm.Model, layout: Layout) -> np.ndarray:
    """Raveled indices of the variables with a circular transform."""
    indices: list[int] = []
    for rv in model.free_RVs:
        if any(
            isinstance(p, CircularTransform) for p in transform_parts(model.rvs_to_transforms[rv])
        ):
            part = layout.slices[layout.names.index(model.rvs_to_values[rv].name)]
            indices += range(part.start, part.stop)
    return np.array(indices, dtype=np.int64)


def raveled_graphs(
    model: pm.Model, layout: Layout, terms: Terms, moved: Collection[str]
) -> tuple[list[Variable], list[Variable]]:
    """Graphs of log_reference and log_ratio in terms of raveled value variables, a vector each.

    Parameters
    ----------
    moved : collection of str
        Value variables that gradients are taken of; the others count as constants. Binary ones
        are treated as real numbers.

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
    slopes = [
        _binary_slope(model, rv)
        for rv, value in zip(model.free_RVs, model.value_vars, strict=True)
        if is_discrete(rv) and value.name in moved
    ]
    outputs = freeze_shared([pt.add(log_reference, *slopes), log_ratio])
    try:
        return pieces, stabilize(clone_replace(outputs, replacements, rebuild_strict=False))
    except (TypeError, NotImplementedError) as error:
        raise GradientError(
            f"The density makes no sense for real values of its discrete variables: {error}"
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


def _binary_slope(model: pm.Model, rv: Variable) -> Variable:
    """Graph that is zero and has the gradient of a binary variable's own log probability.

    That gradient is the difference of the log probability at 1 and at 0. PyMC's own graph is a
    switch, which has no gradient.
    """
    value = model.rvs_to_values[rv]
    [term] = model.logp(vars=[rv], sum=False)
    at_one, at_zero = (
        graph_replace(
            [term], {value: pt.full_like(value, x, dtype=value.type.dtype)}, strict=False
        )[0]
        for x in (1, 0)
    )
    slope = pytensor.gradient.disconnected_grad(pt.clip(at_one - at_zero, -1e3, 1e3))
    real = value.astype("float64")
    return (slope * (real - pytensor.gradient.disconnected_grad(real))).sum()


def compile_path(
    model: pm.Model,
    *,
    gradient: Collection[str] | None = None,
    values: bool = False,
    terms: Terms | None = None,
) -> Path:
    """Compile the path from the prior of a PyMC model to its posterior.

    Parameters
    ----------
    model : pymc.Model
    terms : Terms, optional
        By default all observed terms and potentials are tempered.
    gradient : collection of str, optional
        Value variables that a kernel needs gradients of; by default all, which must be
        continuous.
    values : bool, default False
        Whether some kernel evaluates the density without its gradients.

    Returns
    -------
    Path

    Raises
    ------
    ModelError
        The model has no free variables or no data, or an ordered prior is not i.i.d.
    GradientError
        The density has no gradient.
    DiscreteVariableError
        `gradient` is None and the model has discrete variables.
    """
    check_model(model)
    layout = model_layout(model)
    if gradient is None:
        gradient = layout.names
        discrete = [rv.name for rv in model.free_RVs if is_discrete(rv)]
        if discrete:
            raise DiscreteVariableError(
                f"Discrete free variables have no gradients: {', '.join(discrete)}. Marginalize "
                "them (pm.Mixture, or pmx.marginalize of pymc-extras), or sample with kernels "
                "that can move them."
            )
    terms = find_terms(model) if terms is None else terms
    moved = frozenset(gradient)
    density = remembered(
        model,
        ("density", terms, moved, values),
        lambda: _compile_density(model, layout, terms, moved, values),
    )
    return Path(model, layout, density, _circular_indices(model, layout), terms, bool(moved))


def _compile_density(
    model: pm.Model, layout: Layout, terms: Terms, moved: Collection[str], values: bool
) -> Callable:
    """Compile the density of a path, with gradients of `moved` variables and maybe without."""
    pieces, outputs = raveled_graphs(model, layout, terms, moved)
    differentiated = [name in moved for name in layout.names]
    along = [piece for piece, is_moved in zip(pieces, differentiated, strict=True) if is_moved]
    with model:  # so that PyMC honors model.check_bounds
        alone = _compile(pieces, outputs) if values or not moved else None
        full = _compile(pieces, [*outputs, *gradients(outputs, along)]) if moved else None
    return adapt_density(full, alone, layout.slices, differentiated)


def _compile(inputs: list[Variable], outputs: list[Variable]) -> Function:
    with object_mode():
        return pymc_compile(
            inputs,
            [out.astype("float64") for out in outputs],
            mode=numba_mode(),
            on_unused_input="ignore",
        )


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
