"""Integrals of up to four dimensions, one for each state of discrete unknowns, by refinement.

Boxes are split where the rules of degree 7 and 5 of Genz & Malik (1980) differ, or in one dimension
those of Gauss and Kronrod, until the sum of the differences is small. Points that have climbed to
the modes and walked about them go before, and a box that holds one which its nodes do not see is
split, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from scipy.special import logsumexp

type Array = np.ndarray
type LogDensity = Callable[[Array, Array], Array]
"""Log density at coordinates (n, d), in states (n,)."""

REACH = 40.0
"""The coordinates go from -REACH to REACH."""
CUTS = {1: 12, 2: 10, 3: 8, 4: 6}
"""Boxes along each axis at first, by dimension."""
UNSEEN, NEGLIGIBLE = 0.7, 9.0
"""Nats by which a point lies above the nodes of its box, and below the highest point."""
CHUNK = 40_000
WANTED = 0.005
"""Nats to which an integral is wanted."""
ROUNDS = 400
"""Of splitting, at most."""
CLIMB, WALK, POINTS = 250, 50, 1500
"""Steps up to the modes, steps about them, and how many points of these are kept."""


@dataclass(frozen=True)
class Integral:
    """Log of an integral, and by how much it changed when it was refined once more."""

    log_value: float
    error: float
    evaluations: int


@dataclass(frozen=True)
class Rule:
    """Nodes in [-1, 1]^d, weights of two rules for the mean, and where the axes are probed."""

    nodes: Array
    weights: Array
    rough: Array
    probes: Array


@cache
def rule_of(dim: int) -> Rule:
    """Genz and Malik's rule, or Gauss and Kronrod's in one dimension."""
    if dim == 1:
        return _gauss_kronrod()
    unit = np.eye(dim)
    a, b, c = np.sqrt(9 / 70), np.sqrt(9 / 10), np.sqrt(9 / 19)
    axes = [s * r * e for e in unit for r in (a, b) for s in (1, -1)]
    pairs = [
        b * (s * unit[i] + t * unit[j])
        for i in range(dim) for j in range(i) for s in (1, -1) for t in (1, -1)
    ]  # fmt: skip
    corners = [c * np.array(signs) for signs in product((1, -1), repeat=dim)]
    nodes = np.array([np.zeros(dim), *axes, *pairs, *corners])
    full = [980 / 6561] * 2 + [(1820 - 400 * dim) / 19683] * 2
    half = [245 / 486] * 2 + [(265 - 100 * dim) / 1458] * 2
    weights = [(12824 - 9120 * dim + 400 * dim**2) / 19683, *full * dim]
    weights += [200 / 19683] * len(pairs) + [6859 / 19683 / 2**dim] * len(corners)
    rough = [(729 - 950 * dim + 50 * dim**2) / 729, *half * dim]
    rough += [25 / 729] * len(pairs) + [0.0] * len(corners)
    probes = np.zeros((dim, len(nodes)))
    ratio = (9 / 70) / (9 / 10)
    for i in range(dim):
        probes[i, 0] = -2 + 2 * ratio
        probes[i, 1 + 4 * i : 5 + 4 * i] = [1, 1, -ratio, -ratio]
    return Rule(nodes, np.array(weights), np.array(rough), probes)


def _gauss_kronrod() -> Rule:
    x = [0.991455371120812639206854697526329, 0.949107912342758524526189684047851,
         0.864864423359769072789712788640926, 0.741531185599394439863864773280788,
         0.586087235467691130294144691693410, 0.405845151377397166906606412076961,
         0.207784955007898467600689403773245]  # fmt: skip
    w = [0.022935322010529224963732008058970, 0.063092092629978553290700663189204,
         0.104790010322250183839876322541518, 0.140653259715525918745189590510238,
         0.169004726639267902826583426598550, 0.190350578064785409913256402421014,
         0.204432940075298892414161999234649]  # fmt: skip
    gauss = np.polynomial.legendre.leggauss(7)[1] / 2
    nodes = np.array([*(-v for v in x), 0.0, *x[::-1]])
    weights = np.array([*w, 0.209482141084727828012999174891714, *w[::-1]]) / 2
    rough = np.zeros(15)
    rough[1::2] = gauss
    return Rule(nodes[:, None], weights, rough, np.ones((1, 15)))


@dataclass(frozen=True)
class Boxes:
    """Boxes with what the rules say of each, in units of exp(`scale`) of `integrate`."""

    state: Array
    centre: Array
    half: Array
    value: Array
    error: Array
    axis: Array
    highest: Array

    def __getitem__(self, which: Array) -> "Boxes":
        return Boxes(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def __add__(self, other: "Boxes") -> "Boxes":
        pairs = ((getattr(self, n), getattr(other, n)) for n in self.__dataclass_fields__)
        return Boxes(*(np.concatenate(pair) for pair in pairs))


def measure(log_f: LogDensity, scale: float, state: Array, centre: Array, half: Array) -> Boxes:
    """Apply the rules to boxes."""
    rule = rule_of(centre.shape[1])
    n = len(rule.nodes)
    step = max(1, CHUNK // n)
    logs = np.empty((len(state), n))
    for at in range(0, len(state), step):
        part = slice(at, at + step)
        x = centre[part, None] + half[part, None] * rule.nodes
        flat = log_f(x.reshape(-1, x.shape[2]), np.repeat(state[part], n))
        logs[part] = flat.reshape(-1, n)
    f = np.exp(np.minimum(logs - scale, 500.0))
    volume = np.prod(2 * half, axis=1)
    value = volume * (f @ rule.weights)
    error = np.abs(value - volume * (f @ rule.rough))
    probes = np.abs(f @ rule.probes.T)
    # Where the axes differ by nothing the longest one is split.
    axis = np.argmax(probes + 1e-3 * probes.max(axis=1, keepdims=True) * half / REACH, axis=1)
    flat_ones = probes.max(axis=1) == 0
    axis[flat_ones] = np.argmax(half[flat_ones], axis=1)
    return Boxes(state, centre, half, value, error, axis, logs.max(axis=1))


def split(log_f: LogDensity, scale: float, boxes: Boxes) -> Boxes:
    """Halve boxes, each along its axis."""
    rows = np.arange(len(boxes.state))
    half = boxes.half.copy()
    half[rows, boxes.axis] /= 2
    move = np.zeros_like(half)
    move[rows, boxes.axis] = half[rows, boxes.axis]
    centre = np.concatenate([boxes.centre - move, boxes.centre + move])
    return measure(log_f, scale, np.tile(boxes.state, 2), centre, np.tile(half, (2, 1)))


@dataclass(frozen=True)
class Points:
    """Where the density is known to be high, and how high."""

    x: Array
    state: Array
    height: Array


def high_points(log_f: LogDensity, starts: Points, rng: np.random.Generator) -> Points:
    """Climb from some points by random steps, longer after each that went up; then walk about."""
    x, state, height = starts.x.copy(), starts.state, starts.height.copy()
    sizes, seen = np.full(len(x), 0.5), []
    for turn in range(CLIMB + WALK):
        step = sizes[:, None] * rng.standard_t(3, size=x.shape)
        if turn % 2:  # along one axis
            step *= rng.permuted(np.tile(np.eye(x.shape[1])[0], (len(x), 1)), axis=1)
        new = np.clip(x + step, -REACH, REACH)
        higher = log_f(new, state)
        taken = higher > height - (rng.exponential(size=len(x)) if turn >= CLIMB else 0.0)
        x[taken], height[taken] = new[taken], higher[taken]
        sizes = np.clip(sizes * np.where(taken, 2.0, 0.84), 1e-7, 5.0)
        if turn >= CLIMB and turn % 5 == 0:
            seen.append((x.copy(), state, height.copy()))
    points = Points(*(np.concatenate(each) for each in zip(*seen, strict=True)))
    kept = np.flatnonzero(points.height > points.height.max(initial=-np.inf) - NEGLIGIBLE)
    kept = rng.permutation(kept)[:POINTS]
    return Points(points.x[kept], points.state[kept], points.height[kept])


def _starts(boxes: Boxes, each: int, most: int) -> Points:
    """Centres of the boxes with the highest nodes: so many of each state, and in all."""
    order = np.lexsort((-boxes.highest, boxes.state))
    first = np.r_[True, np.diff(boxes.state[order]) > 0]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    kept = order[np.arange(len(order)) - begin < each]
    kept = kept[np.argsort(-boxes.highest[kept])][:most]
    kept = kept[np.isfinite(boxes.highest[kept])]
    return Points(boxes.centre[kept], boxes.state[kept], np.full(len(kept), -np.inf))


def _blind(boxes: Boxes, points: Points) -> Array:
    """Whether boxes hold a point that their nodes do not see."""
    blind = np.zeros(len(boxes.state), bool)
    for at, where, top in zip(points.x, points.state, points.height, strict=True):
        rows = np.flatnonzero((boxes.state == where) & (boxes.highest < top - UNSEEN))
        inside = np.all(np.abs(boxes.centre[rows] - at) <= boxes.half[rows], axis=1)
        blind[rows[inside]] = True
    return blind


def integrate(
    log_f: LogDensity,
    dim: int,
    n_states: int = 1,
    tolerance: float = 1e-3,
    budget: int = 2_000_000,
    seed: int = 0,
) -> Integral:
    """Integrate exp(log_f) over [-REACH, REACH]^dim and sum over the states.

    Two sizes: other boxes at first, other points, and half the tolerance. Their difference is the
    error; where it is above `WANTED` there are up to two sizes more.
    """
    states = np.arange(n_states)
    if dim == 0:
        return Integral(float(logsumexp(log_f(np.zeros((n_states, 0)), states))), 0.0, n_states)
    used, error = 0, np.inf
    before: Integral | None = None
    for finer in range(4):
        first = _first_boxes(dim, n_states, finer)
        now = _refined(log_f, first, tolerance / 2**finer, budget, seed)
        used += now.evaluations
        if before is not None:
            change = abs(now.log_value - before.log_value)
            error = float(max(change if np.isfinite(change) else np.inf, now.error))
            if error < WANTED or used > budget:
                break
        before = now
    return Integral(now.log_value, error, used)


def _first_boxes(dim: int, n_states: int, finer: int) -> tuple[Array, Array, Array]:
    """States, centres and halves; small where densities change, as coordinates far out are logs."""
    count = CUTS[dim] + finer
    edges = REACH * np.sign(s := np.linspace(-1, 1, count + 1)) * np.abs(s) ** 2.5
    grid = np.array(list(product(range(count), repeat=dim)))
    state = np.repeat(np.arange(n_states), len(grid))
    middles, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return state, np.tile(middles[grid], (n_states, 1)), np.tile(halves[grid], (n_states, 1))


def _refined(
    log_f: LogDensity,
    first: tuple[Array, Array, Array],
    tolerance: float,
    budget: int,
    seed: int,
) -> Integral:
    """Split boxes until the rules agree; what they still differ by at the end of the budget."""
    boxes = measure(log_f, 0.0, *first)
    n, nodes = len(first[0]), len(rule_of(boxes.centre.shape[1]).nodes)
    if not np.isfinite(boxes.highest).any():
        return Integral(-np.inf, np.inf, n * nodes)
    points = high_points(log_f, _starts(boxes, 8, 400), np.random.default_rng([seed, n]))
    scale = max(points.height.max(initial=-np.inf), boxes.highest.max())
    if not np.isfinite(scale):
        return Integral(-np.inf, np.inf, boxes.state.size)
    boxes = measure(log_f, scale, boxes.state, boxes.centre, boxes.half)
    blind, used = _blind(boxes, points), 2 * n * nodes
    for _ in range(ROUNDS):
        total, wrong = boxes.value.sum(), boxes.error.sum()
        if not blind.any() and wrong < tolerance * total:
            return Integral(float(np.log(total) + scale), 0.0, used)
        if used > budget:
            break
        order = np.argsort(-boxes.error)
        share = np.cumsum(boxes.error[order])
        chosen = blind.copy()
        chosen[order[: 1 + np.searchsorted(share, 0.5 * wrong)]] = True
        new = split(log_f, scale, boxes[chosen])
        used += len(new.state) * nodes
        boxes = boxes[~chosen] + new
        blind = np.r_[np.zeros((~chosen).sum(), bool), _blind(new, points)]
        if (top := boxes.highest.max()) > scale + 20.0:  # what the points have missed
            boxes, scale = measure(log_f, top, boxes.state, boxes.centre, boxes.half), top
    total, wrong = boxes.value.sum(), boxes.error.sum()
    if total <= 0:
        return Integral(-np.inf, np.inf, used)
    return Integral(float(np.log(total) + scale), float(wrong / total), used)
