"""Where the free variables of a model lie in one raveled vector, and how they are transformed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np
import pymc as pm
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import Ordered, ZeroSumTransform
from pymc.logprob.transforms import ChainedTransform, CircularTransform, Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BernoulliRV

from pymc_tempering.model.memory import remembered


@dataclass(frozen=True)
class Layout:
    """Where each unconstrained value variable lies in the raveled vector.

    Attributes
    ----------
    names : tuple of str
        Value variables, in the order of `model.value_vars`.
    shapes : tuple of tuple of int
        Their unconstrained shapes.
    dtypes : tuple of str
        Their types in the model. The raveled vector holds floats, with whole numbers for integers.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Slice of the raveled vector that holds each variable."""
        sizes = [prod(shape) for shape in self.shapes]
        return tuple(slice(end - n, end) for n, end in zip(sizes, accumulate(sizes), strict=True))

    @cached_property
    def dim(self) -> int:
        """Number of unconstrained dimensions."""
        return sum(map(prod, self.shapes))

    @property
    def discrete(self) -> tuple[bool, ...]:
        """Whether each variable takes whole numbers."""
        return tuple(dtype not in pm.vartypes.continuous_types for dtype in self.dtypes)

    @property
    def whole_numbers(self) -> np.ndarray:
        """Which raveled elements take whole numbers, shape (dim,)."""
        return np.repeat(np.array(self.discrete, dtype=bool), list(map(prod, self.shapes)))

    def ravel(self, point: Mapping[str, np.ndarray]) -> np.ndarray:
        """Raveled vector, shape (dim,), of a point as PyMC keeps it."""
        return np.concatenate([np.ravel(point[name]) for name in self.names]).astype(float)

    def unravel(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Point as PyMC keeps it, of a raveled vector, shape (dim,); the arrays are copies.

        Of many vectors, shape (n, dim), the arrays have n as their first dimension.
        """
        lead = x.shape[:-1]
        return {
            name: x[..., part].reshape((*lead, *shape)).astype(dtype, order="C")
            for name, part, shape, dtype in zip(
                self.names, self.slices, self.shapes, self.dtypes, strict=True
            )
        }

    def label(self, index: int) -> str:
        """Name of a raveled element, as in `theta_log__[3]`, for messages."""
        for name, part, shape in zip(self.names, self.slices, self.shapes, strict=True):
            if part.start <= index < part.stop:
                where = np.unravel_index(index - part.start, shape)
                return f"{name}{[int(i) for i in where]}" if shape else name
        raise IndexError(index)


def known_shapes(model: pm.Model, variables: Sequence[Variable]) -> list[tuple[int, ...]]:
    """Shapes of free or value variables, found without an initial point, which does not matter."""
    static = [variable.type.shape for variable in variables]
    if all(size is not None for shape in static for size in shape):
        return [tuple(int(size) for size in shape) for shape in static]
    shapes = model.eval_rv_shapes()
    return [tuple(int(size) for size in shapes[variable.name]) for variable in variables]


def unconstrained_shapes(model: pm.Model) -> list[tuple[int, ...]]:
    """Shapes of `model.value_vars`."""
    return known_shapes(model, model.value_vars)


def is_discrete(rv: Variable) -> bool:
    """Whether a random variable takes whole numbers."""
    return rv.dtype not in pm.vartypes.continuous_types


def is_binary(rv: Variable) -> bool:
    """Whether a random variable is zero or one."""
    return isinstance(rv.owner.op, BernoulliRV)


def model_layout(model: pm.Model) -> Layout:
    """Where each free variable of a model lies in the raveled vector."""

    def find() -> Layout:
        values = model.value_vars
        return Layout(
            tuple(value.name for value in values),
            tuple(unconstrained_shapes(model)),
            tuple(value.type.dtype for value in values),
        )

    return remembered(model, "layout", find)


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


def before_order(model: pm.Model, rv: Variable) -> Transform | None:
    """Find the transform whose values `ordered` puts in order; None if that are those of `rv`."""
    parts = transform_parts(model.rvs_to_transforms[rv])
    first = parts[: next(i for i, part in enumerate(parts) if isinstance(part, Ordered))]
    return ChainedTransform(first) if first else None


def has_transform(model: pm.Model, rv: Variable, kind: type) -> bool:
    """Whether a transform of that kind is one of those of a free variable."""
    return any(isinstance(part, kind) for part in transform_parts(model.rvs_to_transforms[rv]))


def not_of_sum_zero(model: pm.Model) -> list[str]:
    """Names of free variables with a zero-sum transform whose own draws do not sum to zero."""
    return [
        rv.name
        for rv in model.free_RVs
        if has_transform(model, rv, ZeroSumTransform)
        and not isinstance(rv.owner.op, ZeroSumNormalRV)
    ]


def is_circular(model: pm.Model, rv: Variable) -> bool:
    """Whether a free variable lies on a circle; `pymc.dims` has such a transform of its own."""
    parts = transform_parts(model.rvs_to_transforms[rv])
    return any(part.name == CircularTransform.name for part in parts)


def circular_indices(model: pm.Model, layout: Layout) -> np.ndarray:
    """Raveled indices of the variables with a circular transform."""
    angles = [is_circular(model, rv) for rv in model.free_RVs]
    return np.flatnonzero(np.repeat(angles, list(map(prod, layout.shapes))))
