"""Where sums over counts end: so far that nothing with weight lies beyond.

A count has no largest value. What it contributes to a sum is looked at value by value, given all
else: at draws of the prior before the sum is built, and at posterior draws after a run. Beyond the
last look, the prior's tail times the largest value that the likelihood can have bounds what is left
out. That value is known for whole numbers as data, and for the distributions in `LOCATIONS`; for
all others the prior's tail has to suffice.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from scipy.special import logsumexp

from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.summed.elimination import LOWEST
from pymc_tempering.summed.parts import (
    Plain,
    Range,
    Term,
    colored,
    elementwise_density,
    inlined,
    related,
    summed_by_owner,
)
from pymc_tempering.summed.scopes import element_scopes

LOCATIONS = {"normal": 0, "laplace": 0, "cauchy": 0, "logistic": 0, "t": 1}
"""Distributions that are largest at their location, and which of their parameters that is."""

FIRST_LOOK, LAST_LOOK, CELLS = 4.0, 20_000, 1_000_000
"""How many times the end, at least, and how many values, at most, are looked at in each row; and
how many there are in all rows and elements together, where that is fewer."""

N_ROWS, N_LIKELY = 40, 10
"""Rows that are looked at, and how many more where the sums are largest, of those drawn."""

BUILT, KEPT = np.log(1e-8), np.log(1e-4)
"""Log of the share of a sum that may lie beyond its end, when it is built and after a run."""

MARGIN = 1.2
"""How much longer than needed a sum is made."""

RATIO, LARGEST = 1.02, 1e15
"""Steps of the grid on which the prior's tail is bounded, and its end."""

NO_BOUND, EACH = 100.0, 20.0
"""Nats that likelihoods of unknown bound may gain beyond the last look, and for each datum more: a
density of e^20 has a scale of 1e-9."""


class Scan(NamedTuple):
    """Graphs of what counts contribute to a sum at many of their values, given all else.

    Attributes
    ----------
    values : Variable
        The values, a vector of whole numbers.
    terms, prior, peak : Variable
        Log of all terms of each element, of its prior, and an upper bound of all other terms whose
        bound is known; by value and element, shape (number of values, n).
    is_open : array of bool, shape (n,)
        Which elements are counts without an end.
    n_unbounded : array of int, shape (n,)
        Data of each element without a known bound.
    """

    values: Variable
    terms: Variable
    prior: Variable
    peak: Variable
    is_open: np.ndarray
    n_unbounded: np.ndarray

    @property
    def graphs(self) -> list[Variable]:
        """What is computed."""
        return [self.terms, self.prior, self.peak]

    def of(self, graphs: Sequence[Variable]) -> "Scan":
        """Return the same with other graphs."""
        terms, prior, peak = graphs
        return self._replace(terms=terms, prior=prior, peak=peak)


def scan_of(
    model: pm.Model,
    group: Sequence[Variable],
    ranges: Sequence[Range],
    parts: Sequence[Term],
    plain: Plain,
    first: Mapping[Variable, np.ndarray],
) -> Scan:
    """Write such graphs of a group of variables, whose terms are known.

    Parameters
    ----------
    model : pymc.Model
    group : sequence of Variable
    ranges : sequence of Range
    parts : sequence of Term
        All terms.
    plain : mapping of Variable to Variable
    first : mapping of Variable to array
        One draw of all plain variables in the terms.
    """
    values = pt.lvector("values")
    is_open = np.concatenate([np.full(r.first.size, r.is_open) for r in ranges])
    colors = colored(is_open.size, sorted({pair for part in parts for pair in part.pairs}))
    each = [np.where(is_open, colors == color, False) for color in np.unique(colors[is_open])]
    known, n_unbounded = _peaks(model, group, ranges, plain, first)
    priors = [_prior_of(model, r, ranges, plain) for r in ranges if r.is_open]
    zero = pt.zeros((values.shape[0], is_open.size))
    terms, prior, peak = (
        pt.add(zero, *(_moved(part, ranges, values, moving) for part in some for moving in each))
        for some in (parts, priors, known)
    )
    return Scan(values, terms, prior, peak, is_open, n_unbounded)


