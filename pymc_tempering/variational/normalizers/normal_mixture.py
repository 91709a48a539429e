"""Tempered normalizers of mixtures of normals, on panels whose ends have closed forms.

As in `mixture_panels`, but the modes, the widths and the places where another component becomes the
largest, roots of a quadratic, are known, so that some thousand evaluations for a search, most of
the panels and a first pass over the nodes are saved.
"""

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import params_of
from pymc_tempering.variational.normalizers.mixture_panels import (
    MixtureOnLine,
    components_of,
    nodes_of,
    on_line,
    per_component,
    stacked,
)
from pymc_tempering.variational.normalizers.panels import known_shape, log_sum_exp, with_checks

REACH = np.array([1.0, 2.5, 6.0, 16.0, 48.0])
"""Ends of panels on either side of a mode, in widths of the power."""

COLD = np.array([1.0, 2.5])
"""The same in widths of the density itself, which has to be 1 with the same nodes."""

BESIDE = np.array([1.0, 2.5, 6.0, 16.0, 40.0])
"""The same of a crossing, in lengths over which the difference of logs changes by 1."""

TINY = np.float64(1e-300)
"""Stands for zero where it would be divided by."""


def is_of_normals(rv: Variable) -> bool:
    """Whether all components are normals, in a number that is known."""
    weights, components = components_of(rv)
    known = len(components) > 1 or weights.type.shape[-1] is not None
    return known and all(isinstance(c.owner.op, rvs.NormalRV) for c in components)


def crossing_ends(mu: Variable, sigma: Variable, log_w: Variable) -> Variable:
    """Return ends of panels around points where two components are equal; arguments (K, batch).

    Where one is above the other throughout, around the point where they come closest.
    """
    first, second = np.triu_indices(mu.type.shape[0], 1)
    p, q = sigma[first] ** -2, sigma[second] ** -2
    a, b = 0.5 * (q - p), mu[first] * p - mu[second] * q
    c = 0.5 * (mu[second] ** 2 * q - mu[first] ** 2 * p)
    c = c + log_w[first] - log_w[second] + pt.log(sigma[second] / sigma[first])
    square = pt.maximum(b**2 - 4 * a * c, 0.0)
    half = -0.5 * (b + pt.switch(pt.ge(b, 0.0), 1.0, -1.0) * pt.sqrt(square))
    one = half / pt.switch(pt.eq(a, 0.0), TINY, a)
    other = pt.switch(pt.gt(square, 0.0), c / pt.switch(pt.eq(half, 0.0), TINY, half), one)
    unit = 1.0 / pt.sqrt(square + pt.abs(a) + TINY)
    unit = pt.minimum(unit, pt.minimum(sigma[first], sigma[second]))
    place = pt.stack([one, other])  # (2, pairs, batch)
    place = pt.switch(pt.or_(pt.isnan(place), pt.isinf(place)), mu[first], place)
    offsets = pt.shape_padright(pt.constant(np.r_[-BESIDE, 0.0, BESIDE]), mu.type.ndim + 1)
    return stacked(place + offsets * unit, 3)


def ends_of(mix: MixtureOnLine, temperature: Variable) -> Variable:
    """Sorted ends of panels along the first axis."""
    ones = pt.ones_like(mix.log_weights)
    mu, sigma = (
        mix.components_first(
            per_component(mix.components, lambda c, place=place: params_of(c)[place]) * ones
        )
        for place in (0, 1)
    )
    k = mix.log_weights.type.shape[-1] or mu.type.shape[0]
    cold = pt.zeros_like(temperature)  # the batch may be that of the temperature alone
    mu, sigma = (known_shape(x, (k, *x.type.shape[1:])) + cold for x in (mu, sigma))
    width = sigma * np.sqrt(2 * np.pi)
    hot = width * pt.sqrt(temperature)

    def beside(steps: np.ndarray) -> Variable:
        return pt.shape_padright(pt.constant(np.r_[-steps, steps]), mu.type.ndim)

    ends = [mu[None], mu + beside(COLD) * width, mu + beside(REACH) * hot]
    ends = [stacked(each, 2) for each in ends]
    if k > 1:
        log_w = mix.components_first(mix.log_weights) + pt.zeros_like(mu)
        ends.append(crossing_ends(mu, sigma, log_w))
    cuts = pt.concatenate(ends, axis=0)
    limit = 0.999 * mix.line.limit
    return disconnected_grad(
        pt.clip(known_shape(pt.sort(cuts, axis=0), cuts.type.shape), -limit, limit)
    )


def normal_mixture(rv: Variable, temperature: Variable) -> Variable:
    """Clenshaw-Curtis on panels, see the top of this file."""
    mix = on_line(rv, temperature)
    nodes = nodes_of(ends_of(mix, temperature), mix.ndim)
    log_p = mix.log_density(nodes.y)
    power = log_p / temperature
    total = log_sum_exp(power + nodes.log_weight)
    coarse = log_sum_exp(power + nodes.log_coarse)
    at_one = log_sum_exp(disconnected_grad(log_p) + nodes.log_weight)
    outer = pt.maximum(power[0], power[-1]) + pt.log(nodes.y[-1] - nodes.y[0])
    return with_checks(rv, total, coarse, at_one, disconnected_grad(outer - total))
