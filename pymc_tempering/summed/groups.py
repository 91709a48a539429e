"""Discrete variables of a model that hang together, and their sum as a graph.

All is worked out with plain variables in the places of the random ones. A random variable depends
on others, on its dims and on data, so that to replace one thing in its graph makes a copy of it,
which nothing replaces any more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_tempering.model.given_up import RewriteError
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.ranges import known_range
from pymc_tempering.summed.checks import guard_zeros, open_checks
from pymc_tempering.summed.compress import N_CHECK, N_LEARN, WORTH, compress
from pymc_tempering.summed.elimination import LOWEST, SumStep, Tables, TooTiedError, eliminate
from pymc_tempering.summed.scopes import TooManyScopesError, element_scopes, split_sums

MOST_CELLS, MOST_SLOW = 400_000, 100_000
"""Elements of terms, at all values that they are summed over; and where no short way is found."""

MOST_LEARNED = 50_000
"""Cells of a table from which a short way is learned."""

MOST_TERMS = 20
"""Terms that are summed over: the code of each is compiled."""

MOST_VALUES = 2_000
"""Values of an element."""

N_PILOT, BEYOND = 1_000, 2.5
"""Draws of the prior of a count, and how many times their largest it is summed to."""


N_COMPARED, SAME = 20, 1e-8
"""Draws of the prior at which tables are compared with the terms, and by how much they may be off,
relative to one and the terms."""


@dataclass(frozen=True, eq=False)
class Range:
    """A discrete variable that is summed out, and its values.

    Attributes
    ----------
    rv : Variable
    plain : Variable
        What stands for it in graphs.
    first : array of int
        Least value of each element, of the shape of the variable.
    n_values : array of int
        How many each of them has.
    is_open : bool
        Whether the variable has larger ones, which the sum leaves out.
    """

    rv: Variable
    plain: Variable
    first: np.ndarray
    n_values: np.ndarray
    is_open: bool

    @property
    def most(self) -> int:
        """Largest number of values of an element."""
        return int(self.n_values.max(initial=1))

    def at(self, places: np.ndarray) -> np.ndarray:
        """Values at places from 0, of shape (..., *shape); the last one for places behind it."""
        return self.first + np.minimum(places, self.n_values - 1)


type Plain = Mapping[Variable, Variable]
"""Plain variables in the places of random ones: those that hold values, where they are observed."""


def plain_variables(model: pm.Model) -> dict[Variable, Variable]:
    """Make such variables for all random ones of a model."""
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    return {rv: rv.type(name=rv.name) for rv in model.free_RVs} | observed


def related(variables: Iterable[Variable], among: Collection[Variable]) -> set[Variable]:
    """Return the random variables among some that graphs depend on directly, and not by others."""
    inputs = [v for each in variables for v in (each.owner.inputs if each.owner else ())]
    return set(ancestors(inputs, blockers=among)) & set(among)


def range_of(
    model: pm.Model, rv: Variable, plain: Plain, points: Mapping[Variable, np.ndarray]
) -> Range:
    """Find the values of a discrete variable; those of a count end far beyond its prior draws.

    Raises
    ------
    RewriteError
    """
    known, drawn = known_range(rv), points[plain[rv]]
    if known is None:
        below = _log_density(model, rv, -pt.ones_like(plain[rv]), plain)
        if (_numbers(below, points) > -np.inf).any() or drawn.min(initial=0) < 0:
            raise RewriteError("it has values below zero, and no end is known")
        known = np.zeros(()), np.asarray(np.ceil(BEYOND * drawn.max(initial=5)))
    first, last = (np.broadcast_to(np.asarray(end), drawn.shape[1:]) for end in known)
    if np.max(last - first, initial=0.0) >= MOST_VALUES:
        raise RewriteError(f"it has more than {MOST_VALUES:,} values")
    whole = first.astype(np.int64), (last - first).astype(np.int64) + 1
    return Range(rv, plain[rv], *whole, known_range(rv) is None)


def _log_density(model: pm.Model, rv: Variable, value: Variable, plain: Plain) -> Variable:
    """Elementwise log density of a random variable at a value, of plain variables.

    They are there before it is derived: PyMC would take a random variable inside of a law for a
    part of that law.

    Raises
    ------
    RewriteError
        PyMC derives none.
    """
    parents = {v: plain[v] for v in related([rv], model.basic_RVs)}
    alone = graph_replace([rv], parents, strict=False)[0] if parents else rv
    try:
        return pm.logp(alone, value)
    except NotImplementedError as error:
        raise RewriteError(f"PyMC derives no density of {rv.name!r}") from error


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
        terms.append(_log_density(model, rv, plain[rv], plain))
    for potential in model.potentials:
        if related([potential], model.basic_RVs) & set(group):
            terms += graph_replace([potential], plain, strict=False)
    unknowns = [plain[rv] for rv in group]
    terms = guard_zeros(
        open_checks(terms, unknowns), unknowns, [plain[rv] for rv in model.free_RVs]
    )
    return [part for term in terms for part in split_sums(term)]


def build_tables(
    terms: Sequence[Variable],
    ranges: Sequence[Range],
    points: Mapping[Variable, np.ndarray],
) -> tuple[Tables, Tables, Variable]:
    """Tables of all elements, the same by way of fewer cells, and what does not depend on them.

    Parameters
    ----------
    terms : sequence of Variable
    ranges : sequence of Range
    points : mapping of Variable to array
        Draws of all plain variables in the terms.

    Raises
    ------
    RewriteError, TooManyScopesError
    """
    first = {v: values[0] for v, values in points.items()}
    scopes = element_scopes(terms, [r.plain for r in ranges], first)
    n, m = sum(r.first.size for r in ranges), max(r.most for r in ranges)
    scopes = [scope.reshape(-1, n) for scope in scopes]
    degrees = [scope.sum(axis=1) for scope in scopes]
    if max(degree.max(initial=0) for degree in degrees) > 2:
        raise RewriteError("a term depends on more than two of its elements")
    every = zip(terms, scopes, degrees, strict=True)
    parts = [Term(term, scope, degree) for term, scope, degree in every]
    pairs = sorted({pair for part in parts for pair in part.pairs})
    cells = sum(part.n_cells(m) for part in parts) + (m**3 if pairs else m) * n
    if cells > MOST_CELLS or len(terms) > MOST_TERMS:
        raise RewriteError("the sum is too long")
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
        raise RewriteError("the sum is too long")
    if short is None:
        return exact, exact, constant
    pivots = single_table(parts, ranges, short.pivots)
    few = (short.weights * pivots[:, :, None]).sum(axis=0)
    return exact, Tables(pt.switch(short.never, LOWEST, few).T, [], None), constant


class Term(NamedTuple):
    """A term, and on which unknown elements its own depend.

    Attributes
    ----------
    graph : Variable
    scope : array of bool, shape (r, n)
    degree : array of int, shape (r,)
        On how many.
    """

    graph: Variable
    scope: np.ndarray
    degree: np.ndarray

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pair of elements of each row that depends on two."""
        ends = np.nonzero(self.scope[self.degree == 2])[1].reshape(-1, 2)
        return [(int(i), int(j)) for i, j in ends]

    def n_cells(self, m: int) -> int:
        """Count the elements that are computed at all values."""
        single, double = (self.degree == 1).any(), (self.degree == 2).any()
        return int((m * single + m * m * double) * len(self.degree))

    def constant(self, ranges: Sequence[Range]) -> Variable:
        """Sum of its elements that depend on no unknown."""
        rows = np.flatnonzero(self.degree == 0)
        if rows.size == 0:
            return pt.constant(0.0)
        if rows.size == len(self.degree):
            return self.graph.sum()
        n = self.scope.shape[1]
        return at_places(self.graph, ranges, np.zeros((1, n), np.int64))[0, rows].sum()


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


