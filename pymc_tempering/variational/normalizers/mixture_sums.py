"""Tempered normalizers of univariate mixtures: sums for counts, panels for densities."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    label_of,
    largest_temperature,
    log_normalizer,
)
from pymc_tempering.variational.normalizers.mixture_panels import (
    components_of,
    continuous_mixture,
    inner_temperature,
)
from pymc_tempering.variational.normalizers.normal_mixture import is_of_normals, normal_mixture
from pymc_tempering.variational.normalizers.sums import Window, closed_window, log_sum


@log_normalizer.register(MixtureRV)
def mixture(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum or integral of the power of the whole mixture."""
    components = components_of(rv)[1]
    discrete = np.dtype(rv.dtype).kind in "iub"
    atoms = [c for c in components if isinstance(c.owner.op, DiracDeltaRV)]
    if op.ndim_supp != 0 or len(atoms) > 1 or len(atoms) == len(components):
        what = "is multivariate" if op.ndim_supp else "has more than one DiracDelta"
        raise NormalizerError(
            f"No tempered normalizer is known for the mixture {label_of(rv)}: it {what}. "
            f"Of the fits, {WITHOUT_NORMALIZER}."
        )
    if discrete:
        return discrete_mixture(rv, temperature, atoms)
    if atoms:
        raise NormalizerError(
            f"The mixture {label_of(rv)} adds an atom (DiracDelta) to a density, which have no "
            "common integral. A hurdle distribution keeps them apart. Of the fits, "
            f"{WITHOUT_NORMALIZER}."
        )
    if is_of_normals(rv):
        return normal_mixture(rv, temperature)
    return continuous_mixture(rv, temperature)


@largest_temperature.register(MixtureRV)
def mixture_limit(op: Op, rv: Variable) -> Variable:
    """Return the smallest limit of a component."""
    components = components_of(rv)[1]
    limits = [pt.as_tensor(largest_temperature(c.owner.op, c)) for c in components]
    if len(components) == 1:
        return pt.min(limits[0], axis=-1) if limits[0].type.ndim else limits[0]
    smallest = limits[0]
    for limit in limits[1:]:
        smallest = pt.minimum(smallest, limit)
    return smallest


def union_of_windows(components: list[Variable], temperature: Variable) -> Window:
    """Window from the first to the last value that matters for any component of counts."""
    inner = inner_temperature(temperature, components)
    windows = [closed_window(c, inner) for c in components]

    def extreme(ends: list[Variable], pick: Callable, along: Callable) -> Variable:
        if len(components) == 1:
            return along(ends[0], axis=-1) if ends[0].type.ndim else ends[0]
        best = ends[0]
        for end in ends[1:]:
            best = pick(best, end)
        return best

    first = extreme([w.first for w in windows], pt.minimum, pt.min)
    last = extreme([w.last for w in windows], pt.maximum, pt.max)
    shapes = [w.shape for w in windows if w.shape is not None]
    shape = extreme(shapes, pt.maximum, pt.max) if len(shapes) == len(windows) else None
    return Window(first, last, first, pt.zeros_like(first), first, last, shape)


def discrete_mixture(rv: Variable, temperature: Variable, atoms: list[Variable]) -> Variable:
    """Sum over the union of the components' windows; an atom is added apart.

    With T >= 1 the power of a sum is at most the sum of the powers, so the tail beyond the union
    is at most the sum of the components' own.
    """
    if not atoms:
        return log_sum(rv, temperature, union_of_windows(components_of(rv)[1], temperature))
    components = [c for c in components_of(rv)[1] if c not in atoms]
    window = (
        union_of_windows(components, temperature)
        if len(components) > 1
        else closed_window(components[0], temperature)
    )
    (place,) = atoms[0].owner.op.dist_params(atoms[0].owner)
    at_atom = pm.logp(rv, place, warn_rvs=False) / temperature
    return pt.logaddexp(at_atom, log_sum(rv, temperature, window, excluded=place))
