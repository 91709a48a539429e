"""Sums over discrete elements that hang together in pairs, and draws of them afterwards.

Elements are summed out one after the other, many at once where they have nothing to do with each
other. One that is tied to two others leaves a table of those two; so chains, trees, cycles, and all
that can be taken apart in this way are summed exactly (variable elimination; Koller & Friedman,
Probabilistic Graphical Models, 2009, chapter 9).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

LOWEST = -1e12
"""Log of a probability that counts as zero: minus infinity has no gradient."""


class Tables(NamedTuple):
    """Log tables of n elements with m values each.

    Attributes
    ----------
    single : Variable
        Log factor of each value of each element, shape (m, n).
    pairs : list of tuple
        Pairs of elements (i, j) with i < j, each once.
    tables : Variable or None
        Log factor of their values, shape (number of pairs, m, m), those of i first.
    """

    single: Variable
    pairs: list[tuple[int, int]]
    tables: Variable | None


class SumStep(NamedTuple):
    """Elements that are summed out at once, and what to draw them from.

    Attributes
    ----------
    elements : array of int, shape (k,)
    given : list of array of int, shape (k,)
        Elements that each of them is tied to, none to two for each.
    log_p : Variable
        Unnormalized, shape (k, m, ...): by value of the element, and of those given.
    """

    elements: np.ndarray
    given: list[np.ndarray]
    log_p: Variable


class TooTiedError(Exception):
    """What is left of the elements is tied to more than two others each."""


def log_sum_exp(terms: Variable, axis: int) -> Variable:
    """Log of a sum of exponentials along an axis; its gradient is finite at `LOWEST`."""
    largest = pytensor.gradient.disconnected_grad(terms.max(axis=axis, keepdims=True))
    return pt.log(pt.exp(terms - largest).sum(axis=axis)) + largest.squeeze(axis)


def eliminate(tables: Tables) -> tuple[Variable, list[SumStep]]:
    """Sum out all elements.

    Returns
    -------
    Variable
        Log of the sum over all values of all elements, a scalar.
    list of SumStep
        In the order of summing; draws go backward.

    Raises
    ------
    TooTiedError
    """
    single, pairs, joint = tables
    n = int(single.type.shape[1])
    left = list(range(n))
    total, steps = pt.constant(0.0), []
    while left:
        ties = {j: [e for e, pair in enumerate(pairs) if j in pair] for j in left}
        chosen = _apart(left, pairs, ties)
        for degree in (0, 1, 2):
            some = np.array([j for j in chosen if len(ties[j]) == degree], dtype=np.int64)
            if some.size == 0:
                continue
            log_p = single.T if some.size == n else single.T[some]
            given = []
            for place in range(degree):
                edges = [ties[j][place] for j in some]
                given.append(_others(some, edges, pairs))
                table = _first_axis(some, edges, pairs, joint)
                log_p = log_p[..., None] + (table[:, :, None, :] if place else table)
            steps.append(SumStep(some, given, log_p))
            message = log_sum_exp(log_p, axis=1)
            if degree == 0:
                total = total + message.sum()
            elif degree == 1:
                single = single.T[given[0]].inc(message).T
            else:
                new = [(int(a), int(b)) for a, b in zip(*given, strict=True)]
                pairs, joint = _with_pairs(pairs, joint, new, message)
        left = [j for j in left if j not in set(chosen)]
        kept = [e for e, pair in enumerate(pairs) if not set(pair) & set(chosen)]
        if joint is not None:
            pairs, joint = [pairs[e] for e in kept], joint[np.array(kept, dtype=np.int64)]
    return total, steps


def _apart(
    left: Sequence[int], pairs: Sequence[tuple[int, int]], ties: dict[int, list[int]]
) -> list[int]:
    """Elements of few ties, of which no two are tied to each other or to a common pair."""
    fewest = min(len(ties[j]) for j in left)
    if fewest > 2:
        raise TooTiedError("too many of its elements hang together")
    chosen: list[int] = []
    barred: set[int] = set()
    for j in sorted(left, key=lambda j: len(ties[j])):
        if len(ties[j]) <= 2 and j not in barred:
            chosen.append(j)
            barred |= {i for e in ties[j] for i in pairs[e]}
    return chosen


def _others(some: np.ndarray, edges: Sequence[int], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the other element of each pair."""
    return np.array([sum(pairs[e]) - j for j, e in zip(some, edges, strict=True)], dtype=np.int64)


def _first_axis(
    some: np.ndarray, edges: Sequence[int], pairs: Sequence[tuple[int, int]], joint: Variable
) -> Variable:
    """Tables of pairs with the values of some elements along the first axis."""
    turned = np.array([pairs[e][0] != j for j, e in zip(some, edges, strict=True)])
    found = joint[np.array(edges)]
    if turned.all():
        return found.transpose(0, 2, 1)
    if turned.any():
        return pt.switch(turned[:, None, None], found.transpose(0, 2, 1), found)
    return found


def _with_pairs(
    pairs: Sequence[tuple[int, int]],
    joint: Variable,
    new: Sequence[tuple[int, int]],
    more: Variable,
) -> tuple[list[tuple[int, int]], Variable]:
    """Add tables of pairs, to those that are there where pairs are the same."""
    turned = np.array([a > b for a, b in new])
    more = pt.switch(turned[:, None, None], more.transpose(0, 2, 1), more)
    every = [*pairs, *((min(pair), max(pair)) for pair in new)]
    apart = list(dict.fromkeys(every))
    joint = pt.concatenate([joint, more])
    if len(apart) < len(every):
        places = np.array([apart.index(pair) for pair in every])
        joint = pt.zeros((len(apart), *joint.type.shape[1:]))[places].inc(joint)
    return apart, joint


def draw_elements(
    steps: Sequence[SumStep], log_p: Sequence[np.ndarray], uniform: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the elements, for many draws of all else at once.

    Parameters
    ----------
    steps : sequence of SumStep
    log_p : sequence of array, shape (N, k, m, ...)
        Their numbers, for N draws.
    uniform : array, shape (N, n)
        Uniform random numbers, one for each element.

    Returns
    -------
    array of int, shape (N, n)
        Which value each element has.
    array, shape (N,)
        Log probability of these values together.
    """
    n_draws, n = uniform.shape
    log_probability = np.zeros(n_draws)
    drawn, rows = np.zeros((n_draws, n), dtype=np.int64), np.arange(n_draws)[:, None]
    for step, table in zip(reversed(steps), reversed(log_p), strict=True):
        places = np.arange(len(step.elements))[None]
        at = [drawn[:, given] for given in step.given]
        of_value = np.moveaxis(table, 2, -1)[(rows, places, *at)]
        of_value = of_value - of_value.max(axis=-1, keepdims=True)
        bounds = np.exp(of_value).cumsum(axis=-1)
        wanted = uniform[:, step.elements, None] * bounds[..., -1:]
        chosen = (bounds < wanted).sum(axis=-1, keepdims=True)
        drawn[:, step.elements] = chosen[..., 0]
        own = np.take_along_axis(of_value, chosen, axis=-1) - np.log(bounds[..., -1:])
        log_probability += own.sum(axis=(1, 2))
    return drawn, log_probability
