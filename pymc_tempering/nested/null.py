"""A point null inside a model: where it lies, and the prior of all other parameters under it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import Ordered
from pymc.logprob.transforms import CircularTransform
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, graph_inputs

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import ImproperPriorError, NullError
from pymc_tempering.model.check import check_proper
from pymc_tempering.model.constrain import compile_constrain
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time
from pymc_tempering.model.layout import (
    Layout,
    has_transform,
    is_discrete,
    known_shapes,
    transform_parts,
    unconstrained_shapes,
)
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import log_orderings_of
from pymc_tempering.model.path import Path, compile_path
from pymc_tempering.model.python_mode import compile_alone
from pymc_tempering.model.unconstrain import unconstrained_graphs
from pymc_tempering.references.prior import compile_prior, evaluate_draws

SAME = 1e-6
"""Relative difference up to which two log densities, or two values, are the same."""

N_PRIOR = 2000
"""Prior draws for a prior density that depends on other parameters."""


@dataclass(frozen=True)
class NullPoint:
    """Coordinates that a null holds fixed, and their values.

    Attributes
    ----------
    index : ndarray of int, shape (k,)
        Places in the raveled vector.
    value : ndarray, shape (k,)
        Unconstrained values.
    labels : tuple of str
        Names of the coordinates, for messages.
    elements : dict of str to ndarray of int or None
        Raveled elements of each nulled variable; None where all of it is fixed.
    given : dict of str to ndarray
        What the user gave.
    """

    index: np.ndarray
    value: np.ndarray
    labels: tuple[str, ...]
    elements: dict[str, np.ndarray | None]
    given: dict[str, np.ndarray]

    def hold(self, x: np.ndarray) -> np.ndarray:
        """States, shape (n, d), with the coordinates at the null."""
        held = x.copy()
        held[:, self.index] = self.value
        return held


def find_null(model: pm.Model, layout: Layout, null: Mapping[str, Any]) -> NullPoint:
    """Find the coordinates of a null, and check that it is one.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
        Of this model.
    null : mapping of str to array_like
        Values on the constrained space, by the name of a free variable, or of an element of one:
        ``"b[2]"``, ``"b[0, 2]"``, or by the labels of its coordinates, ``"b[age]"``.

    Raises
    ------
    NullError
        A name is unknown or no free variable, a value has another shape or lies outside of the
        support or on its edge, or the variable has no single coordinate for it.
    """
    if not isinstance(null, Mapping) or not null:
        raise NullError(
            'null must be a mapping from names of variables to values, as in {"delta": 0.0}, '
            f"not {null!r}."
        )
    index: dict[int, float] = {}
    elements: dict[str, np.ndarray | None] = {}
    given = {}
    for key, value in null.items():
        rv, where = _find_variable(model, key)
        _check_transform(model, rv, where is not None, key)
        [shape] = known_shapes(model, [rv])
        at = None if where is None else _element(model, rv, shape, where, key)
        numbers = _numbers(key, value, () if at is not None else shape)
        unconstrained = _unconstrain(model, rv, np.broadcast_to(numbers, shape))
        part = layout.slices[layout.names.index(model.rvs_to_values[rv].name)]
        places = range(part.start, part.stop)
        chosen = slice(None) if at is None else slice(at, at + 1)
        for place, u in zip(places[chosen], unconstrained[chosen], strict=True):
            if not np.isfinite(u):
                raise NullError(
                    f"null[{key!r}] = {value!r} lies outside of the support of the variable or on "
                    "its edge, where it has no density in the unconstrained space: compare the two "
                    "models by their evidences, with bayes_factor."
                )
            if place in index:
                raise NullError(f"null names {layout.label(place)} twice.")
            index[place] = float(u)
        before = elements.get(rv.name, np.empty(0, dtype=int))
        elements[rv.name] = None if at is None or before is None else np.append(before, at)
        given[key] = numbers
    labels = tuple(layout.label(place) for place in index)
    return NullPoint(np.array(list(index)), np.array(list(index.values())), labels, elements, given)


def _find_variable(model: pm.Model, key: str) -> tuple[Variable, str | None]:
    """Free variable that a key names, and what stands in brackets."""
    free = {rv.name: rv for rv in model.free_RVs}
    match = re.fullmatch(r"(.+)\[([^\[\]]+)\]", key) if isinstance(key, str) else None
    name, where = (key, None) if key in free or match is None else (match[1], match[2])
    if name not in free:
        why = "is no free variable of the model"
        if name in [d.name for d in model.deterministics]:
            why = "is a Deterministic, which has no prior density of its own"
        raise NullError(
            f"null names {name!r}, which {why}; free variables: {listed(free)}. Write the model "
            "with the tested quantity as a free variable."
        )
    if is_discrete(free[name]):
        raise NullError(
            f"{name!r} is discrete: a point null has a probability there, not a density. Count the "
            "draws at the null, or compare evidences with bayes_factor."
        )
    if has_transform(model, free[name], CircularTransform):
        raise NullError(
            f"{name!r} is an angle, whose density has no tails to integrate: compare evidences "
            "with bayes_factor."
        )
    return free[name], where


def _check_transform(model: pm.Model, rv: Variable, element: bool, key: str) -> None:
    """Raise an error where a value has no single unconstrained one."""
    transform = model.rvs_to_transforms[rv]
    stand_in, [graph] = unconstrained_graphs(model, [rv])
    free = set(stand_in.values())
    others = [v.name for v in graph_inputs([graph]) if v in free and v.name != rv.name]
    if transform is not None and others:
        raise NullError(
            f"The support of {rv.name!r} depends on {listed(others)}, so the null "
            "is at another place for each draw: give it a fixed support, or compare evidences "
            "with bayes_factor."
        )
    joint = getattr(rv.owner.op, "ndim_supp", 1) > 0
    if element and (joint or any(isinstance(p, Ordered) for p in transform_parts(transform))):
        raise NullError(
            f"null[{key!r}]: the elements of {rv.name!r} have one joint prior, so one of them has "
            "no prior of its own to leave out: write it as two variables, or give all its elements."
        )


def _element(model: pm.Model, rv: Variable, shape: tuple[int, ...], where: str, key: str) -> int:
    """Raveled position of an element, by whole numbers or labels of coordinates."""
    parts = [part.strip().strip("'\"") for part in where.split(",")]
    dims = model.named_vars_to_dims.get(rv.name, (None,) * len(shape))
    if len(parts) != len(shape):
        raise NullError(f"null[{key!r}]: {rv.name!r} has the shape {shape}.")
    position = []
    for part, size, dim in zip(parts, shape, dims, strict=True):
        labels = [str(v) for v in (model.coords.get(dim) or ())]
        if re.fullmatch(r"-?\d+", part) and -size <= int(part) < size:
            position.append(int(part) % size)
        elif part in labels:
            position.append(labels.index(part))
        else:
            known = f", or one of {labels}" if labels else ""
            raise NullError(
                f"null[{key!r}]: {part!r} is no element of {rv.name!r} along a dimension of size "
                f"{size}: give a whole number from 0 to {size - 1}{known}."
            )
    return int(np.ravel_multi_index(position, shape))


def _numbers(key: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        numbers = np.asarray(value, dtype=float)
        np.broadcast_to(numbers, shape)
    except (TypeError, ValueError):
        raise NullError(
            f"null[{key!r}] must be numbers of the shape {shape}, or one number, not {value!r}."
        ) from None
    if not np.isfinite(numbers).all():
        raise NullError(f"null[{key!r}] must be finite, not {value!r}.")
    return numbers


def _unconstrain(model: pm.Model, rv: Variable, value: np.ndarray) -> np.ndarray:
    """Unconstrained values, raveled; not finite outside of the support."""
    stand_in, graphs = unconstrained_graphs(model, [rv])
    function = compile_alone([stand_in[rv]], graphs)
    with np.errstate(all="ignore"):
        [found] = function(value.astype(rv.dtype))
    return np.ravel(found).astype(float)


@dataclass(frozen=True)
class NullPrior:
    """What the null's prior of the other parameters does to the density ratio.

    Attributes
    ----------
    log_weight : ndarray, shape (n,)
        Log of p0(psi) / p1(delta0, psi) at states held at the null (nats): the factor of each
        term of BF01.
    log_prior : float
        Log p1(delta0) (nats); NaN where it is not known.
    matches : bool
        Whether p0(psi) is p1(psi | delta0), so that no correction is needed.
    """

    log_weight: np.ndarray
    log_prior: float
    matches: bool


def implied_prior(
    path: Path, null: NullPoint, held: np.ndarray, rng: np.random.Generator
) -> NullPrior:
    """Prior under the null that holds variables fixed and leaves all other priors as written.

    Then p0(psi) / p1(delta0, psi) = 1 / p1(delta0 | parents), which is one number if no prior of a
    nulled variable depends on a free one. If one does, each term has its own factor; this is the
    correction of Verdinelli & Wasserman (1995) without the detour over p1(delta0).

    Parameters
    ----------
    path : Path
        Of the full model.
    null : NullPoint
    held : ndarray, shape (n, d)
        Posterior draws, held at the null.
    rng : Generator
        For prior draws.
    """
    model = path.model
    nulled = [model[name] for name in null.elements]
    whole = {model[name] for name, at in null.elements.items() if at is None}
    parents = _free_ancestors(model, nulled) - whole
    own = _compile_own_prior(model, null, often=bool(parents))
    if not parents:
        log_prior = own(path.layout.unravel(held[0]))
        return NullPrior(np.full(len(held), -log_prior), log_prior, True)
    log_own = np.array([own(path.layout.unravel(x)) for x in held])
    drawable = not any(_free_ancestors(model, [rv]) & set(nulled) for rv in parents)
    log_prior = _mean_over_prior(path, null, own, rng) if drawable else float("nan")
    return NullPrior(-log_own, log_prior, False)


def given_prior(path: Path, null: NullPoint, held: np.ndarray, null_model: pm.Model) -> NullPrior:
    """Prior of a null model that the user wrote, at states held at the null.

    Raises
    ------
    NullError
        It has other parameters, other transforms, or another likelihood at the null.
    """
    layout = path.layout
    partial = [name for name, at in null.elements.items() if at is not None]
    if partial:
        raise NullError(
            f"null_model cannot be compared with a null of some elements of {partial}: write these "
            "elements as a variable of their own, or leave null_model out."
        )
    check_proper(null_model.free_RVs)
    short = compile_path(null_model)
    nulled = {path.model.rvs_to_values[path.model[name]].name for name in null.elements}
    rest = {
        name: shape
        for name, shape in zip(layout.names, layout.shapes, strict=True)
        if name not in nulled
    }
    theirs = dict(zip(short.layout.names, short.layout.shapes, strict=True))
    if theirs != rest:
        lacks = sorted(rest.items() - theirs.items())
        more = sorted(theirs.items() - rest.items())
        raise NullError(
            "The null model must have the free variables of the model without those of the null, "
            f"in the same shapes and with the same transforms. It lacks {lacks} and has {more} "
            "(unconstrained). A variable that its likelihood does not use leaves its evidence as "
            "it is, so keep it there."
        )
    columns = np.r_[*(layout.slices[layout.names.index(name)] for name in theirs)]
    states = np.ascontiguousarray(held[:, columns])
    _check_transforms(path, short, held[:20], states[:20])
    full_prior, full_likelihood = evaluate_draws(path, held)
    null_prior, null_likelihood = evaluate_draws(short, states)
    _check_likelihood(full_likelihood, null_likelihood)
    log_weight = null_prior - full_prior
    matches = bool(np.ptp(log_weight) <= SAME * (1.0 + np.abs(full_prior).max()))
    return NullPrior(log_weight, float(-log_weight.mean()) if matches else float("nan"), matches)


def _free_ancestors(model: pm.Model, rvs: list[Variable]) -> set[Variable]:
    """Free variables that the priors of some variables depend on."""
    inputs = [variable for rv in rvs for variable in rv.owner.inputs]
    return set(ancestors(inputs)) & set(model.free_RVs)


def _compile_own_prior(
    model: pm.Model, null: NullPoint, often: bool
) -> Callable[[dict[str, np.ndarray]], float]:
    """Log prior density of the nulled elements given their parents, of an unconstrained point.

    Compiled to be called often, or within milliseconds to be called once.
    """
    key = tuple((name, None if at is None else tuple(at)) for name, at in null.elements.items())

    def compiled() -> Callable[[dict[str, np.ndarray]], float]:
        terms = model.logp(vars=[model[name] for name in null.elements], sum=False)
        graphs = []
        for term, at in zip(terms, null.elements.values(), strict=True):
            values = getattr(term, "values", term)  # of pm.dims
            graphs.append(values.sum() if at is None else values.ravel()[at].sum())
        names = [value.name for value in model.value_vars]
        others = [rv.name for rv in model.free_RVs if rv.name not in null.elements]
        orderings = log_orderings_of(model, unconstrained_shapes(model), others)
        graph = freeze_shared([pt.add(orderings, *graphs)])
        if often:
            function = compile_exactly(
                model.value_vars, graph, on_unused_input="ignore", trust_input=True
            )
        else:
            function = compile_alone(model.value_vars, graph)
        return one_thread_at_a_time(
            lambda point: float(function(*(point[name] for name in names))[0])
        )

    return remembered(model, ("own prior", key, often), compiled)


def _mean_over_prior(
    path: Path,
    null: NullPoint,
    own: Callable[[dict[str, np.ndarray]], float],
    rng: np.random.Generator,
) -> float:
    """Log of the mean of p(delta0 | parents) over prior draws; NaN if there are none."""
    try:
        prior = compile_prior(path)
    except ImproperPriorError:
        return float("nan")
    draws = null.hold(prior.draw(N_PRIOR, prior.spawn(rng)))
    values = np.array([own(path.layout.unravel(x)) for x in draws])
    values = values[~np.isnan(values)]
    return float(np.logaddexp.reduce(values) - np.log(values.size)) if values.size else np.nan


def _check_transforms(path: Path, short: Path, full: np.ndarray, states: np.ndarray) -> None:
    """Raise an error unless unconstrained values mean the same in both models."""
    ours = compile_constrain(path.model, path.layout)(full)
    theirs = compile_constrain(short.model, short.layout)(states)
    odd = [
        rv.name
        for rv in short.model.free_RVs
        if not np.allclose(ours[rv.name], theirs[rv.name], rtol=SAME, atol=0.0)
    ]
    if odd:
        raise NullError(
            f"The supports of {odd} differ between the model and the null model, so their priors "
            "cannot be compared at the draws: give them the same bounds, or compare evidences with "
            "bayes_factor."
        )


def _check_likelihood(full: np.ndarray, short: np.ndarray) -> None:
    apart = np.abs(full - short).max()
    if not apart <= SAME * (1.0 + np.abs(full).max()):
        raise NullError(
            "The null model is not the model at the null: their log likelihoods at the draws "
            f"differ by up to {apart:.3g} nats. Check the value of the null, the data and the "
            "likelihood of both."
        )
