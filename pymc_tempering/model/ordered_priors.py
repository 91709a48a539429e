"""Priors with an `ordered` transform: what normalizes them, and draws that are in order.

PyMC's density is that of the elements without the order. The prior meant is their law given that
they are in order, so log P(ordered | parents) is subtracted: of 1 / k! where all k elements have
the same law, and of an integral where they differ.

P(x_1 < ... < x_K) is the last of the integrals G_k(x) = int_-inf^x f_k(t) G_(k-1)(t) dt, where G_0
is 1. Given x_(k+1), and the order, x_k has the distribution function G_k(x) / G_k(x_(k+1)), so that
draws go from the last to the first.
"""

from collections.abc import Collection, Sequence
from math import lgamma, prod
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.gradient
import pytensor.tensor as pt
from numpy.polynomial import legendre
from pymc.distributions.transforms import Ordered
from pymc.logprob.transforms import LogOddsTransform, LogTransform, Transform
from pymc.logprob.utils import CheckParameterValue as Checked
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_tempering.borrowed.private import default_transform
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.layout import (
    before_order,
    ordered_transform,
    transform_parts,
    unconstrained_shapes,
)
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.python_mode import compile_alone

LOGITS = np.linspace(-24.0, 24.0, 25)
"""Log odds of the quantiles of each element, between which a panel lies."""

BEYOND = 8
"""Panels beyond the outermost quantiles on each side, as wide as the last one between them."""

CLIP = -700.0, 36.0
"""Log odds between which a share is neither 0 nor 1 in floating point."""

NODES = 6
"""Gauss-Legendre nodes in a panel."""

CELLS = 64
"""Cells of a panel, within which draws are uniform."""

MAX_LOST = 1e-4
"""Largest error of an element's total mass on the panels, beyond which the constant is NaN."""

LEAST = 1e-40
"""Least P(ordered) up to which the panels lie where the mass is."""


def _integrals(ends: np.ndarray) -> np.ndarray:
    """Matrix from the values at the nodes in [-1, 1] to the integrals from -1 to some ends."""
    nodes, power = legendre.leggauss(NODES)[0], np.arange(NODES) + 1.0
    of_powers = (ends[:, None] ** power - (-1.0) ** power) / power
    return np.linalg.solve(np.vander(nodes, increasing=True).T, of_powers.T).T


class OrderedLaw(NamedTuple):
    """Graphs of the ordered law of an array of independent elements, row by row.

    A row is what lies along the last axis. Elements are numbered from the smallest to the largest,
    in the coordinate that is put in order.

    Attributes
    ----------
    edges : Variable, shape (panels + 1, rows)
        Borders of the panels.
    densities : Variable, shape (elements, nodes, panels, rows)
        f_k G_(k-1) at the nodes, for each k.
    totals : Variable, shape (elements, panels + 1, rows)
        G_k at the borders, for each k.
    log_probability : Variable
        Sum of log P(ordered) over the rows; NaN where the panels do not hold the mass.
    """

    edges: Variable
    densities: Variable
    totals: Variable
    log_probability: Variable


def _unchecked(graph: Variable) -> Variable:
    """Graph without PyMC's checks of parameters, which raise where a scale is rounded to 0."""
    while found := [v for v in ancestors([graph]) if v.owner and isinstance(v.owner.op, Checked)]:
        [graph] = graph_replace([graph], {found[0]: found[0].owner.inputs[0]}, strict=False)
    return graph


def _coordinate(model: pm.Model, rv: Variable) -> Transform | None:
    """Transform to what is put in order, or to what has the same order and a smoother density."""
    before, default = before_order(model, rv), default_transform(rv.owner.op, rv)
    smooth = default if isinstance(default, LogTransform | LogOddsTransform) else None
    return smooth if before is None else before


