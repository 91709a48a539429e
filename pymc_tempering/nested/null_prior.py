"""The prior of the other parameters under the null, beside the model's own at the null."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_tempering.exceptions import ImproperPriorError, NullError
from pymc_tempering.model.check import check_proper
from pymc_tempering.model.constrain import compile_constrain
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.exactly import compile_alone, compile_exactly, one_thread_at_a_time
from pymc_tempering.model.layout import unconstrained_shapes
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import log_orderings_of
from pymc_tempering.model.path import Path, compile_path
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.nested.null_point import NullPoint
from pymc_tempering.references.prior import compile_prior, evaluate_draws

SAME = 1e-6
"""Relative difference up to which two log densities, or two values, are the same."""
N_PRIOR = 2000
"""Prior draws for a prior density that depends on other parameters."""


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
    columns = np.concatenate(
        [np.arange(layout.dim)[layout.slices[layout.names.index(name)]] for name in theirs]
    )
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
        options = {"on_unused_input": "ignore"}
        if often:
            function = compile_exactly(model.value_vars, graph, trust_input=True, **options)
        else:
            function = compile_alone(model.value_vars, graph, mode=python_mode(), **options)
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
