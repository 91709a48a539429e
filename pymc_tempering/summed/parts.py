"""What sums over discrete variables are made of: their values, and terms of plain variables."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.special import LogAddExp, LogSumExp

from pymc_tempering.model.given_up import RewriteError


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

    def to(self, last: int) -> "Range":
        """Return the same with another largest value."""
        return replace(self, n_values=np.full_like(self.n_values, last + 1) - self.first)

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


def elementwise_density(model: pm.Model, rv: Variable, value: Variable, plain: Plain) -> Variable:
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


def inlined(graph: Variable) -> Variable:
    """Graph with what symbolic operations compute in their place.

    For many values at once PyTensor would call them row by row.
    """
    while True:
        symbolic = {
            v: v.owner.op.build_inner_graph(*v.owner.inputs)[0]
            for v in ancestors([graph])
            if v.owner is not None and isinstance(v.owner.op, LogSumExp | LogAddExp)
        }
        if not symbolic:
            return graph
        [graph] = graph_replace([graph], symbolic)


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


def at_places(term: Variable, ranges: Sequence[Range], places: np.ndarray) -> Variable:
    """Elements of a term at values of the unknowns, shape (M, size), at places (M, n) of these."""
    replacements, start = {}, 0
    for r in ranges:
        own = places[:, start : start + r.first.size].reshape(-1, *r.first.shape)
        replacements[r.plain] = pt.constant(r.at(own).astype(r.rv.dtype))
        start += r.first.size
    values = vectorize_graph(inlined(term), replacements)
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
