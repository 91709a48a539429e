"""Discrete variables of a model that hang together, and their sum as a graph.

All is worked out with plain variables in the places of the random ones. A random variable depends
on others, on its dims and on data, so that to replace one thing in its graph makes a copy of it,
which nothing replaces any more.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_tempering.model.given_up import LongSumError, RewriteError
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.ranges import known_range
from pymc_tempering.summed.checks import guard_zeros, open_checks
from pymc_tempering.summed.compress import N_CHECK, N_LEARN, WORTH, compress
from pymc_tempering.summed.elimination import LOWEST, SumStep, Tables, TooTiedError, eliminate
from pymc_tempering.summed.ends import Scan, longer, scan_of
from pymc_tempering.summed.parts import (
    Plain,
    Range,
    Term,
    at_places,
    colored,
    elementwise_density,
    plain_variables,
    related,
    summed_by_owner,
)
from pymc_tempering.summed.scopes import TooManyScopesError, element_scopes, split_sums

MOST_CELLS, MOST_SLOW = 400_000, 100_000
"""Elements of terms, at all values that they are summed over; and where no short way is found."""

MOST_LEARNED = 50_000
"""Cells of a table from which a short way is learned."""

MOST_TERMS = 20
"""Terms that are summed over: the code of each is compiled."""

MOST_VALUES = 2_000
"""Values of an element."""

MOST_TOGETHER, MOST_LIVE = 2**14, 50_000
"""Values of all elements together, where a term ties more than two of them, and elements of the
other terms at these that depend on other unknowns, so that each evaluation computes them."""

N_PILOT, BEYOND = 1_000, 2.5
"""Draws of the prior of a count, and how many times their largest it is summed to."""


N_COMPARED, SAME = 20, 1e-8
"""Draws of the prior at which tables are compared with the terms, and by how much they may be off,
relative to one and the terms."""


def range_of(
    model: pm.Model,
    rv: Variable,
    plain: Plain,
    points: Mapping[Variable, np.ndarray],
    least: int = 0,
) -> Range:
    """Find the values of a discrete variable; those of a count end far beyond its prior draws.

    They go to `least` at least.

    Raises
    ------
    RewriteError
    """
    known, drawn = known_range(rv), points[plain[rv]]
    if known is None:
        below = elementwise_density(model, rv, -pt.ones_like(plain[rv]), plain)
        if (_numbers(below, points) > -np.inf).any() or drawn.min(initial=0) < 0:
            raise RewriteError("it has values below zero, and no end is known")
        known = np.zeros(()), np.asarray(np.ceil(max(BEYOND * drawn.max(initial=5), least)))
    first, last = (np.broadcast_to(np.asarray(end), drawn.shape[1:]) for end in known)
    whole = first.astype(np.int64), (last - first).astype(np.int64) + 1
    return _bounded(Range(rv, plain[rv], *whole, known_range(rv) is None))


def _too_long(ranges: Sequence[Range]) -> RewriteError:
    """Make the error of a sum that takes too many numbers."""
    kind = LongSumError if any(r.is_open for r in ranges) else RewriteError
    return kind("the sum is too long")


def _bounded(of: Range) -> Range:
    """Return a range, if that is not too long."""
    if of.most > MOST_VALUES:
        kind = LongSumError if of.is_open else RewriteError
        raise kind(f"it has more than {MOST_VALUES:,} values")
    return of


def log_terms(model: pm.Model, group: Collection[Variable], plain: Plain) -> list[Variable]:
    """Terms that depend on some discrete variables, as graphs of plain variables.

    Raises
    ------
    RewriteError
        One of them is the prior of another variable.
    """
    terms = []
    for rv in model.basic_RVs:
        if rv not in group and not related([rv], model.basic_RVs) & set(group):
            continue
        if rv not in group and rv not in model.observed_RVs:
            raise RewriteError(f"the prior of {rv.name!r} depends on it")
        if not isinstance(rv.type, TensorType):
            raise RewriteError(f"{rv.name!r} is of pymc.dims")
        terms.append(elementwise_density(model, rv, plain[rv], plain))
    for potential in model.potentials:
        if related([potential], model.basic_RVs) & set(group):
            terms += graph_replace([potential], plain, strict=False)
    unknowns = [plain[rv] for rv in group]
    terms = guard_zeros(
        open_checks(terms, unknowns), unknowns, [plain[rv] for rv in model.free_RVs]
    )
    return [part for term in terms for part in split_sums(term)]


def terms_by_scope(
    terms: Sequence[Variable],
    ranges: Sequence[Range],
    points: Mapping[Variable, np.ndarray],
) -> list[Term]:
    """Find on which elements each element of the terms depends.

    Raises
    ------
    RewriteError, TooManyScopesError
    """
    first = {v: values[0] for v, values in points.items()}
    scopes = element_scopes(terms, [r.plain for r in ranges], first)
    n = sum(r.first.size for r in ranges)
    scopes = [scope.reshape(-1, n) for scope in scopes]
    degrees = [scope.sum(axis=1) for scope in scopes]
    return [Term(*each) for each in zip(terms, scopes, degrees, strict=True)]


def build_tables(
    parts: Sequence[Term],
    ranges: Sequence[Range],
    points: Mapping[Variable, np.ndarray],
) -> tuple[Tables, Tables, Variable]:
    """Tables of all elements, the same by way of fewer cells, and what does not depend on them.

    Parameters
    ----------
    parts : sequence of Term
    ranges : sequence of Range
    points : mapping of Variable to array
        Draws of all plain variables in the terms.

    Raises
    ------
    RewriteError
    """
    n, m = sum(r.first.size for r in ranges), max(r.most for r in ranges)
    pairs = sorted({pair for part in parts for pair in part.pairs})
    ties = np.bincount(np.ravel(pairs).astype(np.int64), minlength=n).max()
    cells = sum(part.n_cells(m) for part in parts) + n * m ** (1 + min(int(ties), 2))
    if cells > MOST_CELLS or len(parts) > MOST_TERMS:
        raise _too_long(ranges)
    constant = pt.add(pt.constant(0.0), *(part.constant(ranges) for part in parts))
    every_place = np.tile(np.arange(m)[:, None], n)
    single = single_table(parts, ranges, every_place)
    if pairs:
        exact = Tables(single, pairs, pair_tables(parts, ranges, pairs, m))
        return exact, exact, constant
    exact = Tables(single, [], None)
    worth = m >= WORTH and m * n <= MOST_LEARNED
    short = compress(_numbers(single, points)) if worth else None
    if short is None and cells > MOST_SLOW:
        raise _too_long(ranges)
    if short is None:
        return exact, exact, constant
    pivots = single_table(parts, ranges, short.pivots)
    few = (short.weights * pivots[:, :, None]).sum(axis=0)
    return exact, Tables(pt.switch(short.never, LOWEST, few).T, [], None), constant


class SummedGraph(NamedTuple):
    """A sum over all values, as a graph of plain variables.

    Attributes
    ----------
    total, exact : Variable
        Log of the sum, and the same without short ways.
    tables : Tables
        What it is the sum of, and `constant` times that.
    constant : Variable
    steps : list of SumStep
    together : array of int, shape (M, n), or None
        Places of all elements, where these are summed over as one element with M values.
    """

    total: Variable
    exact: Variable
    tables: Tables
    constant: Variable
    steps: list[SumStep]
    together: np.ndarray | None = None


def sum_by_elements(
    parts: Sequence[Term], ranges: Sequence[Range], points: Mapping[Variable, np.ndarray]
) -> SummedGraph:
    """Sum over one element after the other, of which no term ties more than two.

    Raises
    ------
    RewriteError, TooTiedError
    """
    if max(part.degree.max(initial=0) for part in parts) > 2:
        raise TooTiedError("a term depends on more than two of its elements")
    tables, short, constant = build_tables(parts, ranges, points)
    total, steps = eliminate(short)
    exact = total if short is tables else eliminate(tables)[0]
    return SummedGraph(total + constant, exact + constant, tables, constant, steps)


def sum_together(
    parts: Sequence[Term],
    ranges: Sequence[Range],
    points: Mapping[Variable, np.ndarray],
    tied: TooTiedError,
) -> SummedGraph:
    """Sum over all values of few elements, however they are tied by terms of nothing else.

    Where real unknowns meet more than two elements, as in spike and slab, what the sum leaves has a
    mode for each value, and the elements are better sampled.

    Raises
    ------
    RewriteError
        There are too many, or other unknowns in such terms: they are too `tied`.
    """
    counts = np.concatenate([r.n_values.ravel() for r in ranges])
    others, live = set(points) - {r.plain for r in ranges}, 0.0
    for part in parts:
        if others & set(ancestors([part.graph])):
            live += np.inf if (part.degree > 2).any() else len(part.degree)
    rows = sum(len(part.degree) for part in parts)
    most = min(MOST_TOGETHER, MOST_CELLS // rows, MOST_LIVE / max(live, 1.0))
    if any(r.is_open for r in ranges) or np.log(counts).sum() > np.log(max(most, 1.0)):
        raise RewriteError(str(tied)) from tied
    places = np.indices(counts.tolist()).reshape(counts.size, -1).T
    terms = [at_places(part.graph, ranges, places) for part in parts]
    single = pt.add(*(pt.maximum(term, LOWEST).sum(axis=1) for term in terms), pt.constant(0.0))
    tables = Tables(pt.specify_shape(single[:, None], (len(places), 1)), [], None)
    total, steps = eliminate(tables)
    return SummedGraph(total, total, tables, pt.constant(0.0), steps, places)


def single_table(parts: Sequence[Term], ranges: Sequence[Range], places: np.ndarray) -> Variable:
    """Log factor of elements at places of their values, both of shape (M, n)."""
    counts = np.concatenate([r.n_values.ravel() for r in ranges])
    values, owners = [pt.constant(np.where(places < counts, 0.0, LOWEST))], [np.arange(counts.size)]
    for part in parts:
        rows = np.flatnonzero(part.degree == 1)
        if rows.size:
            own = at_places(part.graph, ranges, places)
            own = own if rows.size == len(part.degree) else own[:, rows]
            values.append(pt.maximum(own, LOWEST))
            owners.append(part.scope[rows].argmax(axis=1))
    table = summed_by_owner(pt.concatenate(values, axis=1).T, np.concatenate(owners), counts.size)
    return pt.specify_shape(table.T, places.shape)


def pair_tables(
    parts: Sequence[Term], ranges: Sequence[Range], pairs: list[tuple[int, int]], m: int
) -> Variable:
    """Log factor of pairs of elements, shape (number of pairs, m, m).

    Elements that are tied have different colors. Those of one color take a value, and all others
    another: so a term is computed at m^2 places for each color, and not for each element.
    """
    colors = colored(parts[0].scope.shape[1], pairs)
    tables, owners = [], []
    one, other = np.divmod(np.arange(m * m)[:, None], m)
    for part in parts:
        tied = np.flatnonzero(part.degree == 2)
        ends = np.array(part.pairs, dtype=np.int64).reshape(-1, 2)
        least = colors[ends].min(axis=1)
        for color in np.unique(least):
            mine = least == color
            places = np.where(colors == color, one, other)
            values = at_places(part.graph, ranges, places)[:, tied[mine]]
            table = values.T.reshape((int(mine.sum()), m, m))
            turned = colors[ends[mine, 0]] != color
            table = pt.switch(turned[:, None, None], table.transpose(0, 2, 1), table)
            tables.append(pt.maximum(table, LOWEST))
            owners += [pairs.index((int(i), int(j))) for i, j in ends[mine]]
    joint = summed_by_owner(pt.concatenate(tables), np.array(owners), len(pairs))
    return pt.specify_shape(joint, (len(pairs), m, m))


def _numbers(
    table: Variable, points: Mapping[Variable, np.ndarray], most: int = N_LEARN + N_CHECK
) -> np.ndarray:
    """Values of a table at some draws of the plain variables, shape (N, m, n)."""
    used = [v for v in points if v in set(ancestors([table]))]
    function = pytensor.function(used, table, mode=python_mode())
    n = min(len(values) for values in points.values())
    with np.errstate(all="ignore"):
        rows = [function(*(points[v][i] for v in used)) for i in range(min(n, most))]
    return np.array(rows)


@dataclass(frozen=True, eq=False)
class Summed:
    """A group of variables that hang together, and their sum.

    Attributes
    ----------
    ranges : list of Range
    total, exact : Variable
        Log of the sum, of the model's random variables, and the same without short ways.
    steps : list of SumStep
        What the variables are drawn from.
    replaced : list of Variable
        Observed variables and potentials whose terms are in the sum.
    scan : Scan or None
        What counts contribute to it value by value, if there are any without an end.
    together : array of int, shape (M, n), or None
        As of a `SummedGraph`.
    """

    ranges: list[Range]
    total: Variable
    exact: Variable
    steps: list[SumStep]
    replaced: list[Variable]
    scan: Scan | None = None
    together: np.ndarray | None = None


def children_of(model: pm.Model, rv: Variable) -> list[Variable]:
    """Variables and potentials that depend on a random variable directly."""
    every = [*model.basic_RVs, *model.potentials]
    return [v for v in every if v is not rv and rv in related([v], model.basic_RVs)]


def sum_of(
    model: pm.Model, group: Sequence[Variable], ends: Mapping[str, int] | None = None
) -> Summed:
    """Sum out a group of variables.

    Parameters
    ----------
    model : pymc.Model
    group : sequence of Variable
    ends : mapping of str to int, optional
        How far counts have to go at least, by name.

    Raises
    ------
    RewriteError
        That cannot be done, or takes too long.
    """
    plain = plain_variables(model)
    try:
        terms = log_terms(model, group, plain)
        points = _points(model, group, terms, plain)
        least = {} if ends is None else ends
        ranges = [range_of(model, rv, plain, points, least.get(rv.name, 0)) for rv in group]
        parts, scan = terms_by_scope(terms, ranges, points), None
        if any(r.is_open for r in ranges):
            first = {v: values[0] for v, values in points.items()}
            scan = scan_of(model, group, ranges, parts, plain, first)
            ranges = [_bounded(r) for r in longer(ranges, scan, points)]
        try:
            found = sum_by_elements(parts, ranges, points)
        except TooTiedError as tied:
            found = sum_together(parts, ranges, points, tied)
        compare_tables(terms, ranges, found, points)
    except TooManyScopesError as error:
        raise RewriteError("too many of its elements hang together") from error
    except (TypeError, ValueError, NotImplementedError, IndexError) as error:
        raise RewriteError(f"an operation takes one value at a time ({error})") from error
    back = {plain[rv]: rv for rv in model.free_RVs}
    graphs = [found.total, found.exact, *(step.log_p for step in found.steps)]
    total, exact, *tables = graph_replace(graphs, back, strict=False)
    steps = [step._replace(log_p=table) for step, table in zip(found.steps, tables, strict=True)]
    sums = [v for rv in group for v in children_of(model, rv) if v not in group]
    if scan is not None:  # the counts stay plain in it: they are looked at one by one
        others = {plain[rv]: rv for rv in model.free_RVs if rv not in group}
        scan = scan.of(graph_replace(scan.graphs, others, strict=False))
    replaced = list(dict.fromkeys(sums))
    return Summed(ranges, total, exact, steps, replaced, scan, found.together)


def compare_tables(
    terms: Sequence[Variable],
    ranges: Sequence[Range],
    found: SummedGraph,
    points: Mapping[Variable, np.ndarray],
) -> None:
    """Check at draws of the prior that tables have the terms, and that sums are numbers.

    Raises
    ------
    RewriteError
    """
    places, tables = pt.concatenate([(r.plain - r.first).ravel() for r in ranges]), found.tables
    if found.together is not None:  # the last element changes first
        counts = np.concatenate([r.n_values.ravel() for r in ranges])
        places = pt.dot(places, np.append(np.cumprod(counts[:0:-1])[::-1], 1))[None]
    picked = found.constant + tables.single[places, np.arange(tables.single.type.shape[1])].sum()
    if tables.tables is not None:
        i, j = np.array(tables.pairs).T
        picked = picked + tables.tables[np.arange(len(i)), places[i], places[j]].sum()
    direct = pt.add(pt.constant(0.0), *(term.sum() for term in terms))
    rows = _numbers(pt.stack([picked, direct, found.exact]), points, N_COMPARED)
    picked_at, direct_at, total_at = rows.T
    possible = direct_at > LOWEST / 2
    off = np.abs(picked_at - direct_at)[possible]
    short = total_at - direct_at < -SAME * (1.0 + np.abs(total_at))
    wrong = (off > SAME * (1.0 + np.abs(direct_at[possible]))).any()
    if wrong or np.isnan(rows).any() or short[possible].any():
        raise RewriteError("its sum is no number, or not right, at draws of the prior")


def _points(
    model: pm.Model, group: Sequence[Variable], terms: Sequence[Variable], plain: Plain
) -> dict[Variable, np.ndarray]:
    """Draws of the unknowns in some terms, by plain variable: many where counts are open."""
    inside = set(ancestors(terms))
    needed = [rv for rv in model.free_RVs if rv in group or plain[rv] in inside]
    known = [known_range(rv) for rv in group]
    wide = any(each is not None and np.max(each[1] - each[0]) >= WORTH for each in known)
    n = N_PILOT if None in known else N_LEARN + N_CHECK if wide else N_COMPARED
    try:
        drawn = pm.draw(needed, n, mode=python_mode(), random_seed=1)
    except Exception as error:  # of a prior that cannot be drawn from, for whatever reason
        raise RewriteError(f"the prior cannot be drawn from ({error})") from error
    return {plain[rv]: np.asarray(draws) for rv, draws in zip(needed, drawn, strict=True)}
