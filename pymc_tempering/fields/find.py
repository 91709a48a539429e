"""Which variables of a model are a latent field, and how that is followed.

The others are small variables that are not real by themselves, such as scales and correlations, and
coefficients that multiply the field. Given these, the field must be nearly normal, with one mode.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from scipy.optimize import minimize
from scipy.sparse import csr_array

from pymc_tempering.arguments import listed
from pymc_tempering.core.sparse_curvature import find_pattern, full_rows
from pymc_tempering.core.threads import one_thread
from pymc_tempering.exceptions import GradientError, PriorDrawsError, UndrawableError
from pymc_tempering.fields.arrow import arrange
from pymc_tempering.fields.conditional import LEANS, TRIED, Field, evaluator_of
from pymc_tempering.fields.curvature import FIRST_STEP, Curvature
from pymc_tempering.fields.staged import Evaluate
from pymc_tempering.fields.summing import Sum, along_sums, differenced, summed
from pymc_tempering.model.car import is_icar
from pymc_tempering.model.given_up import RewriteError, give_up
from pymc_tempering.model.layout import circular_indices, is_discrete, model_layout
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.path import Path
from pymc_tempering.model.terms import find_terms
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.mixture_fit import FULL_DIM
from pymc_tempering.references.prior import Prior

LEAST_DIM = 160
"""Dimensions up to which fields are not looked for: the usual way does well there. A volatility of
152 takes 9 CPU s; a penalized spline of 200 gets no result. An intrinsic autoregression is a field
in any dimension: with a free scale of noise, which may let nine places follow their data, log Z was
.07 nats off."""

MOST_OTHERS = 10
"""Dimensions of the others at most."""

SMALL = 10
"""Elements up to which a variable that is not real by itself counts to the others."""

MOST_BEND = 1.0
"""Most nats by which the log determinant of the precision may change in one standard deviation of a
small variable of the field."""

NEARBY, FIRST_EDGE = 0.1, 0.7
"""How far from the model's initial point the field is looked at, and how far the search for likely
others begins to step, both in unconstrained units."""

FULL_PART, MOST_COST, MOST_SUMS = 0.5, 0.5, 2
"""Share of full rows from which on it is tried whether running sums of a part have few neighbors;
how much cheaper a factor has to be then; and how often sums are taken along one axis."""

DENSE = 0.25
"""Gradients that the curvature takes, as a share of the field's dimensions, from which on many are
computed at once."""

N_STATES, SEED = 2, 20261126
"""States at which it is looked where the curvature is zero."""

SEARCH, NEAR_OTHERS, NEAR_TOP, MAX_SEARCHES = 40, 0.1, 0.5, 5
"""Evaluations for each of the others in a search for where the map is made, at most; how near it
comes, in unconstrained units and in nats; and how many searches begin where the last has ended."""

MOST_WORK = 7_000_000
"""Elements that are computed for one law of a field at most: some milliseconds. Crossed effects of
500 that are not centered have 9 million: without a field they take 30 to 100 CPU s, and with one
115 to 165."""

CHUNK_NUMBERS = 4_000_000
"""Numbers of the gradients that are taken at once."""

N_TRIED, MOST_SPREAD = 50, 10.0
"""States of the whitened field at which it is tried, and the largest standard deviation there of
the log density over that of white noise (nats) with which a field is followed."""


N_CAME, MOST_STARTS = 20, 200
"""Climbs from draws of the prior that must come to the mode of a field, and how many begin at most.
With so many, a mode that draws 3 / `N_CAME` of those that come to one may have been missed."""

LEAST_SHARE, COVERED = 1e-4, 5.0
"""Share in all from which another mode counts; and how many nats its mass may be above the density
there of white noise about the first one, relative to the top, so that this covers it."""


def find_field(model: pm.Model, report: Callable[[str], None] = lambda line: None) -> Field | None:
    """Find the latent field of a model; None if it has none that can be followed."""
    with one_thread():
        return remembered(model, "field", lambda: _find(model, report))


def _find(model: pm.Model, report: Callable[[str], None]) -> Field | None:
    layout = model_layout(model)
    if any(map(is_discrete, model.free_RVs)):
        return None
    if layout.dim <= LEAST_DIM and not any(map(is_icar, model.free_RVs)):
        return None
    if circular_indices(model, layout).size or not find_terms(model).normalized_prior:
        return None
    others = _first_others(model)
    if _n_elements(model, others) > MOST_OTHERS:
        return None
    try:
        prior = compile_model(model, report, check=False)
        report("Looking at the field")
        while _n_elements(model, others) <= MOST_OTHERS:
            field = _field_of(prior.path, others)
            if _is_dear(field):
                break
            field = _settled(field)
            if not field.dense:  # what is no curvature at the initial point may be one here
                again = _field_of(prior.path, others, field.start)
                field = field if again.curvature.size == field.curvature.size else _settled(again)
                if _is_dear(field):  # by now
                    break
            more = _bending(model, field, others)
            if more is None:
                return field if _spread(field) <= MOST_SPREAD and _one_mode(field, prior) else None
            others = others | _small_ancestors(model, [more])
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        inside = listed([rv.name for rv in model.free_RVs if rv not in others], 3)
        give_up(model, "field_not_followed", inside, RewriteError(f"no law of it ({error})"))
    except (GradientError, PriorDrawsError, UndrawableError):
        pass  # without a field, the model is refused, or sampled without gradients or draws
    return None


def _is_dear(field: Field) -> bool:
    """Whether the model is sampled for less without its field.

    A mixture of t's with full scale matrices, where that is fitted, follows a dense one for less.
    """
    if field.is_staged or not field.others.size:  # each gradient costs as much as a law, or none
        return False
    if any(map(is_icar, field.path.model.free_RVs)):
        return field.work > MOST_WORK
    return field.work > MOST_WORK or (field.dense and field.path.dim <= FULL_DIM)


def _first_others(model: pm.Model) -> frozenset[Variable]:
    """Find variables that a field surely depends on, and that are no part of it.

    These are small ones that are not real by themselves, such as scales and correlations.
    """
    free, transforms = model.free_RVs, model.rvs_to_transforms
    small = [rv for rv in free if transforms[rv] and _n_elements(model, [rv]) <= SMALL]
    return _small_ancestors(model, small)


def _small_ancestors(model: pm.Model, some: Sequence[Variable]) -> frozenset[Variable]:
    """Free variables, and all that their priors depend on."""
    return frozenset(set(ancestors(some)) & set(model.free_RVs))


def _n_elements(model: pm.Model, some: Collection[Variable]) -> int:
    """Count the unconstrained elements of free variables."""
    pairs = zip(model.free_RVs, model_layout(model).slices, strict=True)
    return sum(part.stop - part.start for rv, part in pairs if rv in some)


def _bending(model: pm.Model, field: Field, others: Collection[Variable]) -> Variable | None:
    """Find the small variable of a field along which its curvature changes most.

    A coefficient that multiplies the field is one: the field is normal given it, not with it. None
    where no change matters.
    """
    worst, found = MOST_BEND, None
    for rv, part in zip(model.free_RVs, model_layout(model).slices, strict=True):
        if rv in others or part.stop - part.start > SMALL:
            continue
        for index in range(part.start, part.stop):
            bend = field.bend(int(np.searchsorted(field.inside, index)))
            if bend > worst:
                worst, found = bend, rv
    return found


def _field_of(path: Path, others: Collection[Variable], known: np.ndarray | None = None) -> Field:
    """Find where the curvature of a field is not zero, along its values or running sums of them.

    It is looked for near the model's initial point, and at a known state of more density.
    """
    layout, model = path.layout, path.model
    apart = [rv in others for rv in model.free_RVs]
    is_other = np.repeat(apart, [part.stop - part.start for part in layout.slices])
    inside, place = np.flatnonzero(~is_other), np.cumsum(~is_other) - 1
    parts = [place[part] for part, out in zip(layout.slices, apart, strict=True) if not out]
    walks = [
        Sum(slice(place[part.start], place[part.start] + part.stop - part.start), shape, 0)
        for rv, part, shape in zip(model.free_RVs, layout.slices, layout.shapes, strict=True)
        if rv not in others and model.rvs_to_transforms[rv] is None and np.prod(shape) > SMALL
    ]
    initial, rng = layout.ravel(model.initial_point(random_seed=SEED)), np.random.default_rng(SEED)
    # The others are moved too: a coefficient may begin at zero.
    states = [initial + NEARBY * rng.standard_normal(initial.size) for _ in range(N_STATES)]
    states += [] if known is None else [known]
    steps, evaluator = np.full(inside.size, FIRST_STEP), evaluator_of(path, inside)
    sums: tuple[Sum, ...] = ()
    pattern = _pattern_along(sums, evaluator, inside, states)
    for more in _worth_a_sum(walks, pattern):
        for _ in range(MOST_SUMS):
            tried = _pattern_along((*sums, *more), evaluator, inside, states)
            if arrange(tried, parts).cost >= MOST_COST * arrange(pattern, parts).cost:
                break
            sums, pattern = (*sums, *more), tried
    curvature = Curvature.of(pattern, parts, steps)
    dense = len(curvature.moves) >= DENSE * inside.size
    start = initial if known is None else known
    return Field(model, np.flatnonzero(is_other), inside, start, curvature, dense, sums)


def _pattern_along(
    sums: tuple[Sum, ...], evaluator: Evaluate, inside: np.ndarray, states: Sequence[np.ndarray]
) -> csr_array:
    """Find where the curvature along such coordinates is not zero, at some states."""
    steps, chunk = np.full(inside.size, FIRST_STEP), max(1, CHUNK_NUMBERS // states[0].size)
    pattern = csr_array((inside.size, inside.size), dtype=np.int8)
    for near in states:

        def slopes(vs: np.ndarray, near: np.ndarray = near) -> np.ndarray:
            return along_sums(sums, evaluator(near, differenced(sums, vs))[1])

        found = find_pattern(slopes, summed(sums, near[inside]), steps, chunk)
        pattern = csr_array((pattern + found).astype(bool).astype(np.int8))
    return pattern


def _worth_a_sum(walks: Sequence[Sum], pattern: csr_array) -> list[tuple[Sum, ...]]:
    """Return which running sums are tried: of all parts that are dense, along either axis."""
    full = full_rows(pattern)
    dense = tuple(walk for walk in walks if full[walk.part].mean() > FULL_PART)
    across = tuple(replace(walk, axis=1) for walk in dense if len(walk.shape) > 1)
    return [some for some in (dense, across) if some]


def _settled(field: Field) -> Field:
    """Make the map where the others are likely, with steps of the field's own scale."""
    others = field.start[field.others]
    field = field.begun_at(others)
    if others.size == 0:
        return field
    field = replace(field, is_scaled=True)
    for _ in range(MAX_SEARCHES):
        found = _likely_others(field)
        gain = _height(field, found) - _height(field, field.start[field.others])
        field = field.begun_at(found)
        if gain < NEAR_TOP:
            break
    others, edges = field.start[field.others], LEANS * np.eye(others.size)
    away = [*(others + edges), *(others - edges)]
    field = replace(field, is_scaled=any(field.scaled(each, TRIED)[0] for each in away))
    laws = [field.given(each) for each in away]
    ahead, behind = np.split(np.array([law.mode for law in laws]), 2)
    n_roots = float(np.mean([law.n_roots for law in laws]))
    return replace(field, lean=(ahead - behind) / (2.0 * LEANS), n_roots=n_roots)