def at_places(term: Variable, ranges: Sequence[Range], places: np.ndarray) -> Variable:
    """Elements of a term at values of the unknowns, shape (M, size), at places (M, n) of these."""
    replacements, start = {}, 0
    for r in ranges:
        own = places[:, start : start + r.first.size].reshape(-1, *r.first.shape)
        replacements[r.plain] = pt.constant(r.at(own).astype(r.rv.dtype))
        start += r.first.size
    values = vectorize_graph(term, replacements)
    if values.type.ndim == term.type.ndim:  # it depends on none of them
        values = values[None]
    return values.reshape((values.shape[0], -1))


def summed_by_owner(rows: Variable, owners: np.ndarray, n: int) -> Variable:
    """Sum rows of one owner, of which there are n, along the first axis."""
    each, order = np.bincount(owners, minlength=n), np.argsort(owners, kind="stable")
    if (each == each[0]).all():  # as many rows for each: no need to add one by one
        if (order != np.arange(order.size)).any():
            rows = rows[order]
        return rows.reshape((n, int(each[0]), *rows.shape[1:])).sum(axis=1)
    return pt.zeros((n, *rows.shape[1:]))[owners].inc(rows)


def colored(n: int, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Give elements numbers, small ones, that differ in each pair, shape (n,)."""
    near: list[list[int]] = [[] for _ in range(n)]
    for i, j in pairs:
        near[i].append(j)
        near[j].append(i)
    colors = np.full(n, -1)
    for first in range(n):
        waiting = [first] if colors[first] < 0 else []
        while waiting:
            j = waiting.pop()
            if colors[j] < 0:
                used = {int(colors[i]) for i in near[j]}
                colors[j] = next(c for c in range(n) if c not in used)
                waiting += near[j]
    return colors


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
    """

    ranges: list[Range]
    total: Variable
    exact: Variable
    steps: list[SumStep]
    replaced: list[Variable]


def children_of(model: pm.Model, rv: Variable) -> list[Variable]:
    """Variables and potentials that depend on a random variable directly."""
    every = [*model.basic_RVs, *model.potentials]
    return [v for v in every if v is not rv and rv in related([v], model.basic_RVs)]


def sum_of(model: pm.Model, group: Sequence[Variable]) -> Summed:
    """Sum out a group of variables.

    Raises
    ------
    RewriteError
        That cannot be done, or takes too long.
    """
    plain = plain_variables(model)
    try:
        terms = log_terms(model, group, plain)
        points = _points(model, group, terms, plain)
        ranges = [range_of(model, rv, plain, points) for rv in group]
        exact, short, constant = build_tables(terms, ranges, points)
        total, steps = eliminate(short)
        total = total + constant
        slowly = total if short is exact else eliminate(exact)[0] + constant
        compare_tables(terms, ranges, exact, constant, slowly, points)
    except (TooManyScopesError, TooTiedError) as error:
        raise RewriteError("too many of its elements hang together") from error
    except (TypeError, ValueError, NotImplementedError, IndexError) as error:
        raise RewriteError(f"an operation takes one value at a time ({error})") from error
    back = {plain[rv]: rv for rv in model.free_RVs}
    graphs = [total, slowly, *(step.log_p for step in steps)]
    total, slowly, *tables = graph_replace(graphs, back, strict=False)
    steps = [step._replace(log_p=table) for step, table in zip(steps, tables, strict=True)]
    sums = [v for rv in group for v in children_of(model, rv) if v not in group]
    return Summed(ranges, total, slowly, steps, list(dict.fromkeys(sums)))


def compare_tables(
    terms: Sequence[Variable],
    ranges: Sequence[Range],
    tables: Tables,
    constant: Variable,
    total: Variable,
    points: Mapping[Variable, np.ndarray],
) -> None:
    """Check at draws of the prior that tables have the terms, and that sums are numbers.

    Raises
    ------
    RewriteError
    """
    places = pt.concatenate([(r.plain - r.first).ravel() for r in ranges])
    picked = constant + tables.single[places, np.arange(tables.single.type.shape[1])].sum()
    if tables.tables is not None:
        i, j = np.array(tables.pairs).T
        picked = picked + tables.tables[np.arange(len(i)), places[i], places[j]].sum()
    direct = pt.add(pt.constant(0.0), *(term.sum() for term in terms))
    rows = _numbers(pt.stack([picked, direct, total]), points, N_COMPARED)
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
