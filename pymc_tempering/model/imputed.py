"""Missing parts of observed vectors, whose density stands with the part that is observed.

PyMC splits a vector with NaN in its data into an observed variable and a free one, gives the
density of the whole to the first and nothing to the second. Here the free one gets a law q of its
own, given the variables that the vector depends on: it can be drawn exactly, its density is
normalized, and it covers the support. The likelihood is the density of the whole over q.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import PartialObservedRV
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.basic import MvNormalRV

from pymc_tempering.borrowed.private import default_transform
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.layout import is_discrete

DOF = 2.0
"""Degrees of freedom of the t law of values that have no closed one; its scale is the standard
deviation of the values that are observed."""


@dataclass(frozen=True)
class Imputed:
    """The missing part of an observed vector, and its own law q.

    Attributes
    ----------
    observed : str
        The likelihood term that has the density of the whole vector.
    draw : Variable
        Graph of a draw of q, of the model's random variables.
    log_q : Variable
        Graph of the log density of q at the missing part, of the model's random variables.
    """

    observed: str
    draw: Variable
    log_q: Variable


def imputed_parts(model: pm.Model) -> dict[str, Imputed]:
    """Free variables that are missing parts of vectors, by name.

    Raises
    ------
    ModelError
        Missing values are discrete, or tied to the observed ones by a constraint.
    """
    observed = {rv.owner: rv for rv in model.observed_RVs}
    parts = {}
    for rv in model.free_RVs:
        node = rv.owner
        if not isinstance(node.op, PartialObservedRV) or node.op.ndim_supp == 0:
            continue
        if node not in observed:
            raise ModelError(f"{rv.name!r} is imputed, but what is observed of it was taken away.")
        _check_support(model, rv)
        parts[rv.name] = _law(rv, observed[node], model.rvs_to_values[observed[node]])
    return parts


def _check_support(model: pm.Model, rv: Variable) -> None:
    """Refuse missing values that cannot be any real numbers."""
    whole = rv.owner.inputs[0]
    kind = type(whole.owner.op).__name__.removesuffix("RV")
    advice = "Impute whole vectors, or leave out those with missing elements."
    if is_discrete(rv):
        raise ModelError(
            f"{rv.name!r} is a part of a discrete vector ({kind}) with missing elements, and no "
            f"kernel moves them. {advice}"
        )
    if default_transform(whole.owner.op, whole) is not None:
        raise ModelError(
            f"{rv.name!r} is a part of a vector ({kind}) whose elements are tied by a constraint, "
            f"so the missing ones cannot be sampled one by one. {advice}"
        )
    if model.rvs_to_transforms[rv] is not None:
        raise ModelError(
            f"{rv.name!r} is a missing part of a vector, and has a transform: omit it."
        )


def _law(rv: Variable, observed: Variable, data: Variable) -> Imputed:
    """Take the closed conditional of normal vectors; else t's about what is observed."""
    whole, mask = rv.owner.inputs
    if isinstance(whole.owner.op, MvNormalRV):
        return _normal(rv, observed, *whole.owner.inputs[2:], mask=mask)
    values = np.asarray(constant_fold([data])[0], dtype=float)
    center = float(values.mean()) if values.size else 0.0
    scale = float(values.std()) if values.size > 1 else 0.0
    law = pm.StudentT.dist(DOF, mu=center, sigma=scale or 1.0 + abs(center), shape=rv.shape)
    return Imputed(observed.name, law, pm.logp(law, rv).sum())


def _solve(factor: Variable, vector: Variable, *, transposed: bool = False) -> Variable:
    """Solve for vectors, of shape (..., n), by lower triangular factors or their transposes."""
    matrix = factor.mT if transposed else factor
    return solve_triangular(matrix, vector[..., None], lower=not transposed)[..., 0]


def _normal(
    rv: Variable, observed: Variable, mean: Variable, cov: Variable, *, mask: Variable
) -> Imputed:
    """Conditional law of the missing elements of normal vectors, of any pattern in each.

    Their precision is their block of that of the whole vector, which is filled up here with ones
    for the observed elements. Their mean is off by what the precision makes of the observed
    residuals, over that block.
    """
    eye = pt.eye(mask.shape[-1])
    root = solve_triangular(cholesky(cov), eye, lower=True)
    precision = root.mT @ root
    mean = pt.broadcast_to(mean, mask.shape)
    residual = pt.zeros(mask.shape)[~mask].set(observed - mean[~mask])
    pushed = pt.switch(mask, (precision @ residual[..., None])[..., 0], 0.0)
    factor = cholesky(pt.switch(mask[..., :, None] & mask[..., None, :], precision, eye))
    center = mean - _solve(factor, _solve(factor, pushed), transposed=True)
    noise = pm.Normal.dist(shape=mask.shape)
    draw = (center + _solve(factor, noise, transposed=True))[mask]
    off = pt.zeros(mask.shape)[mask].set(rv - center[mask])
    white = (factor.mT @ off[..., None])[..., 0][mask]
    log_scale = pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)).sum()
    log_q = pm.logp(pm.Normal.dist(), white).sum() + log_scale
    return Imputed(observed.name, draw, log_q)
