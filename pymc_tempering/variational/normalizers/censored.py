"""Tempered normalizers of hurdle, censored and partly observed variables.

Such a variable has a density and atoms, single values with a probability of their own. An atom
adds its probability to the power 1 / T to the integral over the rest.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.truncated import TruncatedRV
from pymc.logprob.basic import logccdf
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op

from pymc_tempering.borrowed.pymc_models import HurdleRV
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.branches import compact_normalizer
from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    is_unbounded,
    label_of,
    largest_temperature,
    log_normalizer,
)
from pymc_tempering.variational.normalizers.panels import integrate_power
from pymc_tempering.variational.normalizers.sums import between, closed_window, log_sum
from pymc_tempering.variational.normalizers.support import (
    base_of,
    center_of,
    intersect,
    line_onto,
    moved_inside,
    support_of,
)


@log_normalizer.register(HurdleRV)
def hurdle(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Zero or something else: the two never coincide, so their integrals add up."""
    _, weights, _, other = rv.owner.inputs
    at_zero = pt.log(weights[..., 0]) / temperature
    return pt.logaddexp(
        at_zero, pt.log(weights[..., 1]) / temperature + compact_normalizer(other, temperature)
    )


@largest_temperature.register(HurdleRV)
def hurdle_limit(op: Op, rv: Variable) -> Variable:
    """Return the limit of the part that is not zero."""
    other = rv.owner.inputs[3]
    return largest_temperature(other.owner.op, other)


@log_normalizer.register(CensoredRV)
def censored(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Add up the integral between the bounds and the masses at the bounds."""
    base, *bounds = rv.owner.inputs
    lower, upper = (b if is_unbounded(b) else b.astype("float64") for b in bounds)
    discrete = np.dtype(base.dtype).kind in "iub"
    log_atoms = []
    if not is_unbounded(lower):
        log_atoms.append(pm.logcdf(base, lower, warn_rvs=False))
    if not is_unbounded(upper):
        log_atoms.append(logccdf(base, upper - 1 if discrete else upper, warn_rvs=False))
    if discrete:
        inner = between(
            closed_window(base, temperature),
            None if is_unbounded(lower) else pt.floor(lower) + 1,
            None if is_unbounded(upper) else pt.ceil(upper) - 1,
        )
        total = log_sum(base, temperature, inner)
        for log_atom in log_atoms:
            total = pt.logaddexp(total, log_atom / temperature)
        return total
    ends = intersect(support_of(base.owner.op, base), lower, upper)
    return integrate_power(
        base.owner.op,
        base,
        line_onto(*ends),
        temperature,
        max(rv.type.ndim, temperature.type.ndim),
        moved_inside(center_of(base.owner.op, base), *ends),
        log_atoms,
    )


def _limit_between(base: Variable, lower: Variable, upper: Variable) -> Variable:
    """Limit of a variable whose bounds cut off one tail or both."""
    low, high = intersect(support_of(base.owner.op, base), lower, upper)
    if is_unbounded(low) or is_unbounded(high):
        return largest_temperature(base.owner.op, base)
    return pt.constant(np.inf)


@largest_temperature.register(CensoredRV)
def censored_limit(op: Op, rv: Variable) -> Variable:
    """Return the limit of the base, unless no tail is left."""
    return _limit_between(*rv.owner.inputs)


@largest_temperature.register(TruncatedRV)
def truncated_limit(op: Op, rv: Variable) -> Variable:
    """Return the limit of the base, unless no tail is left."""
    if np.dtype(rv.dtype).kind in "iub":
        return pt.constant(np.inf)
    return _limit_between(base_of(rv), *rv.owner.inputs[-2:])


@log_normalizer.register(PartialObservedRV)
def partly_observed(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Return the normalizers of the elements that are observed."""
    base, mask = rv.owner.inputs
    if base.owner.op.ndim_supp != 0 or temperature.type.ndim > 0:
        raise NormalizerError(
            f"No tempered normalizer is known for {label_of(rv)}: some of its values are missing. "
            f"Of the fits, {WITHOUT_NORMALIZER}."
        )
    shape = [s if s is not None else base.shape[axis] for axis, s in enumerate(base.type.shape)]
    full = pt.broadcast_to(compact_normalizer(base, temperature), tuple(shape))
    return full[pt.invert(mask)]
