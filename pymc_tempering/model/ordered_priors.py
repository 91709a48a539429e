"""Priors with an `ordered` transform: what normalizes them, and draws that are in order.

PyMC's density is that of the elements without the order. The prior meant is their law given that
they are in order, so log P(ordered | parents) is subtracted: of 1 / k! where all k elements have
the same law, and of an integral where they differ.
"""

from collections.abc import Collection, Sequence
from math import lgamma

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_tempering.borrowed.private import default_transform
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.exactly import compile_alone
from pymc_tempering.model.layout import unconstrained_shapes
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_law import OrderedLaw, ordered_draw, ordered_law
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.transforms import before_order, ordered_transform


def _is_independent(model: pm.Model, rv: Variable) -> bool:
    """Whether the elements are independent, and the transform cuts nothing off but the order."""
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp != 0:
        return False
    order = ordered_transform(model, rv)
    assert order is not None
    positive = isinstance(default_transform(op, rv), LogTransform | LogOddsTransform)
    return not order.positive or (positive and before_order(model, rv) is None)


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


def _law_of(model: pm.Model, rv: Variable, live: Variable | None = None) -> OrderedLaw | None:
    """Ordered law of a variable, as numbers where its parents are constants; None if not known."""
    order = ordered_transform(model, rv)
    assert order is not None
    if not _is_independent(model, rv):
        return None
    shape = unconstrained_shapes(model)[model.free_RVs.index(rv)]
    try:
        law = ordered_law(rv, shape, order, before_order(model, rv))
    except NotImplementedError:
        return None
    if not _has_constant_parents(model, rv, live):
        return law

    def numbers() -> OrderedLaw | None:
        flat = [law.edges, *law.densities, *law.totals, law.log_probability]
        flat = model.replace_rvs_by_values(flat)
        edges, *rest, log_p = compile_alone([], flat, mode=python_mode())()
        if not np.isfinite(log_p):
            return None
        k = len(law.densities)
        densities, totals = (tuple(map(pt.constant, part)) for part in (rest[:k], rest[k:]))
        return OrderedLaw(pt.constant(edges), densities, totals, pt.constant(log_p))

    return remembered(model, ("ordered law", rv.name), numbers)


def unknown_orders(model: pm.Model) -> tuple[str, ...]:
    """Free variables with constant parents whose P(ordered) takes a run.

    Their elements are not independent, or PyMC knows no quantiles of their law.
    """
    return tuple(
        rv.name
        for rv in model.free_RVs
        if ordered_transform(model, rv) is not None
        and not _is_exchangeable(model, rv)
        and _has_constant_parents(model, rv)
        and _law_of(model, rv) is None
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
            total = total + int(np.prod(shape[:-1])) * lgamma(shape[-1] + 1)
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
    """Graph of a draw of an ordered prior; `fresh` is the variable with its parents drawn."""
    order = ordered_transform(model, rv)
    assert order is not None
    if _is_exchangeable(model, rv):
        value = pt.sort(fresh, axis=-1)
        return value if order.ascending else value[..., ::-1]
    shape = unconstrained_shapes(model)[model.free_RVs.index(rv)]
    fixed = _has_constant_parents(model, rv)
    before = before_order(model, rv)
    law = _law_of(model, rv) if fixed else ordered_law(fresh, shape, order, before)
    assert law is not None
    return ordered_draw(law, fresh, shape, order, before)


def said_of_orders(model: pm.Model) -> list[str]:
    """Return a sentence for each ordered prior whose P(ordered) is an integral."""
    said = []
    for rv in model.free_RVs:
        if ordered_transform(model, rv) is None or _is_exchangeable(model, rv):
            continue
        if not _has_constant_parents(model, rv):
            value = "P(ordered | parents) is a part of its density"
        elif law := _law_of(model, rv):
            value = f"P(ordered) = {np.exp(float(law.log_probability.eval())):.4g}, computed once"
        else:
            value = "P(ordered) takes a run of its own"
        said.append(f"The prior of {rv.name!r} is its law given that it is in order: {value}.")
    return said
