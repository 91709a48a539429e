"""What the transforms of a model say: which priors are ordered, which coordinates are angles."""

import numpy as np
import pymc as pm
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import Ordered, ZeroSumTransform
from pymc.logprob.transforms import ChainedTransform, CircularTransform, Transform
from pytensor.graph.basic import Variable

from pymc_tempering.model.layout import Layout


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


def not_of_sum_zero(model: pm.Model) -> list[str]:
    """Names of free variables with a zero-sum transform whose own draws do not sum to zero."""
    return [
        rv.name
        for rv in model.free_RVs
        if any(
            isinstance(p, ZeroSumTransform) for p in transform_parts(model.rvs_to_transforms[rv])
        )
        and not isinstance(rv.owner.op, ZeroSumNormalRV)
    ]


def circular_indices(model: pm.Model, layout: Layout) -> np.ndarray:
    """Raveled indices of the variables with a circular transform."""
    indices: list[int] = []
    for rv in model.free_RVs:
        if any(
            isinstance(p, CircularTransform) for p in transform_parts(model.rvs_to_transforms[rv])
        ):
            part = layout.slices[layout.names.index(model.rvs_to_values[rv].name)]
            indices += range(part.start, part.stop)
    return np.array(indices, dtype=np.int64)
