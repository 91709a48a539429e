"""What the transforms of a model say: which priors are ordered, which coordinates are angles."""

from collections.abc import Collection, Sequence
from math import lgamma

import numpy as np
import pymc as pm
from pymc.distributions.transforms import Ordered
from pymc.logprob.transforms import ChainedTransform, CircularTransform, Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.op import RandomVariable

from pymc_tempering.exceptions import ModelError
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