def _prior_of(model: pm.Model, of: Range, ranges: Sequence[Range], plain: Plain) -> Term:
    """Elementwise log prior of a variable of the group, by its own elements."""
    own = np.concatenate([np.full(r.first.size, r is of) for r in ranges])
    graph = elementwise_density(model, of.rv, of.plain, plain)
    return Term(graph, np.eye(own.size, dtype=bool)[own], np.ones(own.sum(), dtype=int))


def _peaks(
    model: pm.Model,
    group: Sequence[Variable],
    ranges: Sequence[Range],
    plain: Plain,
    first: Mapping[Variable, np.ndarray],
) -> tuple[list[Term], np.ndarray]:
    """Upper bounds of the densities of real data, and how many elements of others there are."""
    depends = lambda v: related([v], model.basic_RVs) & set(group)  # noqa: E731
    real = [v for v in model.observed_RVs if v.dtype.startswith("float") and depends(v)]
    graphs = [elementwise_density(model, v, plain[v], plain) for v in real]
    peaks = [_peak_of(v, plain) for v in real]
    potentials = [v for v in model.potentials if depends(v)]
    graphs += [graph_replace([v], plain, strict=False)[0] for v in potentials]
    peaks += [None] * len(potentials)
    n = sum(r.first.size for r in ranges)
    known, n_unbounded = list[Term](), np.zeros(n, dtype=int)
    scopes = element_scopes(graphs, [r.plain for r in ranges], first) if graphs else []
    for peak, scope in zip(peaks, scopes, strict=True):
        rows = scope.reshape(-1, n)
        if peak is None:
            n_unbounded += rows.sum(axis=0)
        else:
            known.append(Term(peak, rows, rows.sum(axis=1)))
    return known, n_unbounded


def _peak_of(rv: Variable, plain: Plain) -> Variable | None:
    """Log density of an observed variable at its location, where that is its largest."""
    place = LOCATIONS.get(getattr(rv.owner.op, "name", ""))
    if place is None:
        return None
    [alone] = graph_replace([rv], {v: p for v, p in plain.items() if v is not rv}, strict=False)
    location = alone.owner.op.dist_params(alone.owner)[place]
    return pm.logp(alone, pt.broadcast_to(location, plain[rv].shape))


def _moved(part: Term, ranges: Sequence[Range], values: Variable, moving: np.ndarray) -> Variable:
    """Rows of a term, summed by the moving element of each, where these have all values.

    No term joins two that move.
    """
    replacements, start = {}, 0
    for r in ranges:
        mine = moving[start : start + r.first.size].reshape(r.first.shape)
        column = values.reshape((-1, *[1] * r.first.ndim))
        replacements[r.plain] = pt.switch(mine, column, r.plain).astype(r.rv.dtype)
        start += r.first.size
    rows = np.flatnonzero(part.scope[:, moving].any(axis=1))
    if not rows.size:
        return pt.constant(0.0)
    every = vectorize_graph(inlined(part.graph), replacements)
    if every.type.ndim == part.graph.type.ndim:  # it depends on none of them, as a peak may
        every = pt.broadcast_to(every, (values.shape[0], *every.shape))
    every = pt.maximum(every.reshape((values.shape[0], -1))[:, rows], LOWEST)
    owners = (part.scope & moving)[rows].argmax(axis=1)
    return summed_by_owner(every.T, owners, moving.size).T


type Look = Callable[[np.ndarray], list[np.ndarray]]
"""At one row it returns the graphs of a scan at values."""


def looks_at(function: Callable, columns: Sequence[np.ndarray], n: int) -> list[Look]:
    """Give a function of a row and values its row: one of each of n rows, of columns (n, ...)."""
    return [partial(function, *(column[i] for column in columns)) for i in range(n)]