def _borders(rv: Variable, shape: tuple[int, ...], transform: Transform | None) -> Variable:
    """Quantiles of all elements of a row, and of what lies beyond, sorted; (panels + 1, rows)."""
    levels = np.concatenate([[0.0], 1.0 / (1.0 + np.exp(-LOGITS)), [1.0]])
    x = _unchecked(pm.icdf(rv, levels.reshape(-1, *(1 for _ in shape))))
    x = x + pt.zeros((levels.size, *shape))
    z = x if transform is None else transform.forward(x, *rv.owner.inputs)
    known = pt.switch(pt.isinf(z) | pt.isnan(z), z[levels.size // 2], z)
    steps = np.arange(1.0, BEYOND + 1.0).reshape(-1, *(1 for _ in shape))
    low = known[1] - steps * (known[2] - known[1])
    high = known[-2] + steps * (known[-2] - known[-3])
    joined = pt.concatenate([low, known, high])
    if any(isinstance(part, LogOddsTransform) for part in transform_parts(transform)):
        joined = pt.clip(joined, *CLIP)
    joined = pt.moveaxis(joined, -1, 0).reshape((-1, prod(shape[:-1])))
    return pytensor.gradient.disconnected_grad(pt.sort(joined, axis=0))


def ordered_law(
    rv: Variable, shape: tuple[int, ...], order: Ordered, transform: Transform | None = None
) -> OrderedLaw:
    """Make the ordered law of a random variable with independent elements.

    Parameters
    ----------
    rv : Variable
        With a law whose quantiles PyMC knows.
    shape : tuple of int
    order : Ordered
        Says whether values ascend.
    transform : Transform, optional
        To what is put in order.

    Raises
    ------
    NotImplementedError
        PyMC knows no quantiles, or no density, of the law.
    """
    inputs = rv.owner.inputs
    points, weights = legendre.leggauss(NODES)
    edges = _borders(rv, shape, transform)
    middle, half = (edges[1:] + edges[:-1]) / 2.0, (edges[1:] - edges[:-1]) / 2.0
    z = (middle + points[:, None, None] * half).reshape((NODES, -1, *shape[:-1], 1))
    x = z if transform is None else transform.backward(z, *inputs)
    log_f = _unchecked(pm.logp(rv, x))
    log_f = log_f if transform is None else log_f + transform.log_jac_det(z, *inputs)
    log_f = log_f + pt.zeros((NODES, 1, *shape))
    f = pt.exp(log_f).reshape((NODES, -1, prod(shape[:-1]), shape[-1]))
    mass = pt.tensordot(weights, f, axes=1) * half[..., None]
    lost = pt.abs(mass.sum(axis=0) - 1.0).max()
    at_nodes, before = _integrals(points), pt.ones_like(f[..., 0])
    densities, totals = [], []
    for k in range(shape[-1])[:: 1 if order.ascending else -1]:
        g = f[..., k] * before
        total = pt.cumsum(pt.tensordot(weights, g, axes=1) * half, axis=0)
        total = pt.concatenate([pt.zeros_like(total[:1]), total])
        before = total[:-1] + pt.tensordot(at_nodes, g, axes=1) * half
        densities.append(g)
        totals.append(total)
    sound = (lost < MAX_LOST) & pt.all(totals[-1][-1] > LEAST)
    log_probability = pt.switch(sound, pt.log(totals[-1][-1]).sum(), np.nan)
    return OrderedLaw(edges, pt.stack(densities), pt.stack(totals), log_probability)


def _is_independent(model: pm.Model, rv: Variable) -> bool:
    """Whether the elements are independent, and the transform cuts nothing off but the order."""
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp != 0:
        return False
    order = ordered_transform(model, rv)
    positive = isinstance(default_transform(op, rv), LogTransform | LogOddsTransform)
    return not (order and order.positive) or (positive and before_order(model, rv) is None)


def _is_exchangeable(model: pm.Model, rv: Variable) -> bool:
    """Whether a univariate prior is the same for all elements along the last axis."""
    if not _is_independent(model, rv):
        return False
    for param in rv.owner.op.dist_params(rv.owner):
        if param.type.ndim == 0 or param.type.shape[-1] == 1:
            continue
        value = getattr(param, "data", None)
        if value is None or not np.all(value == value[..., :1]):
            return False
    return True


def _has_constant_parents(model: pm.Model, rv: Variable, live: Variable | None = None) -> bool:
    """Whether no parent is a free variable, or the data container that counts as one."""
    return not set(ancestors(rv.owner.inputs)) & {*model.free_RVs, live}


def _shape_of(model: pm.Model, rv: Variable) -> tuple[int, ...]:
    return unconstrained_shapes(model)[model.free_RVs.index(rv)]


def _law_of(
    model: pm.Model, rv: Variable, live: Variable | None = None, fresh: Variable | None = None
) -> OrderedLaw | None:
    """Ordered law of a variable, as numbers where its parents are constants; None if not known.

    `fresh` is the variable with its parents drawn.
    """
    order = ordered_transform(model, rv)
    if order is None or not _is_independent(model, rv):
        return None
    try:
        shape, transform = _shape_of(model, rv), _coordinate(model, rv)
        law = ordered_law(rv if fresh is None else fresh, shape, order, transform)
    except NotImplementedError:
        return None
    if not _has_constant_parents(model, rv, live):
        return law

    def computed() -> OrderedLaw | None:
        numbers = compile_alone([], model.replace_rvs_by_values([*law]))()
        return OrderedLaw(*map(pt.constant, numbers)) if np.isfinite(numbers[-1]) else None

    return remembered(model, ("ordered law", rv.name), computed)


def _with_unlike_elements(model: pm.Model) -> list[Variable]:
    """Free variables with an ordered prior whose elements do not all have the same law."""
    ordered = [rv for rv in model.free_RVs if ordered_transform(model, rv) is not None]
    return [rv for rv in ordered if not _is_exchangeable(model, rv)]


def unknown_orders(model: pm.Model) -> tuple[str, ...]:
    """Free variables with constant parents whose P(ordered) takes a run.

    Their elements are not independent, or PyMC knows no quantiles of their law.
    """
    return tuple(
        rv.name
        for rv in _with_unlike_elements(model)
        if _has_constant_parents(model, rv) and _law_of(model, rv) is None
    )


def log_orderings_of(
    model: pm.Model,
    shapes: Sequence[tuple[int, ...]],
    without: Collection[str] = (),
    live: Variable | None = None,
) -> Variable:
    """Graph of -log P(ordered | parents) of all ordered priors, in terms of the value variables.

    Parameters
    ----------
    model : pymc.Model
    shapes : sequence of tuple of int
        Of the value variables.
    without : collection of str, optional
        Names of variables that are left out.
    live : Variable, optional
        A data container that the graph keeps.

    Raises
    ------
    ModelError
        P(ordered | parents) of some prior is not known.
    """
    total = pt.constant(0.0)
    for rv, shape in zip(model.free_RVs, shapes, strict=True):
        if ordered_transform(model, rv) is None or rv.name in without:
            continue
        if _is_exchangeable(model, rv):
            total = total + prod(shape[:-1]) * lgamma(shape[-1] + 1)
            continue
        if (law := _law_of(model, rv, live)) is None:
            raise ModelError(
                f"The prior of {rv.name!r} is ordered, its elements are not independent with the "
                "same law, and its probability that they are in order, which normalizes it, is not "
                "known for each value of its parents. Give all elements the same prior, parents "
                "that are constants, or build the order from a first element and positive "
                "differences."
            )
        [log_p] = model.replace_rvs_by_values([law.log_probability])
        total = total - log_p
    return total


def draw_in_order(model: pm.Model, rv: Variable, fresh: Variable) -> Variable:
    """Graph of a draw of an ordered prior; `fresh` is the variable with its parents drawn.

    Where the elements differ, each is drawn given those above it.
    """
    order, transform = ordered_transform(model, rv), _coordinate(model, rv)
    assert order is not None
    if _is_exchangeable(model, rv):
        value = pt.sort(fresh, axis=-1)
        return value if order.ascending else value[..., ::-1]
    law, shape = _law_of(model, rv, fresh=fresh), _shape_of(model, rv)
    assert law is not None
    cells, rows = _integrals(np.linspace(-1.0, 1.0, CELLS + 1)), pt.arange(prod(shape[:-1]))
    u = pm.Uniform.dist(0.0, 1.0, shape=(shape[-1], prod(shape[:-1])))
    half = (law.edges[1:] - law.edges[:-1]) / 2.0
    bound, drawn = law.totals[-1, -1], list[Variable]()
    for k in range(shape[-1])[::-1]:
        sought = u[k] * bound
        panel = pt.minimum((law.totals[k, 1:] <= sought).sum(axis=0), half.shape[0] - 1)
        inside = _inside(law, k, panel, cells)
        cell = pt.minimum((inside[1:] <= sought).sum(axis=0), CELLS - 1)
        low, high = inside[cell, rows], inside[cell + 1, rows]
        part = pt.clip((sought - low) / pt.maximum(high - low, 1e-300), 0.0, 1.0)
        drawn.append(law.edges[panel, rows] + 2.0 * half[panel, rows] * (cell + part) / CELLS)
        if k:
            inside = _inside(law, k - 1, panel, cells)
            bound = inside[cell, rows] + part * (inside[cell + 1, rows] - inside[cell, rows])
    z = pt.stack(drawn[::-1] if order.ascending else drawn, axis=-1).reshape(shape)
    return z if transform is None else transform.backward(z, *fresh.owner.inputs)


def _inside(law: OrderedLaw, k: int, panel: Variable, cells: np.ndarray) -> Variable:
    """G_k at the borders of the cells of a panel of each row, (cells + 1, rows)."""
    rows = pt.arange(panel.shape[0])
    half = (law.edges[panel + 1, rows] - law.edges[panel, rows]) / 2.0
    g = law.densities[k][:, panel, rows]
    return law.totals[k, panel, rows] + pt.dot(cells, g) * half


def said_of_orders(model: pm.Model) -> list[str]:
    """Return a sentence for each ordered prior whose P(ordered) is an integral."""
    said = []
    for rv in _with_unlike_elements(model):
        if not _has_constant_parents(model, rv):
            value = "P(ordered | parents) is a part of its density"
        elif law := _law_of(model, rv):
            value = f"P(ordered) = {np.exp(float(law.log_probability.eval())):.4g}, computed once"
        else:
            value = "P(ordered) takes a run of its own"
        said.append(f"The prior of {rv.name!r} is its law given that it is in order: {value}.")
    return said
