"""The path of densities from a normalized reference to the target of a PyMC model.

`log pi_beta(x) = log_reference(x) + beta * log_ratio(x)` over the unconstrained, raveled
free variables of the model. With the prior as reference, `log_ratio` is the log-likelihood
plus the potentials.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lgamma

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.transforms import Ordered
from pymc.logprob.transforms import ChainedTransform, CircularTransform, Transform
from pymc.pytensorf import compile as pymc_compile
from pymc.pytensorf import join_nonshared_inputs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.compiled import adapt_density
from pymc_tempering.exceptions import DiscreteVariableError, ModelError


@dataclass(frozen=True)
class Layout:
    """Where each unconstrained value variable lies in the raveled vector.

    Attributes
    ----------
    names : tuple of str
        Value variables, in the order of `model.value_vars`.
    shapes : tuple of tuple of int
        Their unconstrained shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slice of the raveled vector that holds each variable."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        return tuple(
            slice(int(end) - int(np.prod(shape)), int(end))
            for end, shape in zip(ends, self.shapes, strict=True)
        )

    @property
    def dim(self) -> int:
        """Number of unconstrained dimensions."""
        return int(sum(np.prod(shape) for shape in self.shapes))

    def ravel(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
        """Raveled vector, shape (dim,), of a point as PyMC keeps it."""
        return np.concatenate([np.ravel(point[name]) for name in self.names]).astype(float)

    def unravel(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Point as PyMC keeps it, of a raveled vector, shape (dim,); the arrays are copies."""
        return {
            name: x[part].reshape(shape).copy()
            for name, part, shape in zip(self.names, self.slices, self.shapes, strict=True)
        }

    def label(self, index: int) -> str:
        """Name of a raveled element, as in `theta_log__[3]`, for messages."""
        for name, part, shape in zip(self.names, self.slices, self.shapes, strict=True):
            if part.start <= index < part.stop:
                where = np.unravel_index(index - part.start, shape) if shape else ()
                return name + (f"[{', '.join(str(int(i)) for i in where)}]" if shape else "")
        raise IndexError(index)


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
    """

    model: pm.Model
    layout: Layout
    density: Callable
    circular: np.ndarray

    @property
    def dim(self) -> int:
        """Number of unconstrained dimensions."""
        return self.layout.dim


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


def unconstrained_shapes(model: pm.Model) -> list[tuple[int, ...]]:
    """Shapes of `model.value_vars`, without an initial point: initvals never matter here."""
    static = [value.type.shape for value in model.value_vars]
    if all(size is not None for shape in static for size in shape):
        return [tuple(int(size) for size in shape) for shape in static]
    shapes = model.eval_rv_shapes()
    return [tuple(int(size) for size in shapes[value.name]) for value in model.value_vars]


def _log_orderings(model: pm.Model, shapes: Sequence[tuple[int, ...]]) -> float:
    """Log of the number of orderings that `ordered` leaves out of an i.i.d. prior: log k! each."""
    total = 0.0
    for rv, shape in zip(model.free_RVs, shapes, strict=True):
        if ordered_transform(model, rv) is None:
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


def check_model(model: pm.Model) -> None:
    """Refuse models that have no evidence, or that these kernels cannot move.

    Raises
    ------
    ModelError
        Without free variables, or without observed data and potentials.
    DiscreteVariableError
        With discrete free variables.
    """
    if not model.free_RVs:
        raise ModelError("The model has no free variables to sample.")
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "The model has no observed data and no potential: its posterior is its prior, and its "
            "log evidence is 0. Pass `observed=` to a variable, or add a pm.Potential."
        )
    discrete = [rv.name for rv in model.free_RVs if rv.dtype not in pm.vartypes.continuous_types]
    if discrete:
        raise DiscreteVariableError(
            f"Discrete free variables cannot be sampled yet: {', '.join(discrete)}. Marginalize "
            "them (pm.Mixture, or pmx.marginalize of pymc-extras)."
        )


def compile_path(model: pm.Model) -> Path:
    """Compile the path from the prior of a PyMC model to its posterior.

    Parameters
    ----------
    model : pymc.Model
        All free variables continuous.

    Returns
    -------
    Path

    Raises
    ------
    ModelError
        No free variables; nothing observed; an ordered prior that is not i.i.d.; a density
        without gradient.
    DiscreteVariableError
        A free variable is discrete.
    """
    check_model(model)
    shapes = unconstrained_shapes(model)
    layout = Layout(tuple(value.name for value in model.value_vars), tuple(shapes))
    log_reference = model.varlogp + _log_orderings(model, shapes)
    outputs, x = join_nonshared_inputs(
        {name: np.zeros(shape) for name, shape in zip(layout.names, layout.shapes, strict=True)},
        freeze_shared([log_reference, model.datalogp]),
        model.value_vars,
    )
    try:
        grads = [pytensor.grad(out, x, disconnected_inputs="ignore") for out in outputs]
    except (NullTypeGradError, NotImplementedError) as error:
        raise ModelError(
            f"The log density has no gradient, which Hamiltonian Monte Carlo needs: {error}"
        ) from error
    outputs = [out.astype("float64") for out in [*outputs, *grads]]
    with model:  # so that PyMC honors model.check_bounds
        density = adapt_density(pymc_compile([x], outputs, mode="NUMBA"))
    return Path(model, layout, density, _circular_indices(model, layout))