def _height(field: Field, others: np.ndarray) -> float:
    """Log density of the others, the field integrated out; minus infinity where it has no law."""
    try:
        return field.log_marginal(others)
    except (ArithmeticError, np.linalg.LinAlgError):
        return -np.inf


def _likely_others(field: Field) -> np.ndarray:
    """Search for likely others from those of the start; a simplex can end before the top."""
    others = field.start[field.others]
    simplex = np.vstack([others, others + FIRST_EDGE * np.eye(others.size)])
    options = {
        "initial_simplex": simplex, "maxfev": SEARCH * others.size,
        "xatol": NEAR_OTHERS, "fatol": NEAR_TOP,
    }  # fmt: skip
    minus = lambda t: -_height(field, t)  # noqa: E731
    return minimize(minus, others, method="Nelder-Mead", options=options).x


def _spread(field: Field) -> float:
    """Return how far a whitened field is from white noise: the spread of the difference (nats)."""
    rng, others = np.random.default_rng(SEED), field.start[field.others]
    us = rng.standard_normal((N_TRIED, field.inside.size))
    return float(np.std([field.white(others, u)[0] + 0.5 * u @ u for u in us]))


def _one_mode(field: Field, prior: Prior) -> bool:
    """Whether climbs from draws of the prior lead to one mode of the field.

    Those that end on their way say nothing.
    """
    others, came = field.start[field.others], 0
    law = field.given(others)
    main = field.log_marginal(others)
    draws = prior.draw(MOST_STARTS, prior.spawn(np.random.default_rng(SEED)))
    for x in field.inner(draws):
        try:
            found = field.climb(others, x)
        except (ArithmeticError, np.linalg.LinAlgError):
            continue
        away = law.root.whiten(found.mode - law.mode)
        mass, covered = field.log_marginal(others, found) - main, COVERED - 0.5 * away @ away
        came += mass > np.log(LEAST_SHARE)
        if mass > max(np.log(LEAST_SHARE), covered):
            return False
        if came == N_CAME:
            return True
    return False
