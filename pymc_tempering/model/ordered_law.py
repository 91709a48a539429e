"""The law of independent variables given that they are in order: its constant and its draws.

P(x_1 < ... < x_K) is the last of the integrals G_k(x) = int_-inf^x f_k(t) G_(k-1)(t) dt, where G_0
is 1. Given x_(k+1), and the order, x_k has the distribution function G_k(x) / G_k(x_(k+1)), so that
draws go from the last to the first.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.gradient
import pytensor.tensor as pt
from numpy.polynomial import Polynomial, legendre
from pymc.distributions.transforms import Ordered
from pymc.logprob.transforms import LogOddsTransform, LogTransform, Transform
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_tempering.borrowed.private import default_transform
from pymc_tempering.model.transforms import transform_parts

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
    nodes, _ = legendre.leggauss(NODES)
    rows = []
    for i in range(NODES):
        others = np.delete(nodes, i)
        basis = Polynomial.fromroots(others) / np.prod(nodes[i] - others)
        rows.append(basis.integ(lbnd=-1.0)(ends))
    return np.transpose(rows)


@dataclass(frozen=True, eq=False)
class OrderedLaw:
    """Graphs of the ordered law of an array of independent elements, row by row.

    A row is what lies along the last axis. Elements are numbered from the smallest to the largest,
    in the coordinate that is put in order.

    Attributes
    ----------
    edges : Variable, shape (panels + 1, rows)
        Borders of the panels.
    densities : tuple of Variable, shape (nodes, panels, rows)
        f_k G_(k-1) at the nodes, for each k.
    totals : tuple of Variable, shape (panels + 1, rows)
        G_k at the borders.
    log_probability : Variable
        Sum of log P(ordered) over the rows; NaN where the panels do not hold the mass.
    """

    edges: Variable
    densities: tuple[Variable, ...]
    totals: tuple[Variable, ...]
    log_probability: Variable


def _unchecked(graph: Variable) -> Variable:
    """Graph without PyMC's checks of parameters, which raise where a scale is rounded to 0."""
    while True:
        checked = [v.owner for v in ancestors([graph]) if v.owner]
        check = next((node for node in checked if isinstance(node.op, CheckParameterValue)), None)
        if check is None:
            return graph
        [graph] = graph_replace([graph], {check.outputs[0]: check.inputs[0]}, strict=False)


def _coordinate(rv: Variable, before: Transform | None) -> Transform | None:
    """Transform to what is put in order, or to what has the same order and a smoother density."""
    if before is not None:
        return before
    default = default_transform(rv.owner.op, rv)
    return default if isinstance(default, LogTransform | LogOddsTransform) else None


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
    joined = pt.moveaxis(joined, -1, 0).reshape((-1, int(np.prod(shape[:-1], dtype=int))))
    return pytensor.gradient.disconnected_grad(pt.sort(joined, axis=0))


def ordered_law(
    rv: Variable, shape: tuple[int, ...], order: Ordered, before: Transform | None = None
) -> OrderedLaw:
    """Make the ordered law of a random variable with independent elements.

    Parameters
    ----------
    rv : Variable
        With a law whose quantiles PyMC knows.
    shape : tuple of int
    order : Ordered
        Says whether values ascend.
    before : Transform, optional
        Of what is put in order.

    Raises
    ------
    NotImplementedError
        PyMC knows no quantiles, or no density, of the law.
    """
    transform, inputs = _coordinate(rv, before), rv.owner.inputs
    points, weights = legendre.leggauss(NODES)
    edges = _borders(rv, shape, transform)
    middle, half = (edges[1:] + edges[:-1]) / 2.0, (edges[1:] - edges[:-1]) / 2.0
    z = (middle + points[:, None, None] * half).reshape((NODES, -1, *shape[:-1], 1))
    x = z if transform is None else transform.backward(z, *inputs)
    log_f = _unchecked(pm.logp(rv, x))
    log_f = log_f if transform is None else log_f + transform.log_jac_det(z, *inputs)
    log_f = log_f + pt.zeros((NODES, 1, *shape))
    f = pt.exp(log_f).reshape((NODES, -1, int(np.prod(shape[:-1], dtype=int)), shape[-1]))
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
    return OrderedLaw(edges, tuple(densities), tuple(totals), log_probability)


def ordered_draw(
    law: OrderedLaw,
    rv: Variable,
    shape: tuple[int, ...],
    order: Ordered,
    before: Transform | None = None,
) -> Variable:
    """Draw from an ordered law, each element given those above it."""
    cells = _integrals(np.linspace(-1.0, 1.0, CELLS + 1))
    rows = pt.arange(int(np.prod(shape[:-1], dtype=int)))
    u = pm.Uniform.dist(0.0, 1.0, shape=(shape[-1], int(np.prod(shape[:-1], dtype=int))))
    half = (law.edges[1:] - law.edges[:-1]) / 2.0
    bound, drawn = law.totals[-1][-1], list[Variable]()
    for k in range(shape[-1])[::-1]:
        sought = u[k] * bound
        panel = pt.minimum((law.totals[k][1:] <= sought).sum(axis=0), half.shape[0] - 1)
        inside = _inside(law, k, panel, cells)
        cell = pt.minimum((inside[1:] <= sought).sum(axis=0), CELLS - 1)
        low, high = inside[cell, rows], inside[cell + 1, rows]
        part = pt.clip((sought - low) / pt.maximum(high - low, 1e-300), 0.0, 1.0)
        drawn.append(law.edges[panel, rows] + 2.0 * half[panel, rows] * (cell + part) / CELLS)
        if k:
            inside = _inside(law, k - 1, panel, cells)
            bound = inside[cell, rows] + part * (inside[cell + 1, rows] - inside[cell, rows])
    z = pt.stack(drawn[::-1] if order.ascending else drawn, axis=-1).reshape(shape)
    transform = _coordinate(rv, before)
    return z if transform is None else transform.backward(z, *rv.owner.inputs)


def _inside(law: OrderedLaw, k: int, panel: Variable, cells: np.ndarray) -> Variable:
    """G_k at the borders of the cells of a panel of each row, (cells + 1, rows)."""
    rows = pt.arange(panel.shape[0])
    half = (law.edges[panel + 1, rows] - law.edges[panel, rows]) / 2.0
    g = law.densities[k][:, panel, rows]
    return law.totals[k][panel, rows] + pt.dot(cells, g) * half