def ends_needed(
    looks: Sequence[Look], scan: Scan, ends: np.ndarray, share: float, *, beyond: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Look at counts value by value.

    Parameters
    ----------
    looks : sequence of callable
        For each row.
    scan : Scan
    ends : array of int, shape (n,)
        Largest values of each element so far.
    share : float
        Log of the share of a sum that may lie beyond its end.
    beyond : bool
        Whether what lies beyond the last look is bounded too.

    Returns
    -------
    needed : array of int, shape (row, n)
        Largest value of each element that the sum must have.
    total : array, shape (row,)
        Log of the sums, of all elements.
    unknown : array of bool, shape (n,)
        Whether a bound of what lies beyond the last look is too large in any row.
    """
    longest = int(ends[scan.is_open].max(initial=1))
    fair = CELLS // (max(1, int(scan.is_open.sum())) * max(1, len(looks)))
    values = np.arange(int(max(FIRST_LOOK * longest, min(LAST_LOOK, fair))) + 1)
    needed, totals = np.zeros((len(looks), ends.size), dtype=int), np.zeros(len(looks))
    unknown = np.zeros(ends.size, dtype=bool)
    for i, look in enumerate(looks):
        terms = look(values)[0]
        total = logsumexp(terms, axis=0)
        left = np.cumsum(np.exp(terms - total)[::-1], axis=0)[::-1]
        short = left < np.exp(share)
        needed[i] = np.where(short.any(axis=0), short.argmax(axis=0) - 1, values[-1])
        totals[i] = total[scan.is_open].sum()
        if beyond:
            unknown |= _tail(look, scan, int(values[-1])) - total > share
    needed[:, ~scan.is_open] = 0
    return needed, totals, unknown & scan.is_open


def _tail(look: Look, scan: Scan, last: int) -> np.ndarray:
    """Upper bound of the log of what lies beyond a value, of each element.

    The prior falls there, so that its sum between two values of a grid is at most their distance
    times the prior at the first.
    """
    steps = np.log(LARGEST / (last + 1)) / np.log(RATIO)
    grid = np.unique(np.floor((last + 1) * RATIO ** np.arange(steps))).astype(np.int64)
    _, prior, peak = look(grid)
    gaps = np.diff(grid, append=2 * grid[-1])[:, None]
    gain = np.where(scan.n_unbounded > 0, NO_BOUND + EACH * scan.n_unbounded, 0.0)
    return logsumexp(prior + peak.max(axis=0) + np.log(gaps), axis=0) + gain


def longer(
    ranges: Sequence[Range], scan: Scan, points: Mapping[Variable, np.ndarray]
) -> list[Range]:
    """Make sums of counts longer where draws of the prior ask for it, given all else.

    Those of them count too whose sums are largest: the posterior is near them.
    """
    used = [v for v in points if v in set(ancestors([scan.terms]))]
    function = pytensor.function([*used, scan.values], [scan.terms], mode=python_mode())
    ends = ends_of(ranges)
    n_rows = min(map(len, points.values()))
    cells = int(scan.is_open.sum() * FIRST_LOOK * ends[scan.is_open].max(initial=1))
    n_rows = min(n_rows, max(N_ROWS, CELLS // cells))
    looks = looks_at(function, [points[v][:n_rows] for v in used], n_rows)
    with np.errstate(all="ignore"):
        needed, total, _ = ends_needed(looks, scan, ends, BUILT, beyond=False)
    likely = np.argsort(-total)[:N_LIKELY]
    return lengthened(
        ranges, needed[np.union1d(np.arange(min(N_ROWS, n_rows)), likely)].max(axis=0)
    )


def ends_of(ranges: Sequence[Range]) -> np.ndarray:
    """Largest value of each element of variables, shape (n,)."""
    return np.concatenate([(r.first + r.n_values - 1).ravel() for r in ranges])


def lengthened(ranges: Sequence[Range], needed: np.ndarray) -> list[Range]:
    """Return ranges with larger ends where needed, of which each variable has one."""
    found, start = list[Range](), 0
    for r in ranges:
        own = needed[start : start + r.first.size]
        start += r.first.size
        wanted, now = int(own.max(initial=0)), int((r.first + r.n_values).max(initial=1)) - 1
        found.append(r.to(int(np.ceil(MARGIN * wanted))) if r.is_open and wanted > now else r)
    return found
